"""The files in `runs/`: how they are named, and which runs a plan makes."""

import re
from dataclasses import dataclass, replace

from beamrank.config.run import RunConfig
from beamrank.formats.run_formats import FORMATS
from beamrank.stages.plan import Plan

RUNS = "runs"
MEASURES = "measures.json"
_NAME = re.compile(
    r"(?P<stage>candidates|bm25|mono|duo)(?:-(?P<aggregation>\w+))?(?:-k(?P<k1>\d+))?"
    r"(?:-m(?P<opponents>\d+)-s(?P<seed>-?\d+))?\.(?P<ending>.+)"
)


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
    def parse(cls, base: str) -> "RunFile | None":
        """The run that has this file name; None where the file is not one of ours."""
        found = _NAME.fullmatch(base)
        for name, each in FORMATS.items():
            if found is not None and found["ending"] == each.ending:
                k1, opponents, seed = (int(found[key]) if found[key] else None for key in ("k1", "opponents", "seed"))
                file = cls(found["stage"], found["aggregation"] or "sum", k1, opponents, seed or 0, name)
                return file if file.base == base else None
        return None


def run_files(plan: Plan, config: RunConfig) -> list[RunFile]:
    """The runs of a plan, in the order of the stages, each in every format that the configuration asks for."""
    runs = [RunFile(stage.type_name) for stage in plan.stages if stage.run_name == stage.type_name]
    if config.duo is not None:
        runs.append(RunFile("duo", config.duo.aggregation))
    return [replace(run, run_format=run_format) for run in runs for run_format in config.run_formats]
