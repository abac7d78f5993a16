"""Docs and topics in tables of any kind, by the one reader: text with tabs or commas, JSON, Parquet
and Arrow.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from beamrank.errors import DataError, PreflightError
from beamrank.formats import files
from beamrank.formats.decode.base import WrongFormatError
from beamrank.formats.decode.lines import LinesDecoder, byte_ranges
from beamrank.formats.decode.tables import ENDINGS, TableDecoder
from beamrank.formats.files import InputFile, open_records
from beamrank.formats.reader import TableReader
from beamrank.formats.rejects import beginning
from beamrank.formats.schemas import DOCS, TOPICS, TOPICS_WITH_INSTRUCTIONS, Hints, bind, labelled
from beamrank.formats.texts.units import CorpusUnit, DocBatch, TextFormat, check_batches, whole_file
from beamrank.formats.values import RowError
from beamrank.records import BadRow
from beamrank.storage.local_files import check_regular


class _Rows(TableReader):
    """The rows of a unit, whose bad ones are given with its batches."""

    def __init__(self, unit: CorpusUnit) -> None:
        check_regular(unit.url)
        self._unit = unit
        self._bad: list[tuple[int, BadRow]] = []
        schema = TOPICS_WITH_INSTRUCTIONS if unit.instruction else TOPICS
        schema = schema if unit.of_topics else DOCS
        super().__init__(
            InputFile(unit.url),
            labelled(schema) if unit.format.holds == "labelled" else schema,
            Hints(
                unit.columns,
                unit.fields,
                unit.template,
                unit.header,
                unit.quotes,
                unit.format.holds,
            ),
        )

    def bad(self, place: int, error: RowError, row: Any = "") -> None:
        where, what = self._where(place), "topic" if self._unit.of_topics else "row"
        reason = f"the {what} {error}"
        if error.fatal:
            raise DataError(f"{where}: {reason}", kind=error.kind, file=self.url, place=place)
        self._bad.append((place, BadRow(where, reason, beginning(row), error.kind)))

    def _where(self, place: int) -> str:
        noun = self.noun(self._unit.end)
        return f"{self.url}:{place}" if noun == "line" else f"{self.url} at {noun} {place}"

    @property
    def _first_place(self) -> int:
        """What is 0 in a position: bytes are counted from 0, lines and rows from 1."""
        return 0 if self.noun(self._unit.end) == "byte" else 1

    def place(self, position: int) -> str:
        return self._where(position + self._first_place)

    def docs(self) -> Iterator[DocBatch]:
        for batch in self.batches(self._unit.start, self._unit.end):
            yield self._docs(batch)
        if self._bad:
            yield self._docs(None)

    def _docs(self, rows: pa.RecordBatch | None) -> DocBatch:
        bad, self._bad, first = self._bad, [], self._first_place
        docs = DocBatch(self._unit.index, bad=[row for _, row in bad])
        docs.bad_positions = [int(place) - first for place, _ in bad]
        if rows is not None:
            docs.doc_ids = rows.column(0).to_pylist()
            docs.texts = rows.column(1).to_pylist()
            docs.positions = (np.asarray(rows.column("place")) - first).tolist()
            docs.instructions = rows.column(2).to_pylist() if self._unit.instruction else []
        return docs


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    try:
        yield from _Rows(unit).docs()
    except WrongFormatError:
        raise
    except PreflightError as error:
        raise DataError(str(error), **error.of_input) from error


def _read_once(unit: CorpusUnit) -> Iterator[DocBatch]:
    """The docs of a file, in which one may come again with the same text; one with another text is
    there twice.
    """
    seen: dict[str, bytes] = {}
    for batch in _read(unit):
        kept = []
        for number, (doc_id, text) in enumerate(zip(batch.doc_ids, batch.texts, strict=True)):
            content = hashlib.blake2b(text.encode(), digest_size=16).digest()
            before = seen.setdefault(doc_id, content)
            if before is content or before != content:
                kept.append(number)
        for name in ("doc_ids", "texts", "positions"):
            values = getattr(batch, name)
            setattr(batch, name, [values[number] for number in kept])
        yield batch


def _ranges(url: str, unit_bytes: int) -> list[tuple[int, int]]:
    """The units of JSON or of a table."""
    rows = open_records(InputFile(url))
    return rows.ranges(unit_bytes) if rows.width else []


def _place(unit: CorpusUnit, position: int) -> str:
    return _Rows(unit).place(position)


def _check(unit: CorpusUnit) -> None:
    rows = _Rows(unit)
    if not isinstance(rows.decoder, TableDecoder):  # a table's columns have types
        check_batches(unit, rows.docs())


def has_header(unit: CorpusUnit) -> bool:
    """Whether the first line of a file of text names the columns."""
    if unit.format.holds in ("csv", "tsv", "labelled"):
        with suppress(PreflightError):  # It is reported where the docs are read.
            return bool(_Rows(unit).decoder.names)
    return False


def header_notes(key: str, units: Iterable[CorpusUnit]) -> list[str]:
    """What was taken for a header, and what could be one, in files whose configuration does not say
    it; and what their columns are.
    """
    notes = []
    for unit in units:
        rows = _Rows(unit)
        line = ", ".join(map(str, rows.decoder.first))[:80]
        notes += [f"{unit.url}: {note}" for note in rows.notes]
        if not isinstance(rows.decoder, LinesDecoder) or unit.header is not None:
            continue
        if rows.decoder.names:
            notes.append(f"the first line of {unit.url} is a header ({line}), and no row")
        elif _may_be_header(rows):
            notes.append(
                f"the first line of {unit.url} is read as a row, and may be a header ({line}): set "
                f"`{key}.header` to true or false"
            )
    return notes


def _may_be_header(rows: TableReader) -> bool:
    """Whether a first line that is read as a row names one of two columns."""
    names = [str(name) for name in rows.decoder.first]
    return not any(map(str.isdecimal, names)) and bool(bind(rows.schema, names))


# The second rule: usual names are groups, and a title is joined before any text but `contents`.
TSV = TextFormat(
    "tsv",
    (".tsv", ".txt"),
    byte_ranges,
    _read,
    _place,
    _check,
    look=files.TSV,
    rules=2,
    holds="tsv",
    has_columns=True,
)
CSV = replace(
    TSV,
    name="csv",
    endings=(".csv",),
    ranges=whole_file,
    look=files.CSV,
    holds="csv",
    noun="row",
)
JSONL = replace(
    TSV,
    name="jsonl",
    endings=(".jsonl", ".ndjson", ".json"),
    ranges=_ranges,
    look=files.JSONL_WITHOUT_BEIR_ID,
    holds="json",
)
BEIR = replace(
    JSONL,
    name="beir",
    endings=(".jsonl", *ENDINGS),
    look=files.BEIR,
    file_in_folder="corpus.jsonl",
)
PARQUET = replace(JSONL, name="parquet", endings=ENDINGS, look=files.PARQUET, noun="row")
JSONL_TOPICS = replace(JSONL, look=files.JSONL)
BEIR_TOPICS = replace(BEIR, file_in_folder="queries.jsonl")
# A doc may come again anywhere in a file, so that this is one unit.
LABELLED = replace(
    JSONL,
    name="labelled",
    endings=(*CSV.endings, *TSV.endings, *JSONL.endings, *ENDINGS),
    ranges=whole_file,
    read=_read_once,
    look=None,
    rules=1,
    holds="labelled",
)
LABELLED_TOPICS = replace(LABELLED, read=_read, repeats=True)
