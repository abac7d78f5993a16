"""Topics of any format, as a table. Anything wrong with one is an error."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Annotated, Literal, Self, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import model_validator

from beamrank.errors import PreflightError
from beamrank.formats.checks import Template, split_template
from beamrank.formats.columns import TemplateText, TopicColumns, check_header, column_names
from beamrank.formats.decode.base import WrongFormatError
from beamrank.formats.files import (
    AUTO,
    Format,
    FormatGuesser,
    InputFile,
    folder_files,
    input_files,
    paths_of,
)
from beamrank.formats.id_places import repeated_rows
from beamrank.formats.reader import TableReader, again, check_all, join_texts, without
from beamrank.formats.rejects import Rejects
from beamrank.formats.schemas import TOPICS, Hints, in_braces, topics_with
from beamrank.formats.topic_table import TopicTable
from beamrank.formats.values import RowError, check_query
from beamrank.notes import Note
from beamrank.plugins import Registry
from beamrank.records import BM25_TEXT, INSTRUCTION
from beamrank.section import OneOf, Paths, Section
from beamrank.storage import files as storage
from beamrank.storage.local_files import check_regular

FORMATS: Registry[Format] = Registry(
    "topics format",
    "beamrank.topics",
    {
        "beir": "beamrank.formats.named_formats:BEIR_TOPICS",
        "csv": "beamrank.formats.named_formats:CSV",
        "jsonl": "beamrank.formats.named_formats:JSONL",
        "labelled": "beamrank.formats.named_formats:LABELLED",
        "parquet": "beamrank.formats.named_formats:PARQUET",
        "trec": "beamrank.formats.texts.trec:TOPICS",
        "tsv": "beamrank.formats.named_formats:TSV",
    },
)
_GUESSER = FormatGuesser("topics", FORMATS)


class TopicsConfig(Section):
    """The topics."""

    short = "path"
    path: Paths
    """A file, a folder, a glob, or a list of them."""
    format: Annotated[str, OneOf(FORMATS, (AUTO,))] = AUTO
    """The format of the topics; `auto` guesses it from the first file."""
    decoding: Literal["full", "original"] = "full"
    """How TREC CAR's ids are decoded: `full` decodes every percent escape, `original` only `%20`,
    as the code of 2019 does.
    """
    ids: Literal["file", "order"] = "file"
    """`order` numbers the topics from 1 in the order of the file, as the qrels of Cranfield do."""
    template: TemplateText | None = None
    """The text of a topic, with columns, fields of JSON or TREC's tags in braces, such as
    `"{title} {desc}"`; by default the format's own text.
    """
    columns: TopicColumns | None = None
    """The names of the id or the text, where they are not the usual ones."""
    header: bool | None = None
    """Whether the first line of each TSV or CSV file names the columns; by default this is
    recognized and printed.
    """
    quotes: bool = False
    """Whether a TSV has quotes, as a CSV has."""
    only_judged: bool = False
    """Whether only the topics of the qrels are kept (BEIR has all splits' topics in one file)."""

    @model_validator(mode="after")
    def _check_header(self) -> Self:
        check_header(self.header, self.columns, {"template": self.template})
        if self.template is not None and "text" in column_names(self.columns):
            raise ValueError(
                "`template` and `columns.text` both say what makes a text: give one or the other"
            )
        return self


_Config = TypeVar("_Config", bound=TopicsConfig)
# The fields and the template of each text that is made of fields, by its column.
_Rules: TypeAlias = Mapping[str, tuple[tuple[str, ...], Template]]


def read_topics(
    config: TopicsConfig,
    rejects: Rejects | None = None,
    instructions: bool = False,
    bm25_template: str | None = None,
) -> TopicTable:
    """Reads all topics, in the order of the files; ids are kept unchanged, unless `ids` numbers
    them.

    A file may be compressed with gzip, bzip2, xz or zstd. Empty lines between topics are skipped.
    With `instructions` the topics have these too: a second text, in another column; so it is with
    the text that `bm25_template` makes of their fields. Fields that are empty are counted in the
    notes.

    Raises:
        PreflightError: a file cannot be read or holds no topics, two topics have one query_id, or
            more cannot be used than `rejects` takes, by default none: no text, a query_id that
            breaks the rule of formats/checks.py or is there again, invalid UTF-8, wrong columns. It
            counts the problems and shows the first of each kind.
    """
    config = resolved(config)
    rules, empty = _rules(config, bm25_template), Counter[str]()
    try:
        files = _open(config, rules, rejects, instructions)
        tables = [_with_texts(file, rules, empty) for file in files]
        table = _without_repeats(files, tables, FORMATS[config.format].repeats)
        check_all(files, len(table))
    except WrongFormatError as error:
        hint = _GUESSER.hint(error.file or topics_files(config)[0].url, config.format)
        raise PreflightError(f"{error}{hint}", **error.of_input) from error
    if config.ids == "order":
        table = table.set_column(
            0, "query_id", pa.array(np.arange(1, len(table) + 1)).cast(pa.string())
        )
    counts = ", ".join(f"{count:,} without `{name}`" for name, count in empty.items() if count)
    notes = [Note("topics without a field", counts, "it is empty in their text")] if counts else []
    return TopicTable(table.drop_columns(["place"]), notes)


def _rules(config: TopicsConfig, bm25_template: str | None = None) -> _Rules:
    templates = {"text": config.template, BM25_TEXT: bm25_template}
    return {
        name: split_template(template)
        for name, template in templates.items()
        if template is not None
    }


def _fields(rules: _Rules) -> Collection[str]:
    return dict.fromkeys(name for fields, _ in rules.values() for name in fields)


def _with_texts(file: TableReader, rules: _Rules, empty: Counter[str]) -> pa.Table:
    """The topics of a file with the texts that are made of fields, in place of these; counts the
    empty ones of each field.
    """
    table, rows = file.read_all(), list[int]()
    names = [name for name in table.column_names if name[0] != "{"]
    for name in _fields(rules):
        empty[name] += pc.sum(pc.equal(table[in_braces(name)], "")).as_py() or 0
    for column, (fields, template) in rules.items():
        texts = join_texts([table[in_braces(name)] for name in fields], template)
        table = table.append_column(column, texts)
    table = table.select([*names, *rules])
    for row, texts in enumerate(zip(*(table[name].to_pylist() for name in rules), strict=True)):
        try:
            for text in texts:
                check_query(text)
        except RowError as error:
            rows.append(row)
            file.bad(table["place"][row].as_py(), error, texts)
    return without(table, rows) if rows else table


def _open(
    config: TopicsConfig,
    rules: _Rules,
    rejects: Rejects | None = None,
    instructions: bool = False,
) -> list[TableReader]:
    """The files of topics, whose format is named."""
    schema, columns = TOPICS, column_names(config.columns)
    fields = _fields(rules)
    if not instructions:
        columns.pop(INSTRUCTION, None)
    if instructions or rules:
        schema = topics_with(fields, text="text" not in rules, instructions=instructions)
        columns |= {in_braces(name): name for name in fields}
    hints = Hints(
        columns,
        header=config.header,
        quotes=config.quotes,
        format=config.format,
        original=config.decoding == "original",
    )
    rejects = rejects or Rejects("topics")
    files = topics_files(config)
    for file in files:
        check_regular(file.url)
    return [TableReader(file, schema, hints, rejects, FORMATS) for file in files]


def _without_repeats(files: list[TableReader], tables: list[pa.Table], repeats: bool) -> pa.Table:
    """The topics of all files; topics whose id is there before cannot be used, unless they are
    equal and may repeat.
    """
    if repeats:
        tables = [
            without(table, [row for row, _ in repeated_rows(table["query_id"], table["text"])])
            for table in tables
        ]
    rows = []
    for row, file, now, before, place in again(files, tables, ["query_id"]):
        rows.append(row)
        differs = now["text"] != before["text"]
        if differs or not repeats:
            reason = f"has the query_id {now['query_id']!r}, which {place} has too: remove one"
            error = RowError(reason, "query-twice", fatal=differs)
            file.bad(now["place"], error, [now["query_id"], now["text"]])
    return without(pa.concat_tables(tables), rows)


def topics_files(config: TopicsConfig) -> list[InputFile]:
    """The files that hold the topics."""
    config = resolved(config)
    base = FORMATS[config.format].file_in_folder
    files: list[InputFile] = []
    for path in paths_of(config.path):
        if base and storage.is_folder(path):
            files += map(InputFile, folder_files(path, base))
        else:
            files += input_files(path, "file of topics")
    return files


def resolved(config: _Config) -> _Config:
    """Topics with the name of their format, where that is `auto`: the first file decides.

    Raises:
        PreflightError: there is no file, its format cannot be guessed, or has no named columns or
            header and the topics name some.
    """
    return _GUESSER.resolved(config, paths_of(config.path)[0], _urls)


def _urls(path: str) -> list[str]:
    return [file.url for file in input_files(path, "file of topics")]


def notes(config: TopicsConfig) -> list[str]:
    """Notes for the user on the headers that were recognized; a CSV always has one."""
    files = _open(config, _rules(config)) if FORMATS[config.format].holds == "tsv" else []
    return [note for file in files for note in file.header_notes("topics")]
