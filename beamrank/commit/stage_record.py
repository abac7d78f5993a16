"""A stage as a plan's file holds it: data alone, so that a plan is read without the classes of models/stages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ConfigDict


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
        type_name: its kind, the registered name of its class.
        name: its folder below the output.
        step: its name in `--stage`; several stages can share a step.
        schema: the columns of its parts, each with its type (`described`).
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
    schema: tuple[tuple[str, str], ...]
    inputs: tuple[str, ...] = ()
    reads_input: bool = False
    keys: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    run_name: str | None = None
    corpus_digest: str | None = None
    work: ScoringWork | None = None


def described(schema: Any) -> tuple[tuple[str, str], ...]:
    """The columns of an Arrow schema as a plan holds them, without metadata."""
    return tuple((field.name, f"{_type_name(field.type)}{'' if field.nullable else ' not null'}") for field in schema)


def _type_name(type_: Any) -> str:
    """A type without the name of its items, which Parquet does not keep."""
    return f"list<{_type_name(type_.value_type)}>" if hasattr(type_, "value_type") else str(type_)
