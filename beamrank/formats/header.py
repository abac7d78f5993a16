"""The first line of a TSV or CSV, which may name the columns."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from beamrank.errors import PreflightError
from beamrank.formats.csv_rows import csv_rows
from beamrank.formats.ids import BYTE_ORDER_MARK
from beamrank.formats.names import Columns, find_id, find_text
from beamrank.formats.notes import counted
from beamrank.formats.row_checks import RowError, joined
from beamrank.storage.streams import errors_as, open_stream

TITLE = "title"
# What the text of a doc or a topic is called; a title alone is one too.
_TEXTS = {
    "doc_id": ("text", "contents", "content", "segment", "body", "passage", "passage_text", "doc_text", TITLE),
    "query_id": ("text", "query", "question", "query_text", "title"),
}


class Names(NamedTuple):
    """What a configuration tells about the columns of a TSV or CSV.

    Attributes:
        meaning: of the id: `doc_id` or `query_id`.
        columns: the names of the id, and of a topic's text.
        fields: the columns that make a doc's text.
        header: whether the first line is a header; None to recognize one.
    """

    meaning: str
    columns: Columns
    fields: Sequence[str] | None = None
    header: bool | None = None


class Header(NamedTuple):
    """Where the id and the parts of the text are, how many columns a row has, and what says so."""

    identifier: int
    texts: tuple[int, ...]
    width: int
    wanted: str = "the header names"

    def parse(self, row: Sequence[str]) -> tuple[str, str]:
        """The id and the text of a row.

        Raises:
            RowError: it has another number of columns.
        """
        if len(row) != self.width:
            if not any(row):
                raise RowError("is empty")
            raise RowError(f"has {counted(len(row), 'column')} where {self.wanted} {self.width}")
        return row[self.identifier], joined([row[at] for at in self.texts])


# A file without a header: the id and the text.
PLAIN = Header(0, (1,), 2, "an id and a text are expected, exactly")


def find_header(url: str, line: Sequence[str], names: Names) -> Header | None:
    """The columns that a first line names; None if it is data.

    Raises:
        PreflightError: the configuration wants a header, or names in it, that the line does not have.
    """
    if names.header is False:
        return None
    try:
        found = _named(line, names)
    except RowError as error:
        given = {*names.columns.values(), *(names.fields or ())}
        if names.header or given & set(line):
            raise PreflightError(f"{url}: the header line {error}") from error
        found = None
    if found is None and names.header:
        found = PLAIN if len(line) == PLAIN.width and not names.columns and not names.fields else None
    if found is None and (names.header or names.columns or names.fields):
        keys = "`columns`" if names.fields is None else "`columns`, `fields`"
        raise PreflightError(
            f"{url} has no header line that names the {names.meaning} and the text: its first line has the columns "
            f"{', '.join(line)[:200]}. Add a header line, or remove {keys} and `header`"
        )
    return found


def _named(line: Sequence[str], names: Names) -> Header | None:
    missing = [name for name in names.fields or () if name not in line]
    if missing:
        raise RowError(f"has no column `{missing[0]}`, which `fields` names; it has: {', '.join(line)}")
    if "text" in names.columns:
        text = line.index(names.columns["text"]) if names.columns["text"] in line else None
    else:
        text = find_text(line, _TEXTS[names.meaning])
    rest = ["" if at == text else name for at, name in enumerate(line)]
    at = find_id(rest, names.meaning, {key: name for key, name in names.columns.items() if key == names.meaning})
    if names.fields:
        texts = tuple(line.index(name) for name in names.fields)
    elif text is None:
        return None
    else:
        title = find_text(line, (TITLE,)) if names.meaning == "doc_id" else None
        texts = (text,) if title in (None, text) else (title, text)
    return None if at is None else Header(at, texts, len(line))


def may_be_header(line: Sequence[str], names: Names) -> bool:
    """Whether a first line that is read as data names one of two columns as a header would."""
    if names.header is not None or len(line) != PLAIN.width or any(map(str.isdecimal, line)):
        return False
    try:
        known = find_id(line, names.meaning, {}), find_text(line, _TEXTS[names.meaning])
    except RowError:
        return True
    return known.count(None) < len(known)


def header_notes(key: str, files: Sequence[str], names: Names) -> list[str]:
    """What was taken for a header, and what could be one, in TSV files whose configuration does not say it."""
    found = []
    for url in files:
        line = first_line(url, is_csv=False)
        if find_header(url, line, names) is not None:
            found.append(f"the first line of {url} is a header ({', '.join(line)[:80]}), and no row")
        elif may_be_header(line, names):
            found.append(
                f"the first line of {url} is read as a row, and may be a header ({', '.join(line)[:80]}): set "
                f"`{key}.header` to true or false"
            )
    return found


def first_line(url: str, is_csv: bool) -> list[str]:
    """The columns of a file's first line that is not empty; none if there is no such line.

    Raises:
        PreflightError: the file cannot be read.
    """
    with errors_as(PreflightError, url), open_stream(url) as file:
        lines = itertools.chain([file.readline().removeprefix(BYTE_ORDER_MARK)], file)
        rows = (row for _, row in csv_rows(lines, url)) if is_csv else map(split_tsv, lines)
        return next(filter(None, rows), [])


def split_tsv(line: bytes) -> list[str]:
    """The columns of a line."""
    text = line.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    return text.split("\t") if text else []
