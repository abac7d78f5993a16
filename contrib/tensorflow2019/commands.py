"""`beamrank convert mono|duo|bert CHECKPOINT`: converts a TensorFlow 1 checkpoint to a Hugging Face folder."""

import shlex
from typing import Annotated

import typer

from contrib.tensorflow2019.folder import convert
from contrib.tensorflow2019.source import find_source, unpacked
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
    _convert("mono", checkpoint, output, config, vocab)


def convert_duo(checkpoint: Checkpoint, output: Output, config: Config = None, vocab: Vocabulary = None) -> None:
    """Convert a TensorFlow 1 checkpoint of duobert to a Hugging Face folder. Needs no TensorFlow."""
    _convert("duo", checkpoint, output, config, vocab)


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
    _convert("bert", checkpoint, output, config, vocab, drop_next_sentence)


def _convert(
    kind: str, checkpoint: str, output: str, config: str | None, vocab: str | None, drop_next_sentence: bool = False
) -> None:
    given = {"--config": config, "--vocab": vocab, "--output": output}
    words = [word for flag, value in given.items() if value is not None for word in (flag, value)]
    options = ["--drop-next-sentence"] * drop_next_sentence
    command = shlex.join(["beamrank", "convert", kind, checkpoint, *words, *options])
    with unpacked(checkpoint) as place:
        source = find_source(place, config, vocab)
        write_line(*convert(kind, source, output, command, ConsoleProgress(), not drop_next_sentence))
