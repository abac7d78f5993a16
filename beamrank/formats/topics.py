"""Topics of any format, as a table. Anything wrong with one is an error."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
import pyarrow as pa
from pydantic import model_validator

from beamrank.errors import DataError, PreflightError
from beamrank.formats.columns import TopicColumns, check_header, column_names
from beamrank.formats.decode.base import WrongFormatError
from beamrank.formats.files import AUTO, Choice, find_files, folder_files, input_files, shown_paths
from beamrank.formats.rejects import Problems, Rejects
from beamrank.formats.texts.tabular import header_notes
from beamrank.formats.texts.units import CorpusUnit, DocBatch, TextFormat
from beamrank.notes import counted
from beamrank.plugins import Registry
from beamrank.records import INSTRUCTION
from beamrank.section import OneOf, Paths, Section
from beamrank.storage import files as storage
from beamrank.storage.id_places import repeated_rows
from beamrank.topic_table import TopicTable

_ROWS = pa.schema(
    {
        "query_id": pa.string(),
        "text": pa.string(),
        "line": pa.int64(),
        INSTRUCTION: pa.string(),
    }
)

FORMATS: Registry[TextFormat] = Registry(
    "topics format",
    "beamrank.topics",
    {
        "beir": "beamrank.formats.texts.tabular:BEIR_TOPICS",
        "csv": "beamrank.formats.texts.tabular:CSV",
        "jsonl": "beamrank.formats.texts.tabular:JSONL_TOPICS",
        "labelled": "beamrank.formats.texts.tabular:LABELLED_TOPICS",
        "parquet": "beamrank.formats.texts.tabular:PARQUET",
        "trec": "beamrank.formats.texts.trec:TOPICS",
        "tsv": "beamrank.formats.texts.tabular:TSV",
    },
)
_CHOICE = Choice("topics", FORMATS)


class TopicsConfig(Section):
    """The topics."""

    short = "path"
    path: Paths
    """A file, a folder, a glob, or a list of them."""
    format: Annotated[str, OneOf(FORMATS, (AUTO,))] = AUTO
    """Its format; `auto` guesses it from the first file."""
    decoding: Literal["full", "original"] = "full"
    """Of TREC CAR's ids: `full` decodes every percent escape, `original` only `%20`, as the code of
    2019 does.
    """
    ids: Literal["file", "order"] = "file"
    """`order` numbers the topics from 1 in the order of the file, as the qrels of Cranfield do."""
    columns: TopicColumns | None = None
    """Where the id or the text has a different name than usual."""
    header: bool | None = None
    """Whether the first line of each TSV or CSV file names the columns; default: recognized, and
    said.
    """
    quotes: bool = False
    """Whether a TSV has quotes, as a CSV has."""
    only_judged: bool = False
    """Keep only the topics of the qrels (BEIR has the topics of all splits in one file)."""

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        check_header(self.header, self.columns)
        if (
            self.decoding == "original"
            and self.format != AUTO
            and not FORMATS[self.format].has_original
        ):
            having = ", ".join(name for name, each in FORMATS.items() if each.has_original)
            raise ValueError(
                f"decoding `original` exists for the formats {having}, not for {self.format}"
            )
        return self


_Config = TypeVar("_Config", bound=TopicsConfig)


def read_topics(
    config: TopicsConfig, rejects: Rejects | None = None, instructions: bool = False
) -> TopicTable:
    """Reads all topics, in the order of the files; ids are kept unchanged, unless `ids` numbers
    them.

    A file may be compressed with gzip, bzip2, xz or zstd. Empty lines between topics are skipped.
    With `instructions` the topics have these too: a second text, in another column.

    Raises:
        PreflightError: a file cannot be read or holds no topics, two topics have one query_id, or
            more cannot be used than `rejects` takes, by default none: no text, a query_id that
            breaks the rule of formats/checks.py or is there again, invalid UTF-8, wrong columns. It
            counts the problems and shows the first of each kind.
    """
    config = resolved(config)
    own, rejects = FORMATS[config.format], rejects or Rejects("topics")
    name = (config.columns or TopicColumns()).instruction or INSTRUCTION
    if instructions and not own.holds:
        raise PreflightError(
            f"{shown_paths(config.path)} has no `{name}` of each topic, which a stage with "
            '`instruction: "{instruction}"` reads: '
            f"`format: {config.format}` has none. Write the topics as JSONL, with this field"
        )
    units = [_unit(url, config, name if instructions else "") for url in topics_files(config)]
    files = [_read_file(unit, rejects) for unit in units]
    table = _each_once(files, own.repeats)
    for file in files:
        if file.problems.are_refused:
            raise PreflightError(
                f"{counted(file.problems.count, own.noun)} of {file.url} cannot be read as topics "
                "of `format: "
                f"{config.format}`{file.problems.allowed}{_CHOICE.hint(file.url, config.format)}"
                f"{file.problems.listed(f'{file.url}:')}",
                kind=file.problems.first.kind,
                file=file.url,
                place=file.problems.first.line,
            )
    if not len(table):
        hint = _CHOICE.hint(files[0].url, config.format)
        raise PreflightError(
            f"{shown_paths(config.path)} holds no topics (read as `format: {config.format}`): "
            f"there is nothing to rank{hint}",
            kind="no-rows",
            file=files[0].url,
        )
    if config.ids == "order":
        table = table.set_column(
            0, "query_id", pa.array(np.arange(1, len(table) + 1)).cast(pa.string())
        )
    return TopicTable(table.select(["query_id", "text", *([INSTRUCTION] if instructions else [])]))


@dataclass(frozen=True)
class _File:
    """A file's topics that can be used, a table of _ROWS, and the problems of the others."""

    url: str
    topics: Any
    problems: Problems


def _unit(url: str, config: TopicsConfig, instruction: str = "") -> CorpusUnit:
    """A file of topics."""
    own, columns = FORMATS[config.format], column_names(config.columns)
    columns.pop(INSTRUCTION, None)
    return CorpusUnit(
        *(0, url, own, None, 0, 0),
        named=tuple(columns.items()),
        header=config.header,
        quotes=config.quotes,
        meaning="query_id",
        original=config.decoding == "original",
        instruction=instruction,
    )


def _read_file(unit: CorpusUnit, rejects: Rejects) -> _File:
    own, url, batches = unit.format, unit.url, []
    problems = Problems(url, rejects)
    try:
        for batch in own.read(unit):
            for position, bad in zip(batch.bad_positions, batch.bad, strict=True):
                problems.add(position + 1, bad.reason, bad.row, kind=bad.kind)
            batches.append(_rows(batch, own.repeats))
    except WrongFormatError as error:
        raise PreflightError(f"{error}{_CHOICE.hint(url, own.name)}", **error.of_input) from error
    except DataError as error:
        raise PreflightError(str(error), **error.of_input) from error
    return _File(url, pa.Table.from_batches(batches, _ROWS), problems)


def _rows(batch: DocBatch, repeats: bool) -> Any:
    """The topics of a batch; of equal ones only the first, if a format repeats them."""
    lines = [position + 1 for position in batch.positions]
    instructions: list[Any] = list(batch.instructions) or [None] * len(lines)
    rows = list(zip(batch.doc_ids, batch.texts, lines, instructions, strict=True))
    if repeats:
        first: dict[tuple[str, str], tuple[Any, ...]] = {}
        for row in rows:
            first.setdefault(row[:2], row)
        rows = list(first.values())
    columns = zip(*rows, strict=True) if rows else [()] * len(_ROWS)
    return pa.record_batch(list(columns), schema=_ROWS)


def _each_once(files: Sequence[_File], repeats: bool) -> Any:
    """The topics of all files; those whose id is there before are problems, unless they are equal
    and may repeat.
    """
    table = pa.concat_tables([file.topics for file in files])
    starts = np.cumsum([0, *(len(file.topics) for file in files)])
    again = []
    for row, first in repeated_rows(table["query_id"]):
        again.append(row)
        here, there = np.searchsorted(starts, [row, first], side="right") - 1
        now, before = table.slice(row, 1).to_pylist()[0], table.slice(first, 1).to_pylist()[0]
        if not (repeats and now["text"] == before["text"]):
            where = f"line {before['line']}" if here == there else "an earlier file"
            other = "with a different text" if repeats else "too"
            reason = (
                f"the topic has the query_id {now['query_id']!r}, which {where} has {other}: "
                "remove one"
            )
            problem = now["query_id"], now["text"]
            files[here].problems.add(
                now["line"],
                reason,
                problem,
                always=now["text"] != before["text"],
                kind="query-twice",
            )
    return (
        table.filter(pa.array(np.isin(np.arange(len(table)), again, invert=True)))
        if again
        else table
    )


def topics_files(config: TopicsConfig) -> list[str]:
    """The files that hold the topics."""
    config = resolved(config)
    base = FORMATS[config.format].file_in_folder
    files: list[str] = []
    for path in find_files(config.path):
        files += folder_files(path, base) if base and storage.is_folder(path) else _files_of(path)
    return files


def _files_of(path: str) -> list[str]:
    return [file.url for file in input_files(path, "file of topics")]


def resolved(config: _Config) -> _Config:
    """Topics with the name of their format, where that is `auto`: the first file decides.

    Raises:
        PreflightError: there is no file, its format cannot be guessed, or has no named columns or
            header and the topics name some.
    """
    if config.format == AUTO:
        first = find_files(config.path)[0]
        name = _CHOICE.of_folder(first) if storage.is_folder(first) else None
        if name is None:
            *others, last = _files_of(first)  # a server need not tell the size of one
            name = _CHOICE.guessed(next(filter(storage.size_bytes, others), last))
        config = config.model_copy(update={"format": name})
    _CHOICE.check_keys(config)
    return config


def notes(config: TopicsConfig) -> list[str]:
    """Notes for the user on the headers that were recognized; a CSV always has one."""
    if FORMATS[config.format].holds != "tsv":
        return []
    return header_notes("topics", (_unit(url, config) for url in topics_files(config)))
