"""`beamrank aggregate DIR`: other aggregations of the stored log-odds, without a model."""

from typing import Annotated

import typer

from beamrank.config import RunConfig
from beamrank.errors import PreflightError
from beamrank.plan import read_plan
from pipelines.runs import write_aggregation


def aggregate(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The output of a run that has a duo stage.")],
    aggregation: Annotated[
        str, typer.Option(help="One or several of sum, binary, min, max, sample, sym_sum, log_sum, sym_log_sum.")
    ],
    k1: Annotated[
        int | None, typer.Option(min=1, help="Only the first K1 candidates of mono, instead of duo.k.")
    ] = None,
) -> None:
    """Write duo runs for other aggregations, or for a smaller k1. Prints the path of each."""
    plan = read_plan(folder)
    config = RunConfig.model_validate(plan.config)
    if config.duo is None:
        raise PreflightError(f"{folder} has no duo stage: there are no pairs to aggregate")
    if k1 is not None and k1 > config.duo.k:
        raise PreflightError(f"--k1 {k1} is more than the {config.duo.k} candidates whose pairs were scored (duo.k)")
    for name in aggregation.split(","):
        typer.echo(write_aggregation(plan, config, name.strip(), k1))
