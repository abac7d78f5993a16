"""What readers of a plan need of its stages: names, and the rule by which a part re-ranks the stage before.

The classes that score are in `models/stages` and in plugins. Readers are handed their objects, in a plan's order.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from beamrank.ranking.input_layout import Lengths
from beamrank.ranking.rankings import Rankings
from beamrank.ranking.variants import Depths, Variants


class Stage(Protocol):
    """A stage of a plan."""

    @property
    def ranks(self) -> bool:
        """Whether its parts yield rankings; a stage that only prepares those of others has none."""

    @property
    def name(self) -> str:
        """Its folder, and its name in `--stage`."""

    @property
    def run_name(self) -> str | None:
        """The name of its run; None where it does not rank."""

    def rank(self, before: Rankings | None, part: Any, k: int | None = None) -> Rankings:
        """The rankings of a shard after this stage. A pure function of the rows.

        Args:
            before: those of the stage before; None for the first.
            part: the shard's part of this stage.
            k: as if it had scored only the first k docs; by default all that it scored.
        """

    @property
    def alternatives(self) -> Sequence["Stage"]:
        """The stage, and the same with other settings that its parts can be ranked with, such as aggregations."""

    def variants(self, depths: Depths) -> Variants | None:
        """How it could have ranked: the points of a curve; None for a stage that has none."""

    def details(self, part: Any, query_id: str) -> Mapping[str, Mapping[str, Any]]:
        """What is shown of the docs of a query beside ranks and scores: by doc_id and name."""

    @property
    def tokens(self) -> str:
        """The stage that makes its tokens; empty where it reads none."""

    def read_tokens(self, queries: Lengths, docs: Lengths) -> Lengths:
        """How many tokens of each doc its model reads, given the lengths of queries and docs."""

    def parse_run_name(self, name: str) -> tuple[tuple[tuple[str, Any], ...], int | None] | None:
        """The settings and the `k` behind the name of a run that its parts can be ranked as; None for no such run."""
