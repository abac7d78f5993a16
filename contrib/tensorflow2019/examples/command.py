"""`beamrank convert msmarco SOURCE...`: MS MARCO's files and runs to the original code's examples,
and back.
"""

import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from beamrank.errors import ConfigError, DataError, PreflightError
from beamrank.formats.qrels import read_qrels
from beamrank.formats.rejects import Rejects
from beamrank.machine import usable_cores
from beamrank.notes import Progress, counted
from beamrank.ranking.input_layout import InputLimits, Truncation
from beamrank.storage import files as storage
from beamrank.storage.local_files import new_folder
from contrib.tensorflow2019.examples.files import SCHEMAS, WRITERS, ids_url, kind_of
from contrib.tensorflow2019.examples.layout import ExampleSettings
from contrib.tensorflow2019.examples.sources import (
    MAX_TOKENS,
    BucketPart,
    Conversion,
    Map,
    Part,
    ShardPart,
    parts_of,
    several,
    write_part,
)
from contrib.tensorflow2019.examples.tfrecord import join
from contrib.tensorflow2019.source import NewFolder, empty_place
from models.checkpoints.checkpoint import fetch_tokenizer
from models.tokenizers.bert import BertTokenizer
from pipelines.commands.arguments import (
    one_of,
)
from pipelines.console.progress import ConsoleProgress
from pipelines.console.terminal import write_line

HELP_PANEL = "Data and models"

_SETS = re.compile(r"(?<![a-z])(train|dev|eval|test)(?![a-z])")
_FAKE = ("00000000", "FAKE DOCUMENT")
_DUO_DOCS = 30
_CHECKPOINT = "embedded:mono"
_SCHEMA = "mono"
_LIMITS = InputLimits("original", 64, 512)


def convert_msmarco(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="top1000 files, triples, outputs of `beamrank run` whose tokenize stage is "
            "finished, or TFRecord and Parquet files of examples.",
        ),
    ],
    output: NewFolder,
    to: Annotated[str, one_of("--to", WRITERS, "The format to write.")] = "tfrecord",
    schema: Annotated[str, one_of("--schema", SCHEMAS, "What an example holds.")] = _SCHEMA,
    qrels: Annotated[str | None, typer.Option(help="The labels; without them all are 0.")] = None,
    docs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="So many docs of each query, as the code of 2019 expects: more are cut, and "
            f"mono's are filled with fake docs. By default all; for duo {_DUO_DOCS}.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="The checkpoint with the BERT tokenizer; by default embedded:mono. If given, ids "
            "of examples must be in its vocabulary."
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
    max_bad_rows: Annotated[
        int, typer.Option(min=0, help="More rows that cannot be used are an error.")
    ] = 100,
    processes: Annotated[
        int | None, typer.Option(min=1, help="By default one for each processor core.")
    ] = None,
) -> None:
    """Convert MS MARCO's files, or a run, to the TFRecord files of dl4marco-bert and duobert, and
    back.
    """
    target = empty_place(output)
    for source in sources:
        if not storage.exists(source):
            raise PreflightError(f"{source} does not exist")
    given = {
        "--schema": schema != _SCHEMA,
        "--docs": docs is not None,
        "--truncation": truncation != _LIMITS.truncation,
        "--max-query-length": max_query_length != _LIMITS.max_query_length,
        "--max-length": max_length != _LIMITS.max_length,
    }
    unused = [flag for flag, is_given in given.items() if is_given]
    if unused and all(not storage.is_folder(source) and kind_of(source) for source in sources):
        raise ConfigError(
            f"{', '.join(unused)}: examples are converted as they are, whatever their schema and "
            "lengths: leave this out, or make them again from their texts"
        )
    read_by = checkpoint or _CHECKPOINT
    tokenizer = fetch_tokenizer(read_by)
    if not isinstance(tokenizer, BertTokenizer):
        raise PreflightError(
            f"{read_by} has another tokenizer than BERT's, and these examples are inputs of BERT"
        )
    fake = (_FAKE[0], tokenizer.encode([_FAKE[1]], MAX_TOKENS).ids[0].as_py())
    docs = docs or (_DUO_DOCS if schema == "duo" else None)
    limits = InputLimits(truncation, max_query_length, max_length)
    conversion = Conversion(
        ExampleSettings(schema, limits, tokenizer.special, docs, fake),
        read_by,
        read_qrels(qrels).relevance if qrels else {},
        processes or usable_cores(),
        target,
        vocab_size=tokenizer.vocab_size if checkpoint else None,
    )
    for path in convert_examples(sources, target, to, conversion, max_bad_rows, ConsoleProgress()):
        write_line(path)


def convert_examples(
    sources: Sequence[str],
    target: Path,
    to: str,
    conversion: Conversion,
    max_bad_rows: int,
    progress: Progress,
) -> list[Path]:
    """Writes the examples of some sources to a new folder, which appears whole or not at all, and
    returns the files.

    Each source becomes a set of files, named as in the original code: `dataset_dev.tf` and
    `query_doc_ids_dev.txt`.

    Raises:
        ConfigError: there are qrels, and all sources have labels of their own.
        PreflightError: a source is missing or invalid, or two would have the same files.
        DataError: too many rows are unusable, a file is damaged, or no candidate of a source is
            relevant by the qrels.
    """
    names = [_set_name(source) for source in sources]
    if len({*names}) < len(names):
        raise PreflightError(
            f"the sources {', '.join(sources)} would be written to the same files, "
            f"dataset_{names[0]}{WRITERS[to][0]}: convert them one by one"
        )
    bad = Rejects("examples", max_bad_rows)
    labelled: bool | None = (
        None  # whether the qrels gave any relevant example; None if no source uses them
    )
    with several(conversion.processes) as in_order, new_folder(target) as folder:
        for name, source in zip(names, sources, strict=True):
            with tempfile.TemporaryDirectory(dir=folder) as work:
                conversion = replace(conversion, work=Path(work))
                parts = list(parts_of(source, conversion, bad, in_order))
                if not parts:
                    raise PreflightError(f"{source} is empty: there is nothing to convert")
                count, relevant = _write(
                    parts, folder / f"dataset_{name}", to, Path(work), bad, in_order
                )
            progress.note(f"{source}: {counted(count, 'example')}, {relevant:,} of them relevant")
            by_qrels = isinstance(parts[0], BucketPart | ShardPart)
            if by_qrels and conversion.relevance:
                labelled = bool(labelled) or relevant > 0
                if not relevant:
                    progress.warn(
                        f"no candidate of {source} is relevant by the qrels: each of its labels "
                        "is 0"
                    )
            if bad.count > bad.limit:
                raise DataError(
                    f"{_described(bad)}. More than max_bad_rows {max_bad_rows}: nothing was written"
                )
        if labelled is False:
            raise DataError(
                "no candidate is relevant by the qrels, so each label would be 0: give the qrels "
                "of these queries and docs, or none"
            )
        if conversion.relevance and labelled is None:
            raise ConfigError(
                "--qrels: triples and files of examples have labels of their own: leave it out"
            )
        written = sorted(path.name for path in folder.iterdir())
    if bad.count:
        progress.warn(f"{_described(bad)}; they are left out")
    return [target / name for name in written]


def _write(
    parts: Sequence[Part], base: Path, to: str, work: Path, bad: Rejects, in_order: Map
) -> tuple[int, int]:
    """Writes the parts of a source: Parquet to a file each, the others to one file.

    Returns:
        How many examples there are, and how many of them have label 1.
    """
    ending = WRITERS[to][0]
    numbered = [(work / f"dataset_{number:05}{ending}", part) for number, part in enumerate(parts)]
    total = total_relevant = 0
    written = in_order(partial(write_part, to), numbered)
    for number, ((path, _), (count, relevant, more)) in enumerate(
        zip(numbered, written, strict=True)
    ):
        join(bad, more)
        total, total_relevant = total + count, total_relevant + relevant
        if not count:
            continue
        if to == "parquet":
            suffix = f"-{number:05}-of-{len(parts):05}" if len(parts) > 1 else ""
            path.rename(base.with_name(base.name + suffix + ending))
            continue
        beside = Path(ids_url(str(path)))
        target = base.with_name(base.name + ending)
        _append(path, target, header=to == "tsv")
        if beside.exists():
            _append(beside, Path(ids_url(str(target))))
    return total, total_relevant


def _append(path: Path, target: Path, header: bool = False) -> None:
    """Appends a file to another one and removes it; the first line of a later file with a `header`
    is left out.
    """
    with path.open("rb") as part, target.open("ab") as file:
        if header and file.tell():
            part.readline()
        shutil.copyfileobj(part, file, 1 << 20)
    path.unlink()


def _set_name(source: str) -> str:
    """The name of a set: the word `train`, `dev`, `eval` or `test` in a source's name, else
    `dev`.
    """
    match = _SETS.search(storage.name(source).lower())
    return match[1] if match else "dev"


def _described(bad: Rejects) -> str:
    return f"rows that could not be used: {bad.count:,} (first: {'; '.join(bad.examples)})"
