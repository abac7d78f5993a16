"""`beamrank convert mono|duo CHECKPOINT`: converts a TensorFlow 1 checkpoint to a Hugging Face folder."""

import shlex
from typing import Annotated, Literal

import typer

from models.conversion.folder import convert
from models.conversion.source import find_source
from pipelines.console.progress import ConsoleProgress
from pipelines.console.terminal import write_line

Checkpoint = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="The prefix of its files (output/model.ckpt-100000), or their folder for the last step.",
    ),
]
Output = Annotated[str, typer.Option(help="The folder to write; must not exist, or be empty.")]
Config = Annotated[str | None, typer.Option(help="bert_config.json; by default beside the checkpoint.")]
Vocabulary = Annotated[str | None, typer.Option(help="vocab.txt; by default beside the checkpoint.")]


def convert_mono(checkpoint: Checkpoint, output: Output, config: Config = None, vocab: Vocabulary = None) -> None:
    """Convert a TensorFlow 1 checkpoint of dl4marco-bert to a Hugging Face folder. Needs no TensorFlow."""
    _convert("mono", checkpoint, output, config, vocab)


def convert_duo(checkpoint: Checkpoint, output: Output, config: Config = None, vocab: Vocabulary = None) -> None:
    """Convert a TensorFlow 1 checkpoint of duobert to a Hugging Face folder. Needs no TensorFlow."""
    _convert("duo", checkpoint, output, config, vocab)


def _convert(kind: Literal["mono", "duo"], checkpoint: str, output: str, config: str | None, vocab: str | None) -> None:
    given = {"--config": config, "--vocab": vocab, "--output": output}
    options = [word for flag, value in given.items() if value is not None for word in (flag, value)]
    command = shlex.join(["beamrank", "convert", kind, checkpoint, *options])
    converted = convert(kind, find_source(checkpoint, config, vocab), output, command, ConsoleProgress())
    write_line(converted.folder, converted.digest)
