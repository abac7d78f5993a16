"""`beamrank convert mono|duo CHECKPOINT`: converts a TensorFlow 1 checkpoint to a Hugging Face folder."""

import shlex
from typing import Annotated, Literal

import typer

from models.conversion.folder import convert
from models.conversion.source import find_source
from pipelines.console.progress import ConsoleProgress
from pipelines.console.terminal import write_line


def convert_checkpoint(
    kind: Annotated[
        Literal["mono", "duo"], typer.Argument(metavar="mono|duo", help="The model that the checkpoint was trained as.")
    ],
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT",
            help="The prefix of its files (output/model.ckpt-100000), or their folder for the last step.",
        ),
    ],
    output: Annotated[str, typer.Option(help="The folder to write; must not exist, or be empty.")],
    config: Annotated[str | None, typer.Option(help="bert_config.json; by default beside the checkpoint.")] = None,
    vocab: Annotated[str | None, typer.Option(help="vocab.txt; by default beside the checkpoint.")] = None,
) -> None:
    """Convert a TensorFlow 1 checkpoint of dl4marco-bert or duobert to a Hugging Face folder. Needs no TensorFlow."""
    given = {"--config": config, "--vocab": vocab, "--output": output}
    options = [word for flag, value in given.items() if value is not None for word in (flag, value)]
    command = shlex.join(["beamrank", "convert", kind, checkpoint, *options])
    converted = convert(kind, find_source(checkpoint, config, vocab), output, command, ConsoleProgress())
    write_line(converted.folder, converted.digest)
