"""`beamrank convert msmarco SOURCE...`: MS MARCO's files and runs to the original code's examples, and back."""

import os
from pathlib import Path
from typing import Annotated

import typer

from beamrank.errors import ConfigError, PreflightError
from beamrank.formats.qrels import read_qrels
from beamrank.ranking.input_layout import InputLimits, Truncation
from beamrank.storage import files as storage
from contrib.tensorflow2019.examples.schemas import SCHEMAS
from contrib.tensorflow2019.examples.writer import WRITERS
from pipelines.commands.arguments import one_of
from pipelines.console.progress import ConsoleProgress
from pipelines.console.terminal import write_line

_FAKE = ("00000000", "FAKE DOCUMENT")
_DUO_DOCS = 30
_CHECKPOINT = "embedded:mono"
_SCHEMA = "mono"
_LIMITS = InputLimits("original", 64, 512)


def convert_msmarco(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="top1000 files, triples, outputs of `beamrank run` whose tokenize stage is finished, or TFRecord and "
            "Parquet files of examples.",
        ),
    ],
    output: Annotated[str, typer.Option(help="The folder to write; must not exist, or be empty.")],
    to: Annotated[str, one_of("--to", WRITERS, "The format to write.")] = "tfrecord",
    schema: Annotated[str, one_of("--schema", SCHEMAS, "What an example holds.")] = _SCHEMA,
    qrels: Annotated[str | None, typer.Option(help="The labels; without them all are 0.")] = None,
    docs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="So many docs of each query, as the code of 2019 expects: more are cut, and mono's are filled with "
            f"fake docs. By default all; for duo {_DUO_DOCS}.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="Whose BERT tokenizer reads texts; by default embedded:mono. If given, ids of examples must be in its "
            "vocabulary.",
        ),
    ] = None,
    truncation: Annotated[
        Truncation, typer.Option(help="How texts are cut: docs/reference/model-inputs.md.")
    ] = _LIMITS.truncation,
    max_query_length: Annotated[
        int, typer.Option(min=4, help="Tokens of a query, with special ones.")
    ] = _LIMITS.max_query_length,
    max_length: Annotated[
        int, typer.Option(min=16, help="Tokens of an example, with special ones.")
    ] = _LIMITS.max_length,
    max_bad_rows: Annotated[int, typer.Option(min=0, help="More rows that cannot be used are an error.")] = 100,
    processes: Annotated[int | None, typer.Option(min=1, help="By default one for each processor core.")] = None,
) -> None:
    """Convert MS MARCO's files, or a run, to the TFRecord files of dl4marco-bert and duobert, and back."""
    if storage.is_remote(output):
        raise ConfigError(f"examples are written on this machine: give a local --output, and copy it to {output}")
    target = Path(storage.absolute(output))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise PreflightError(f"{target} exists and is not an empty folder: give another --output, or remove it")
    for source in sources:
        if not storage.exists(source):
            raise PreflightError(f"{source} does not exist")
    limits = InputLimits(truncation, max_query_length, max_length)
    _refuse_unused(
        sources,
        {
            "--schema": schema != _SCHEMA,
            "--docs": docs is not None,
            "--truncation": truncation != _LIMITS.truncation,
            "--max-query-length": max_query_length != _LIMITS.max_query_length,
            "--max-length": max_length != _LIMITS.max_length,
        },
    )
    _convert(sources, target, to, (schema, limits, docs), checkpoint, qrels, max_bad_rows, processes)


def _refuse_unused(sources: list[str], given: dict[str, bool]) -> None:
    """Raises ConfigError for flags about how examples are made where all sources hold examples."""
    from contrib.tensorflow2019.examples.reader import kind_of

    unused = [flag for flag, each in given.items() if each]
    if unused and all(not storage.is_folder(source) and kind_of(source) for source in sources):
        raise ConfigError(
            f"{', '.join(unused)}: examples are converted as they are, whatever their schema and lengths: leave this "
            "out, or make them again from their texts"
        )


def _convert(
    sources: list[str],
    target: Path,
    to: str,
    made: tuple[str, InputLimits, int | None],
    checkpoint: str | None,
    qrels: str | None,
    max_bad_rows: int,
    processes: int | None,
) -> None:
    from contrib.tensorflow2019.examples.convert import convert_examples
    from contrib.tensorflow2019.examples.layout import ExampleSettings
    from contrib.tensorflow2019.examples.sources import Conversion
    from models.checkpoints.checkpoint import fetch_tokenizer
    from models.tokenizers.bert import BertTokenizer

    schema, limits, docs = made
    read_by = checkpoint or _CHECKPOINT
    tokenizer = fetch_tokenizer(read_by)
    if not isinstance(tokenizer, BertTokenizer):
        raise PreflightError(
            f"{checkpoint or _CHECKPOINT} has another tokenizer than BERT's, and these examples are inputs of BERT"
        )
    fake = (_FAKE[0], tokenizer.encode([_FAKE[1]], 512).ids[0].as_py())
    if schema == "duo":
        docs = docs or _DUO_DOCS
    settings = ExampleSettings(schema, limits, tokenizer.special, docs, fake)
    relevance = read_qrels(qrels).relevance if qrels else {}
    vocab_size = tokenizer.vocab_size if checkpoint else None
    processes = processes or len(os.sched_getaffinity(0))
    conversion = Conversion(settings, read_by, relevance, processes, target, vocab_size=vocab_size)
    for path in convert_examples(sources, target, to, conversion, max_bad_rows, ConsoleProgress()):
        write_line(path)
