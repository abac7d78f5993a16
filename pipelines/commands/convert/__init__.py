"""`beamrank convert WHAT`: other formats to ours, and back. A new conversion is a file here and its line in `group`."""

import typer

from pipelines.commands.convert.checkpoint import convert_duo, convert_mono
from pipelines.commands.convert.msmarco import convert_msmarco

group = typer.Typer(no_args_is_help=True, help="Convert checkpoints, data and collections from or to other formats.")
group.command("mono")(convert_mono)
group.command("duo")(convert_duo)
group.command("msmarco")(convert_msmarco)
