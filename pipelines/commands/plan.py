"""`beamrank plan CONFIG`: what a run will do and cost, before anything of it runs."""

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from beamrank.config import load_config
from pipelines.commands.arguments import ConfigPath, Limit, Output, Overrides, with_limit
from pipelines.progress import counted

if TYPE_CHECKING:
    from pipelines.estimate import Estimate


def plan(
    config: ConfigPath,
    overrides: Overrides = None,
    output: Output = None,
    limit: Limit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show shards, inferences, bytes and seconds, from a short measurement on this machine. Writes nothing.

    BM25's seconds are a guess as long as there is no index to search.
    """
    # Beam takes seconds to import, and other commands do without.
    from pipelines.estimate import estimate

    found = estimate(load_config(config, with_limit(overrides, limit), output))
    if as_json:
        print(json.dumps(asdict(found)))
        return
    Console(file=sys.stdout).print(_table(found))


def _table(found: "Estimate") -> Table:
    table = Table(
        "stage",
        "inferences",
        "bytes written",
        "seconds, one worker",
        title=f"{counted(found.topics, 'topic')} in {counted(found.shards, 'shard')}; counts are upper bounds",
        caption=_passes(found.join_passes),
    )
    for stage in found.stages:
        table.add_row(stage.stage, f"{stage.inferences:,}", f"{stage.bytes:,}", f"{stage.seconds:,.1f}")
    total = sum(stage.seconds for stage in found.stages)
    table.add_row("all", f"{sum(stage.inferences for stage in found.stages):,}", "", f"{total:,.1f}")
    return table


def _passes(passes: int) -> str | None:
    """How the join reads the corpus; a run without scoring does not."""
    if passes == 0:
        return None
    read = f"tokenize reads the corpus in {counted(passes, 'pass', 'passes')}"
    return f"{read} with the memory that is free now; in 1 where the runner does not shuffle in this machine's memory"
