"""Arguments that several commands take."""

from typing import Annotated

import typer

ConfigPath = Annotated[
    str, typer.Argument(metavar="CONFIG", help="A YAML configuration (docs/configuration.md, docs/training.md).")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Replace a key of the configuration: --set dtype=float32."),
]
Output = Annotated[str | None, typer.Option(help="The output folder, instead of the configuration's `output`.")]
