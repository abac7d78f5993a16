"""`beamrank convert mono|duo|bert CHECKPOINT`: converts a TensorFlow 1 checkpoint to a Hugging Face folder."""

import shlex
from collections.abc import Sequence
from typing import Annotated

import typer

from contrib.tensorflow2019.archive import unpacked
from contrib.tensorflow2019.folder import convert, convert_pretrained
from contrib.tensorflow2019.source import find_source
from pipelines.console.progress import ConsoleProgress
from pipelines.console.terminal import write_line

Checkpoint = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="The prefix of its files (output/model.ckpt-100000), their folder for the last step, a zip or a tar.gz.",
    ),
]
Output = Annotated[str, typer.Option(help="The folder to write; must not exist, or be empty.")]
Config = Annotated[str | None, typer.Option(help="bert_config.json; by default beside the checkpoint.")]
Vocabulary = Annotated[str | None, typer.Option(help="vocab.txt; by default beside the checkpoint.")]


def convert_mono(checkpoint: Checkpoint, output: Output, config: Config = None, vocab: Vocabulary = None) -> None:
    """Convert a TensorFlow 1 checkpoint of dl4marco-bert to a Hugging Face folder. Needs no TensorFlow."""
    _convert_ranker("mono", checkpoint, output, config, vocab)


def convert_duo(checkpoint: Checkpoint, output: Output, config: Config = None, vocab: Vocabulary = None) -> None:
    """Convert a TensorFlow 1 checkpoint of duobert to a Hugging Face folder. Needs no TensorFlow."""
    _convert_ranker("duo", checkpoint, output, config, vocab)


def convert_bert(
    checkpoint: Checkpoint,
    output: Output,
    config: Config = None,
    vocab: Vocabulary = None,
    drop_next_sentence: Annotated[
        bool, typer.Option("--drop-next-sentence", help="Leave out cls/seq_relationship, the head of next sentences.")
    ] = False,
) -> None:
    """Convert a pre-trained TensorFlow 1 checkpoint of BERT, a start of trainings, to a Hugging Face folder."""
    options = ["--drop-next-sentence"] * drop_next_sentence
    command = _command("bert", checkpoint, output, config, vocab, options)
    with unpacked(checkpoint) as place:
        source = find_source(place, config, vocab)
        converted = convert_pretrained(source, output, command, ConsoleProgress(), not drop_next_sentence)
    write_line(converted.folder, converted.digest)


def _convert_ranker(kind: str, checkpoint: str, output: str, config: str | None, vocab: str | None) -> None:
    command = _command(kind, checkpoint, output, config, vocab)
    with unpacked(checkpoint) as place:
        converted = convert(kind, find_source(place, config, vocab), output, command, ConsoleProgress())
    write_line(converted.folder, converted.digest)


def _command(
    kind: str, checkpoint: str, output: str, config: str | None, vocab: str | None, options: Sequence[str] = ()
) -> str:
    given = {"--config": config, "--vocab": vocab, "--output": output}
    words = [word for flag, value in given.items() if value is not None for word in (flag, value)]
    return shlex.join(["beamrank", "convert", kind, checkpoint, *words, *options])
