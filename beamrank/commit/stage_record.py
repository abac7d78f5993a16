"""A stage as a plan's file holds it: data alone, so that a plan is read without the classes of models/stages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ConfigDict

from beamrank.join.schemas import RowKind


@dataclass(frozen=True)
class ScoringWork:
    """The work of a model for one query, by which the duration of one stage predicts that of the next.

    Attributes:
        k: how many candidates of a query reach the model.
        docs: how many docs one input has: 1, or 2 where candidates are compared in pairs.
        opponents: how many others a candidate is compared with; None for all.
        max_length: the most tokens of an input.
        token_cost: how many multiplications the model makes for one token.
    """

    k: int
    docs: int
    opponents: int | None
    max_length: int
    token_cost: int


@dataclass(frozen=True)
class StageRecord:
    """One stage of a plan.

    Attributes:
        type_name: the registered name of its class.
        name: its folder below the output.
        step: its name in `--stage`; several stages can share a step.
        rows: the kind of row of its parts.
        inputs: the names of the stages that it reads.
        reads_input: whether its tasks carry the topics or rows of their shards.
        keys: the settings that decide the bytes of its parts.
        settings: all others, such as where workers find a model.
        run_name: the name of the run that it yields, if it yields one.
        corpus_digest: the digest of the corpus, for a stage that reads it.
        work: for a stage with a model.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    type_name: str
    name: str
    step: str
    rows: RowKind
    inputs: tuple[str, ...] = ()
    reads_input: bool = False
    keys: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    run_name: str | None = None
    corpus_digest: str | None = None
    work: ScoringWork | None = None
