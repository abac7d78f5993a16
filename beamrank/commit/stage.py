"""A stage as readers of a plan see it: its record in the plan's file, and the rule by which its
parts rank.

The record is data: a plan is read without the classes that score, which are in `models/stages` and
in plugins. Readers of rankings are handed objects of these, in a plan's order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from pydantic import ConfigDict, Field

from beamrank.ranking.input_layout import Lengths

# They import pyarrow.compute, and every command that reads a plan imports records.
if TYPE_CHECKING:
    from beamrank.ranking.rankings import Rankings
    from beamrank.ranking.variants import Depths, Variants


@dataclass(frozen=True)
class StageRecord:
    """One stage of a plan.

    Attributes:
        type_name: its kind, the registered name of its class.
        name: its folder below the output: a plain name, which leads nowhere else.
        step: its name in `--stage`; several stages can share a step.
        schema: the columns of its parts, each with its type (`described`).
        inputs: the names of the stages that it reads.
        reads_input: whether its tasks carry the topics or rows of their shards.
        keys: the settings that decide the bytes of its parts.
        settings: all others, such as where workers find a model.
        run_name: the name of the run that it yields, if it yields one.
        corpus_digest: the digest of the corpus, for a stage that reads it.
        scan_digest: names the reports of its scan, of the corpus or of a given run.
        input_docs: how many docs an input of its model has: 1, or 2 where candidates are compared
            in pairs; 0 for a stage without a model.
        waits_for: the one of `inputs` whose parts must all be there before any of its shards, such
            as the gaps of `--deepen`; empty for none.
        asks: names the answers that it keeps (`beamrank.commit.asked`); empty where it asks for
            none.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    type_name: str
    name: Annotated[str, Field(pattern=r"^[^./][^/]*$")]
    step: str
    schema: tuple[tuple[str, str], ...]
    inputs: tuple[str, ...] = ()
    reads_input: bool = False
    keys: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    run_name: str | None = None
    corpus_digest: str | None = None
    scan_digest: str | None = None
    input_docs: int = 0
    waits_for: str = ""
    asks: str = ""


def described(schema: Any) -> tuple[tuple[str, str], ...]:
    """The columns of an Arrow schema as a plan holds them, without metadata."""
    return tuple(
        (field.name, f"{_type_name(field.type)}{'' if field.nullable else ' not null'}")
        for field in schema
    )


def _type_name(type_: Any) -> str:
    """A type without the name of its items, which Parquet does not keep."""
    return f"list<{_type_name(type_.value_type)}>" if hasattr(type_, "value_type") else str(type_)


class Stage(Protocol):
    """A stage of a plan whose parts are read: see `models.stages.base.Stage`, which says more of
    each.
    """

    @property
    def ranks(self) -> bool: ...
    @property
    def name(self) -> str: ...
    @property
    def run_name(self) -> str | None: ...
    @property
    def tokens(self) -> str: ...
    @property
    def alternatives(self) -> Sequence["Stage"]: ...

    def rank(self, before: "Rankings | None", part: Any, k: int | None = None) -> "Rankings":
        """The rankings of a shard after this stage. A pure function of the rows.

        Args:
            before: the rankings of the stage before; None for the first.
            part: the shard's part of this stage.
            k: as if it had scored only the first k docs; by default all that it scored.
        """

    def variants(self, depths: "Depths") -> "Variants | None": ...
    def details(self, part: Any, query_id: str) -> Mapping[str, Mapping[str, Any]]: ...
    def read_tokens(self, queries: Lengths, docs: Lengths, instructions: Lengths) -> Lengths: ...
    def parse_run_name(
        self, name: str
    ) -> tuple[tuple[tuple[str, Any], ...], int | None] | None: ...
