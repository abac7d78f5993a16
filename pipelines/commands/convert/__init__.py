"""`beamrank convert WHAT`: other formats to ours, and back. A new conversion is a file here and its line in `group`."""

import typer

from pipelines.commands.convert.checkpoint import convert_bert, convert_duo, convert_mono
from pipelines.commands.convert.msmarco import convert_msmarco
from pipelines.commands.convert.nfl6 import convert_nfl6
from pipelines.commands.convert.webap import convert_webap
from pipelines.commands.convert.wikipassageqa import convert_wikipassageqa

group = typer.Typer(no_args_is_help=True, help="Convert checkpoints, data and collections from or to other formats.")
group.command("mono")(convert_mono)
group.command("duo")(convert_duo)
group.command("bert")(convert_bert)
group.command("msmarco")(convert_msmarco)
group.command("nfl6")(convert_nfl6)
group.command("webap")(convert_webap)
group.command("wikipassageqa")(convert_wikipassageqa)
