"""`beamrank status DIR`: how far a run is."""

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from beamrank.plan import read_plan
from beamrank.status import StageStatus, read_status


def status(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A run's output.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show how many shards of each stage are done. Reads what is committed, whatever runner the job runs on."""
    stages = read_status(read_plan(folder))
    if as_json:
        print(json.dumps({"stages": [asdict(stage) for stage in stages]}))
        return
    table = Table("stage", "shards", "done", "bad rows", "remaining")
    for stage in stages:
        table.add_row(stage.stage, str(stage.shards), str(stage.done), str(stage.bad_rows), _remaining(stage))
    Console(file=sys.stdout).print(table)


def _remaining(stage: StageStatus) -> str:
    if stage.finished:
        return "finished"
    return "not known yet" if stage.eta_seconds is None else f"{stage.eta_seconds:g} s, one shard at a time"
