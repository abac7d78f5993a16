"""`beamrank convert mono|duo CHECKPOINT`: a TensorFlow checkpoint of 2019 as a Hugging Face folder."""

import shlex
from typing import Annotated, Literal

import typer

from models.conversion.folder import convert
from models.conversion.source import find_source
from pipelines.console.progress import ConsoleProgress
from pipelines.console.terminal import write_line


def convert_checkpoint(
    kind: Annotated[
        Literal["mono", "duo"], typer.Argument(metavar="mono|duo", help="What the model was trained to be.")
    ],
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT",
            help="What the files' names begin with (output/model.ckpt-100000), or their folder, for its last step.",
        ),
    ],
    output: Annotated[str, typer.Option(help="The folder to write; it is not there yet, or empty.")],
    config: Annotated[str | None, typer.Option(help="bert_config.json, where it is not beside the checkpoint.")] = None,
    vocab: Annotated[str | None, typer.Option(help="vocab.txt, where it is not beside the checkpoint.")] = None,
) -> None:
    """Make a Hugging Face folder of a TensorFlow 1 checkpoint of dl4marco-bert or duobert. Needs no TensorFlow."""
    given = {"--config": config, "--vocab": vocab, "--output": output}
    options = [word for flag, value in given.items() if value is not None for word in (flag, value)]
    command = shlex.join(["beamrank", "convert", kind, checkpoint, *options])
    converted = convert(kind, find_source(checkpoint, config, vocab), output, command, ConsoleProgress())
    write_line(converted.folder, converted.digest)
