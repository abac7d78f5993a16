"""Which column of a table, of JSON's fields or of a header line means what: by usual names, or by
`columns`.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import Field

from beamrank.errors import PreflightError
from beamrank.formats.checks import Template, joined
from beamrank.formats.decode.base import BYTE_ORDER_MARK, WrongFormatError
from beamrank.formats.decode.lines import csv_rows
from beamrank.formats.values import RowError
from beamrank.notes import counted
from beamrank.section import Section
from beamrank.storage.streams import errors_as, open_stream

# In lower case with underscores. Those of the second group can name a text too: they count where
# none of the first is.
_NAMES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "query_id": (("query_id", "qid", "topic_id"), ("query", "topic")),
    "doc_id": (
        ("doc_id", "docid", "docno", "document_id", "corpus_id", "passage_id", "pid"),
        ("doc",),
    ),
    "relevance": (("relevance", "rel", "score", "label", "grade", "judgment"), ()),
    "rank": (("rank",), ()),
    "score": (("score",), ()),
}
# What tables and JSON call the id of a doc or a topic, before the names above.
_OWN_IDS: Mapping[str, tuple[str, ...]] = {
    "doc_id": ("doc_id", "_id", "id"),
    "query_id": ("query_id", "_id", "id"),
}
TITLE = "title"
# What the text of a doc or a topic is called; a title without one of these is a text too.
_TEXTS = {
    "doc_id": (
        "text",
        "contents",
        "content",
        "segment",
        "body",
        "passage",
        "passage_text",
        "doc_text",
        TITLE,
    ),
    "query_id": ("text", "query", "question", "query_text", "title"),
}

# The names that a configuration gives, by their meanings.
Columns = Mapping[str, str]
# A file with a column for each tab or comma; its first line may name them, and that of a CSV must.
Table: TypeAlias = Literal["tsv", "csv"]
_Name = Annotated[str, Field(min_length=1)]


class DocColumns(Section):
    """The names of a corpus's columns or fields; `corpus.fields` are those of the text."""

    doc_id: _Name | None = None
    """The column or field of the id, where it has none of the usual names."""


class TopicColumns(Section):
    """The names of the topics' columns or fields."""

    query_id: _Name | None = None
    """The column or field of the id, where it has none of the usual names."""
    text: _Name | None = None
    """That of the text."""
    instruction: _Name | None = None
    """That of the instruction, if not `instruction`, for a stage with `instruction:
    "{instruction}"`.
    """


class _PairColumns(Section):
    query_id: _Name | None = None
    """The column or field of the query_id, where it has none of the usual names."""
    doc_id: _Name | None = None
    """That of the doc_id."""


class QrelsColumns(_PairColumns):
    """The names of the qrels' columns or fields."""

    relevance: _Name | None = None
    """That of the relevance."""


class RunColumns(_PairColumns):
    """The names of a run's columns or fields."""

    rank: _Name | None = None
    """That of the rank."""
    score: _Name | None = None
    """That of the score."""


def column_names(columns: Section | None) -> dict[str, str]:
    return {} if columns is None else columns.model_dump(exclude_none=True)


def check_header(header: bool | None, named: Mapping[str, object]) -> None:
    """Raises ValueError where names of columns are given for files without a header."""
    keys = " and ".join(f"`{key}`" for key, value in named.items() if value is not None)
    if header is False and keys:
        raise ValueError(
            f"{keys} cannot name columns where `header` is false: without a header line the first "
            f"column is the id and the second the text. Remove {keys}, or `header`"
        )


def find_id(names: Sequence[str], meaning: str, columns: Columns) -> int | None:
    """The position of the `doc_id` of docs or the `query_id` of topics; raises RowError as
    `find_columns`.
    """
    own = None if meaning in columns else _find(names, _OWN_IDS[meaning])
    return find_columns(names, [meaning], columns).get(meaning) if own is None else own


def find_columns(names: Sequence[str], meanings: Sequence[str], columns: Columns) -> dict[str, int]:
    """The positions of the columns that have some meanings, as far as there are such columns.

    Raises:
        RowError: a name of `columns` is missing, or several columns could have a meaning.
    """
    for name in columns.values():
        if name not in names:
            raise RowError(
                f"has no column `{name}`, which `columns` names; it has: {', '.join(names)}"
            )
    found = {meaning: names.index(name) for meaning, name in columns.items() if meaning in meanings}
    plain = [_plain(name) for name in names]
    for meaning in meanings:
        if meaning in found:
            continue
        for group in _NAMES[meaning]:
            places = [
                place
                for place, name in enumerate(plain)
                if name in group and place not in found.values()
            ]
            if len(places) > 1:
                several = " and ".join(f"`{names[place]}`" for place in places)
                raise RowError(
                    f"has the columns {several}, and each could be the {meaning}: rename or "
                    f"remove one, or choose with `columns: {{{meaning}: {names[places[0]]}}}`"
                )
            if places:
                found[meaning] = places[0]
                break
    return {meaning: found[meaning] for meaning in meanings if meaning in found}


def _find(names: Sequence[str], usual: Sequence[str]) -> int | None:
    plain = [_plain(name) for name in names]
    return next((plain.index(name) for name in usual if name in plain), None)


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


class Names(NamedTuple):
    """What a configuration tells about the columns of a TSV or CSV.

    Attributes:
        meaning: of the id: `doc_id` or `query_id`.
        columns: the names of the id, and of a topic's text.
        fields: the columns that make a doc's text.
        header: whether the first line is a header; None to recognize one.
        template: what is around these columns.
    """

    meaning: str
    columns: Columns
    fields: Sequence[str] | None = None
    header: bool | None = None
    template: Template | None = None


class Header(NamedTuple):
    """Where the id and the parts of the text are, how many columns a row has, and what says so."""

    identifier: int
    texts: tuple[int, ...]
    width: int
    expected: str = "the header names"
    template: Template | None = None

    def parse(self, row: Sequence[str]) -> tuple[str, str]:
        """The id and the text of a row; raises RowError if it has a different number of columns."""
        if len(row) != self.width:
            if not any(row):
                raise RowError("is empty")
            raise RowError(f"has {counted(len(row), 'column')} where {self.expected} {self.width}")
        return row[self.identifier], joined([row[at] for at in self.texts], self.template)


# A file without a header: the id and the text.
PLAIN = Header(0, (1,), 2, "an id and a text are expected, exactly")


def find_header(url: str, table: Table, line: Sequence[str], names: Names) -> Header | None:
    """The columns that a first line names; None if it is data.

    Raises:
        PreflightError: the configuration asks for a header, or for names in it, that the line does
            not have.
        WrongFormatError: a CSV has none.
    """
    if names.header is False:
        return None
    try:
        found = find_texts(line, names)
    except RowError as error:
        if names.header or {*names.columns.values(), *(names.fields or ())} & set(line):
            raise PreflightError(f"{url}: the header line {error}") from error
        found = None
    if (
        found is None
        and names.header
        and not names.columns
        and not names.fields
        and len(line) == PLAIN.width
    ):
        return PLAIN
    missing = (
        f"{url} has no header line that names the {names.meaning} and the text; it has: "
        f"{', '.join(line)[:200]}. "
    )
    if found is None and (names.header or names.columns or names.fields):
        texts = "`fields`" if names.template is None else "`template`"
        keys = "`columns`" if names.fields is None else f"`columns`, {texts}"
        raise PreflightError(f"{missing}Add a header line, or remove {keys} and `header`")
    if found is None and table == "csv":
        raise WrongFormatError(
            f"{missing}Add one, name the columns in `columns` (and `fields`), or set `header: "
            "false` where the first column is the id and the second the text"
        )
    return found


def names_columns(line: Sequence[str]) -> bool:
    """Whether a line names an id and a text."""
    try:
        return any(find_texts(line, Names(meaning, {})) for meaning in _TEXTS)
    except RowError:
        return False


def find_texts(line: Sequence[str], names: Names) -> Header | None:
    """The columns of the id and the text among the names of a table's columns; raises RowError as
    `find_columns`.
    """
    missing = [name for name in names.fields or () if name not in line]
    if missing:
        raise RowError(
            f"has no column `{missing[0]}`, which `fields` names; it has: {', '.join(line)}"
        )
    if "text" in names.columns:
        text = line.index(names.columns["text"]) if names.columns["text"] in line else None
    else:
        text = _find(line, _TEXTS[names.meaning])
    rest = ["" if at == text else name for at, name in enumerate(line)]
    at = find_id(
        rest,
        names.meaning,
        {key: name for key, name in names.columns.items() if key == names.meaning},
    )
    if names.fields:
        texts = tuple(line.index(name) for name in names.fields)
    elif text is None:
        return None
    else:
        title = _find(line, (TITLE,)) if names.meaning == "doc_id" else None
        texts = (text,) if title in (None, text) else (title, text)
    return None if at is None else Header(at, texts, len(line), template=names.template)


def read_header(url: str, table: Table, names: Names) -> Header | None:
    """`find_header` of the first line of a file that is not empty."""
    line = first_line(url, table)
    return find_header(url, table, line, names) if line else None


def header_notes(key: str, files: Sequence[str], names: Names) -> list[str]:
    """What was taken for a header, and what could be one, in TSV files whose configuration does not
    say it.
    """
    found: list[str] = []
    for url in files if names.header is None else ():
        line = first_line(url, "tsv")
        if line and find_header(url, "tsv", line, names) is not None:
            found.append(
                f"the first line of {url} is a header ({', '.join(line)[:80]}), and no row"
            )
        elif _may_be_header(line, names):
            found.append(
                f"the first line of {url} is read as a row, and may be a header "
                f"({', '.join(line)[:80]}): set `{key}.header` to true or false"
            )
    return found


def _may_be_header(line: Sequence[str], names: Names) -> bool:
    """Whether a first line that is read as data names one of two columns as a header would."""
    if len(line) != PLAIN.width or any(map(str.isdecimal, line)):
        return False
    try:
        return (find_id(line, names.meaning, {}), _find(line, _TEXTS[names.meaning])) != (
            None,
            None,
        )
    except RowError:
        return True


def first_line(url: str, table: Table) -> list[str]:
    """The columns of a file's first line that is not empty; none if there is no such line."""
    with errors_as(PreflightError, url), open_stream(url) as file:
        lines = itertools.chain([file.readline().removeprefix(BYTE_ORDER_MARK)], file)
        rows = (row for _, row in csv_rows(lines, url)) if table == "csv" else map(split_tsv, lines)
        return next(filter(None, rows), [])


def split_tsv(line: bytes) -> list[str]:
    text = line.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    return text.split("\t") if text else []
