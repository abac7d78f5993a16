"""The files in `runs/`: how they are named, and which runs a plan makes."""

import re
from dataclasses import dataclass, replace

from beamrank.commit.plan import Plan
from beamrank.config.run import RunConfig
from beamrank.formats.run_writer import FORMATS
from beamrank.ranking.aggregation import METHODS

RUNS = "runs"
MEASURES = "measures.json"
_AGGREGATED = re.compile(r"duo-(\w+)(?:-k(\d+))?(?:-m(\d+)-s(-?\d+))?\.(.+)")


@dataclass(frozen=True)
class RunFile:
    """One run to write: the stage that ranks, and for duo the aggregation and the stored pairs that it takes."""

    stage: str
    aggregation: str = "sum"
    k1: int | None = None
    opponents: int | None = None
    seed: int = 0
    run_format: str = "trec"

    @property
    def name(self) -> str:
        """The run's name: the file's, without its ending."""
        if self.stage != "duo":
            return self.stage
        depth = "" if self.k1 is None else f"-k{self.k1}"
        sample = "" if self.opponents is None else f"-m{self.opponents}-s{self.seed}"
        return f"duo-{self.aggregation}{depth}{sample}"

    @property
    def base(self) -> str:
        """The file's name."""
        return f"{self.name}.{FORMATS[self.run_format].ending}"

    @classmethod
    def parse_aggregated(cls, base: str) -> "RunFile | None":
        """The run of duo that has this file name; None if no run has it."""
        found = _AGGREGATED.fullmatch(base)
        if found is None or found[1] not in METHODS:
            return None
        k1, opponents, seed = (int(number) if number else None for number in found.groups()[1:4])
        formats = [name for name, each in FORMATS.items() if each.ending == found[5]]
        return cls("duo", found[1], k1, opponents, seed or 0, formats[0]) if formats else None


def run_files(plan: Plan, config: RunConfig) -> list[RunFile]:
    """The runs of a plan, in the order of the stages, each in every format that the configuration asks for."""
    runs = [RunFile(stage.type_name) for stage in plan.stages if stage.run_name == stage.type_name]
    if config.duo is not None:
        runs.append(RunFile("duo", config.duo.aggregation))
    return [replace(run, run_format=run_format) for run in runs for run_format in config.run_formats]
