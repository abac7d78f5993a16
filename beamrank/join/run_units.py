"""A given run: its files and their digest, the units that are read independently, and the rows of a unit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from beamrank.errors import DataError, PreflightError
from beamrank.formats.candidates import is_twice_encoded, listed_format
from beamrank.formats.checks import check_ids_of_query
from beamrank.formats.columns import Columns
from beamrank.formats.corpora import FORMATS
from beamrank.formats.files import Paths
from beamrank.formats.rejects import Rejects
from beamrank.formats.runs import RunRows
from beamrank.formats.texts.lines import byte_ranges
from beamrank.formats.texts.tables import is_table, open_table
from beamrank.formats.texts.units import CorpusUnit, DocBatch
from beamrank.join.run_files import DigestedRun, digest_run, mapped
from beamrank.join.run_rows import ROWS, run_batches
from beamrank.storage import files as storage
from beamrank.storage.digested import DigestedFile
from beamrank.storage.row_files import read_rows, write_rows
from beamrank.storage.streams import compression, errors_as

UNIT_BYTES = 64 << 20
_SAMPLE_ROWS = 2_000_000
_TIMES_LARGER = 8
# Of rows that cannot be used, where they are counted later.
_ANY = 1 << 62


@dataclass(frozen=True)
class RunLayout:
    """How a file of a run holds its rows; every file of a run has the layout of the first.

    Attributes:
        url: the file.
        listed: the name of the format of a corpus that lists candidates; empty for a run.
        columns: the meaning, the name and the type of each column.
    """

    url: str
    listed: str = ""
    columns: tuple[tuple[str, str, str], ...] = ()

    @classmethod
    def of(cls, url: str, rows: RunRows) -> "RunLayout":
        """The layout of a file whose first row was read."""
        types: dict[str, str] = {}
        if is_table(url):
            with errors_as(PreflightError, url), open_table(url) as table:
                types = {field.name: _type_name(field.type) for field in table.schema}
        named = {meaning: rows.names[at] for meaning, at in rows.places.items()} if rows.names else {}
        found = {meaning: (named.get(meaning, ""), types.get(named.get(meaning, ""), "")) for meaning in rows.places}
        return cls(url, "", tuple(sorted((meaning, *each) for meaning, each in found.items())))

    @property
    def meanings(self) -> set[str]:
        """What the columns mean."""
        return {meaning for meaning, _, _ in self.columns}

    @property
    def has_scores(self) -> bool:
        """Whether docs are ordered by scores."""
        return bool(self.listed) or "score" in self.meanings

    @property
    def has_ranks(self) -> bool:
        """Whether ranks order docs, or those of equal scores."""
        return bool(self.listed) or "rank" in self.meanings

    @property
    def kind(self) -> str:
        """The kind of its rows that cannot be used, by which `max_bad_rows` limits them."""
        return "docs" if self.listed else "run"

    @property
    def order_remark(self) -> str:
        """A remark on the order of candidates without scores that a corpus lists."""
        return f"unranked; {FORMATS[self.listed].candidate_order}" if self.listed else ""

    def check(self, other: "RunLayout") -> None:
        """Raises PreflightError where a file differs from the first."""
        if (self.listed, self.columns) == (other.listed, other.columns) or not other.columns:
            return
        raise PreflightError(
            f"{other.url} has {other} in its first row, and {self.url} {self}: the files of one run have the same "
            "columns, each of one type. Convert one of them, or leave it out"
        )

    def __str__(self) -> str:
        shown = (f"{name or meaning}{type_ and ' '}{type_}" for meaning, name, type_ in self.columns)
        return self.listed or f"the columns {', '.join(shown)}"


def _type_name(type_: Any) -> str:
    """A type as far as files of one run must agree."""
    type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
    if pa.types.is_integer(type_):
        return "integer"
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "number"
    return "string" if pa.types.is_large_string(type_) else str(type_)


class RunUnit(NamedTuple):
    """A part of a run that is read on its own.

    Attributes:
        file: its file, as it was digested.
        start: the first byte, row group or record batch.
        end: the end of the range, exclusive; 0, like `start`, for a whole file.
        size_bytes: about how large it is.
    """

    file: DigestedFile
    start: int
    end: int
    size_bytes: int


_UNITS = pa.schema(
    {
        "url": pa.string(),
        "version": pa.string(),
        "sha256": pa.string(),
        "start": pa.int64(),
        "end": pa.int64(),
        "size_bytes": pa.int64(),
    }
)


def grouped(sizes: Sequence[int], unit_bytes: int) -> list[tuple[int, int]]:
    """Ranges of parts of about the size of a unit; a range has at least one."""
    found, start, size = [], 0, 0
    for number, each in enumerate(sizes):
        size += each
        if size >= unit_bytes or number == len(sizes) - 1:
            found.append((start, number + 1))
            start, size = number + 1, 0
    return found


def write_units(folder: str, prefix: str, units: Sequence[RunUnit]) -> str:
    """Writes units to a file, for the workers of a job: see `write_rows`."""
    rows = ({**vars(unit.file), **dict(zip(unit._fields[1:], unit[1:], strict=True))} for unit in units)
    return write_rows(folder, prefix, _UNITS, rows)


@lru_cache(maxsize=2)
def read_units(url: str) -> list[RunUnit]:
    """The units in a file of `write_units`.

    Raises:
        DataError: the file is missing or was changed.
    """
    return [
        RunUnit(DigestedFile(row["url"], row["version"], row["sha256"]), row["start"], row["end"], row["size_bytes"])
        for row in read_rows(url)
    ]


def unit_ranges(units: Sequence[RunUnit], unit_bytes: int) -> list[tuple[int, int]]:
    """Ranges of units of about the size of one: many small files are read by one worker."""
    return grouped([unit.size_bytes for unit in units], unit_bytes)


class RunBatch(NamedTuple):
    """Rows of a unit, in order, as `ROWS`.

    Attributes:
        rows: the rows.
        twice_encoded: how many texts were encoded as UTF-8 twice.
        twice_example: the place of the first.
    """

    rows: pa.RecordBatch
    twice_encoded: int = 0
    twice_example: str = ""

    @property
    def is_scored(self) -> bool:
        """Whether one of the rows has a score."""
        return bool(self.rows.column("score").null_count < len(self.rows))


class RunReader(NamedTuple):
    """Reads a run: its layout, and the names of its columns that a configuration gives."""

    layout: RunLayout
    columns: Columns

    @classmethod
    def of(cls, run: DigestedRun, columns: Columns) -> "RunReader":
        """A reader by the first file that has rows.

        Raises:
            PreflightError: it cannot be read, or no file has rows.
        """
        urls = [file.url for file in run.files if storage.size_bytes(file.url)]
        for url in urls:
            layout = _layout(url, columns)
            if layout.listed or layout.columns:
                return cls(layout, columns)
        # A file without a row that can be read says why.
        for url in urls or [run.files[0].url]:
            rows = RunRows(url, columns)
            rows.check("run", sum(1 for _ in rows))
        raise AssertionError("a file has rows")

    def units(self, run: DigestedRun, unit_bytes: int) -> list[RunUnit]:
        """The units of a run, in the order of its files."""
        ranges = mapped(partial(self._ranges, unit_bytes=unit_bytes), [file.url for file in run.files])
        return [RunUnit(file, *each) for file, found in zip(run.files, ranges, strict=True) for each in found]

    def _ranges(self, url: str, unit_bytes: int) -> list[tuple[int, int, int]]:
        """The start, end and size of the units of a file."""
        size = storage.size_bytes(url)
        if size <= unit_bytes:
            return [(0, 0, size)] if size else []
        if self.layout.listed:
            found = FORMATS[self.layout.listed].ranges(url, unit_bytes)
        elif is_table(url):
            with errors_as(PreflightError, url), open_table(url) as table:
                found = grouped(table.group_bytes, unit_bytes)
        elif compression(url) is not None or not _is_divisible(url, self.columns):
            found = [(0, 0)]
        else:
            found = byte_ranges(url, unit_bytes)
        return [(start, end, size // len(found)) for start, end in found]

    def sent_bytes(self, units: Sequence[RunUnit]) -> int:
        """About how many bytes of rows travel to the shards, by those of the first unit."""
        rows = size = 0
        for batch in self.read(units[0], Rejects(self.layout.kind, _ANY)):
            rows, size = rows + len(batch.rows), size + batch.rows.nbytes
            if rows > _SAMPLE_ROWS:
                # A large file that is one unit, because it is compressed.
                return _TIMES_LARGER * sum(unit.size_bytes for unit in units)
        return size * sum(unit.size_bytes for unit in units) // units[0].size_bytes

    def read(self, unit: RunUnit, rejects: Rejects) -> Iterator[RunBatch]:
        """The rows of a unit; `rejects` takes those that cannot be used.

        Raises:
            PreflightError: the file cannot be read, has another layout than the first, or too many wrong rows.
        """
        if self.layout.listed:
            self.layout.check(_layout(unit.file.url, self.columns))
            yield from _listed_batches(_corpus_unit(unit, self.layout.listed), rejects)
            return
        rows = RunRows(unit.file.url, self.columns, rejects)
        rows.begin()
        self.layout.check(RunLayout.of(unit.file.url, rows))
        yield from map(RunBatch, run_batches(rows, unit.start, unit.end))

    def where(self, unit: RunUnit, position: int) -> tuple[str, str]:
        """The file of a row, and its place there."""
        url = unit.file.url
        if not self.layout.listed:
            return url, f"{'row' if is_table(url) else 'byte' if unit.end else 'line'} {position}"
        place = _corpus_unit(unit, self.layout.listed).place(position).removeprefix(url)
        return url, f"line {place[1:]}" if place.startswith(":") else place.removeprefix(" at ")


def open_run(paths: Paths, columns: Columns, expected: str | None = None) -> tuple[RunReader, list[RunUnit]]:
    """The reader and the units of a run.

    Args:
        paths: where it is.
        columns: names of its columns.
        expected: the digest that it must have.

    Raises:
        PreflightError: it cannot be read, or has no rows.
        DataError: it changed after its digest was taken.
    """
    run = digest_run(paths)
    if expected is not None:
        run.check(expected)
    reader = RunReader.of(run, columns)
    return reader, reader.units(run, UNIT_BYTES)


def _layout(url: str, columns: Columns) -> RunLayout:
    listed = listed_format(url)
    if listed is not None:
        if columns:
            raise PreflightError(f"{url} looks like {listed}, whose fields have fixed names: leave `columns` out")
        return RunLayout(url, listed)
    rows = RunRows(url, columns)
    rows.begin()
    return RunLayout.of(url, rows)


def _is_divisible(url: str, columns: Columns) -> bool:
    rows = RunRows(url, columns)
    rows.begin()
    return rows.kind != "whole"


def _corpus_unit(unit: RunUnit, listed: str) -> CorpusUnit:
    return CorpusUnit(0, unit.file.url, FORMATS[listed], None, unit.start, unit.end)


def _listed_batches(unit: CorpusUnit, rejects: Rejects) -> Iterator[RunBatch]:
    """The candidates that a corpus lists: the order of the file stands for the ranks."""
    try:
        for batch in unit.format.read(unit):
            rejects.add(unit.url, batch.bad)
            for query_id in dict.fromkeys(batch.query_ids):
                check_ids_of_query("the run", query_id, ())
            texts = zip(batch.positions, batch.texts, strict=True)
            twice = [position for position, text in texts if is_twice_encoded(text)]
            example = unit.place(twice[0]) if twice else ""
            columns = [
                pa.array(batch.query_ids, pa.string()),
                pa.array(batch.doc_ids, pa.string()),
                pa.array(np.zeros(len(batch.doc_ids), np.int64)),
                _scores(unit, batch),
                pa.array(batch.positions, pa.int64()),
            ]
            yield RunBatch(pa.record_batch(columns, schema=ROWS), len(twice), example)
    except DataError as error:
        raise PreflightError(f"{unit.url}: {error}") from error


def _scores(unit: CorpusUnit, batch: DocBatch) -> pa.Array:
    """The scores of candidates, null where there is none; raises DataError for one that cannot be used."""
    scores: list[float | None] = [None] * len(batch.doc_ids)
    with np.errstate(over="ignore"):
        for at, score in enumerate(batch.scores):
            if score is None:
                continue
            if isinstance(score, bool) or not isinstance(score, int | float) or not np.isfinite(np.float32(score)):
                kind = "is not finite in float32" if isinstance(score, float | int) else "cannot be used"
                raise DataError(
                    f"query {batch.query_ids[at]!r} of the run has a score that {kind}, for doc "
                    f"{batch.doc_ids[at]!r}: {score!r} ({unit.place(batch.positions[at])})"
                )
            scores[at] = float(np.float32(score))
    return pa.array(scores, pa.float32())
