"""Rows of inputs that cannot be used: counted against a limit, shown by their reasons, and written
below the output.

A file of `rejects/` has the columns `kind` (of the input: docs, topics, run, qrels, pairs), `file`,
`place` (the file with a line, a byte or a row, as in messages), `row` (its beginning) and `reason`;
its metadata says how many rows there were (`beamrank.rows`), as at most `MOST_ROWS` are written.
"""

import io
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.formats.values import RowError
from beamrank.notes import Note
from beamrank.records import BadRow
from beamrank.storage import files as storage
from beamrank.storage.documents import SHORT, sha256

REJECTS = "rejects"
MOST_ROWS = 10_000
# Of rows that cannot be used, where only others matter.
NO_LIMIT = 1 << 62
SCHEMA = pa.schema([(name, pa.string()) for name in ("kind", "file", "place", "row", "reason")])
_MOST_CHARACTERS = 500
_SHOWN = 5
# Parts in which two messages of the same kind may differ: numbers, and the values that they quote.
_DETAILS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\d+")


def beginning(row: Any) -> str:
    """The beginning of a row: of a line, of the values in its columns, or of JSON."""
    try:
        return _without_surrogates(_text_of(row))
    # A value of CBOR need not be JSON, and can hold itself.
    except (TypeError, ValueError, RecursionError):
        return f"a value that cannot be shown ({type(row).__name__})"


def _without_surrogates(text: str) -> str:
    """A text as UTF-8 can carry it: names of fields and of files need not be UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _text_of(row: Any) -> str:
    if isinstance(row, dict):
        row = json.dumps(row, ensure_ascii=False, default=str)
    elif isinstance(row, list | tuple):
        row = "\t".join(map(_text_of, row[:_MOST_CHARACTERS]))
    elif isinstance(row, bytes):
        row = row[: 4 * _MOST_CHARACTERS].decode("utf-8", "backslashreplace")
    elif row is None:
        row = "null"
    return str(row)[:_MOST_CHARACTERS]


def row_place(file: str, place: int, noun: str) -> str:
    """The place of a row, for messages: of a line its number, or of another noun."""
    return f"{file}:{place}" if noun == "line" else f"{file} at {noun} {place}"


class Rejects:
    """The rows of one kind of input that are left out, of any number of files.

    Attributes:
        kind: `docs`, `topics`, `run`, `qrels` or `pairs`.
        limit: how many may be left out; more are an error.
        count: how many there are.
        rows: the first of them, each with its file.
    """

    def __init__(self, kind: str, limit: int = 0) -> None:
        self.kind, self.limit, self.count = kind, limit, 0
        self.rows: list[tuple[str, BadRow]] = []

    def add(self, file: str, rows: Iterable[BadRow]) -> None:
        """Adds rows of a file."""
        added = [(file, row) for row in rows]
        self.count += len(added)
        self.rows += added[: MOST_ROWS - len(self.rows)]

    @property
    def examples(self) -> tuple[str, ...]:
        """The first rows, each with its place and the reason."""
        return tuple(f"{row.place}: {row.reason}" for _, row in self.rows[:_SHOWN])

    def as_file(self, number: int | None = None) -> tuple[str, bytes]:
        """The name and the content of the file below `rejects/`; `number` is the unit's or
        shard's.
        """
        rows = [(self.kind, file, row.place, row.row, row.reason) for file, row in self.rows]
        metadata = {"beamrank.schema": "rejects/1", "beamrank.rows": str(self.count)}
        sink = io.BytesIO()
        values = [
            dict(zip(SCHEMA.names, map(_without_surrogates, row), strict=True)) for row in rows
        ]
        table = pa.Table.from_pylist(values, SCHEMA.with_metadata(metadata))
        pq.write_table(table, sink, compression="zstd")
        content = sink.getvalue()
        middle = "" if number is None else f"{number:05d}-"
        return f"{self.kind}-{middle}{sha256(content)[:SHORT]}.parquet", content

    def publish(self, output: str, number: int | None = None) -> str:
        """Writes the rows below an output; returns the name of the file, which is empty where there
        are none.
        """
        if not self.count:
            return ""
        name, content = self.as_file(number)
        storage.publish_content(storage.join(output, REJECTS, name), content)
        return name

    def notes(self) -> tuple[Note, ...]:
        """Lines for the user about the rows; none where there are no rows."""
        first = "; ".join([*self.examples, *["..."] * (self.count > _SHOWN)])
        what = f"rows of {self.kind} that cannot be used"
        return (Note(what, f"{self.count:,} ({first})", "they are left out"),) if self.count else ()


@dataclass
class _Kind:
    line: int
    reason: str
    kind: str
    count: int = 0


class Problems:
    """The problems of one file, in any order; similar ones are counted together, and each kind is
    shown once.

    Attributes:
        count: how many there are.
    """

    def __init__(self, file: str, rejects: Rejects) -> None:
        self.count = 0
        self._file, self._rejects = file, rejects
        self._fatal = False
        self._kinds: dict[str, _Kind] = {}

    def add(self, line: int, error: RowError, row: Any, noun: str) -> None:
        """Notes the problem of a row that begins on a line, or another noun."""
        self.count += 1
        self._fatal |= error.fatal
        place, reason = row_place(self._file, line, noun), f"the row {error}"
        self._rejects.add(self._file, [BadRow(place, reason, beginning(row), error.kind)])
        similar = self._kinds.setdefault(_DETAILS.sub("", reason), _Kind(line, reason, error.kind))
        similar.count += 1
        if line < similar.line:
            similar.line, similar.reason = line, reason

    @property
    def first(self) -> _Kind:
        """The earliest problem."""
        return min(self._kinds.values(), key=lambda kind: kind.line)

    @property
    def are_fatal(self) -> bool:
        """Whether they are an error: there are more than may be left out, or one that never may."""
        return self._fatal or (self.count > 0 and self._rejects.count > self._rejects.limit)

    @property
    def allowed(self) -> str:
        """How many may be left out, for the end of a count; empty where none may."""
        limit = self._rejects.limit
        return f", where max_bad_rows allows {limit:,} of {self._rejects.kind}" if limit else ""

    def listed(self, prefix: str = "line ") -> str:
        """The first problem of each kind, a line each; at most five kinds, the earliest first."""
        kinds = sorted(self._kinds.values(), key=lambda kind: kind.line)
        lines = [
            f"{prefix}{kind.line}: {kind.reason}{_times(kind.count)}" for kind in kinds[:_SHOWN]
        ]
        rest = sum(kind.count for kind in kinds[_SHOWN:])
        if rest:
            lines.append(f"and {rest:,} more of other kinds")
        return "".join(f"\n  {line}" for line in lines)


def _times(count: int) -> str:
    return "" if count == 1 else f" (and {count - 1:,} more like it)"
