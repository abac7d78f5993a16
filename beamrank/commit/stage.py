"""What readers of a plan need of its stages: names, and the rule by which a part re-ranks the stage before.

The classes that score are in `models/stages` and in plugins. Readers are handed their objects, in a plan's order.
"""

from typing import Any, Protocol

from beamrank.ranking.rankings import Rankings


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

    def parse_run_name(self, name: str) -> tuple[tuple[tuple[str, Any], ...], int | None] | None:
        """The settings and the `k` behind the name of a run that its parts can be ranked as; None for no such run."""
