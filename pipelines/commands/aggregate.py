"""`beamrank aggregate DIR`: other aggregations of the stored log-odds, without a model."""

from typing import Annotated

import typer

from beamrank.aggregation import METHODS
from beamrank.config import stored_config
from beamrank.errors import ConfigError, PreflightError
from beamrank.plan import read_plan
from pipelines.runs import RunFile, write_run_file
from pipelines.terminal import write_line


def aggregate(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The output of a run that has a duo stage.")],
    aggregation: Annotated[
        str, typer.Option(help="One or several of sum, binary, min, max, sample, sym_sum, log_sum, sym_log_sum.")
    ],
    k1: Annotated[int | None, typer.Option(min=1, help="Only mono's first K1 candidates, instead of duo.k.")] = None,
    opponents: Annotated[
        int | None, typer.Option(min=1, help="With sample: how many opponents a candidate meets.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="With sample: which opponents are drawn; 0 by default.")] = None,
) -> None:
    """Write duo runs for other aggregations, or for a smaller k1. Prints the path of each."""
    plan = read_plan(folder)
    config = stored_config(plan.config, folder)
    if config.duo is None:
        raise PreflightError(f"{folder} has no duo stage: there are no pairs to aggregate")
    if k1 is not None and k1 > config.duo.k:
        raise PreflightError(f"--k1 {k1} is more than the {config.duo.k} candidates whose pairs were scored (duo.k)")
    names = [name.strip() for name in aggregation.split(",")]
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        raise ConfigError(f"there is no aggregation {unknown[0]!r}: give one of {', '.join(METHODS)}")
    stored = config.duo.opponents is not None
    if ("sample" in names and not stored) != (opponents is not None):
        raise ConfigError("--opponents says how many opponents `sample` draws from a full matrix: give both or neither")
    if stored and k1 is not None:
        raise ConfigError("the stored pairs are a sample (duo.opponents): no smaller k1 can be taken from them")
    if seed is not None and opponents is None:
        raise ConfigError("--seed decides which --opponents are drawn: give both")
    for name in names:
        drawn = opponents if name == "sample" else None
        write_line(write_run_file(plan, config, RunFile("duo", name, k1, drawn, seed or 0)))
