"""`beamrank aggregate DIR`: runs with other aggregations of the stored log-odds, without a model."""

from typing import Annotated

import typer

from beamrank.ranking.aggregation import METHODS
from pipelines.console.terminal import write_line
from pipelines.runs.aggregate import other_runs
from pipelines.runs.run_files import write_run_files


def aggregate(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The output of a run with a duo stage.")],
    aggregation: Annotated[str, typer.Option(help=f"One or several, separated by commas: {', '.join(METHODS)}.")],
    k1: Annotated[int | None, typer.Option(min=1, help="The number of candidates, at most duo.k.")] = None,
    opponents: Annotated[
        int | None, typer.Option(min=1, help="With sample: the number of opponents of a candidate.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="With sample: the random seed; 0 by default.")] = None,
) -> None:
    """Write duo runs with other aggregations, or with a smaller k1. Prints the path of each."""
    names = [name.strip() for name in aggregation.split(",")]
    plan, config, files = other_runs(folder, names, k1, opponents, seed)
    for path in write_run_files(plan, config, files).values():
        write_line(path)
