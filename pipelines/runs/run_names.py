"""The files in `runs/`: how they are named, and which runs a plan makes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from beamrank.commit.parts import ShardParts
from beamrank.commit.stage import Stage
from beamrank.config.run import RunConfig
from beamrank.formats.run_writer import FORMATS
from beamrank.ranking.rankings import Rankings

RUNS = "runs"
MEASURES = "measures.json"


@dataclass(frozen=True)
class RunFile:
    """One run to write.

    Attributes:
        name: the run's: the file's, without its ending.
        stage: the stage that ranks.
        run_format: of the file.
        k: how many docs count as received by the stage; None for all that it received.
        variant: settings of the stage that its parts can be ranked with, in place of its own, such as an aggregation.
    """

    name: str
    stage: str
    run_format: str = "trec"
    k: int | None = None
    variant: tuple[tuple[str, Any], ...] = ()

    @property
    def base(self) -> str:
        """The file's name."""
        return f"{self.name}.{FORMATS[self.run_format].ending}"

    def rankings(self, parts: ShardParts) -> Rankings:
        """Each query's ranking, from the parts of a shard."""
        if self.k is None and not self.variant:
            return parts.rankings(self.stage)
        stage: Any = next(each for each in parts.stages if each.name == self.stage)
        varied = replace(stage, **dict(self.variant))
        found: Rankings = varied.rank(parts.before(self.stage), parts.part(self.stage), self.k)
        return found


def run_files(stages: Sequence[Stage], config: RunConfig) -> list[RunFile]:
    """The runs of a plan, in the order of its stages, each in every format that the configuration asks for."""
    return [
        RunFile(str(stage.run_name), stage.name, run_format)
        for stage in stages
        if stage.ranks
        for run_format in config.run_formats
    ]


def parse_run_file(stages: Sequence[Stage], base: str) -> RunFile | None:
    """The run of a variant of a stage that has this file name; None if no run has it."""
    name, _, ending = base.partition(".")
    run_format = next((each for each, found in FORMATS.items() if found.ending == ending), None)
    for stage in stages if run_format else ():
        found = stage.parse_run_name(name)
        if found is not None:
            return RunFile(name, stage.name, run_format or "", found[1], found[0])
    return None
