"""The pieces that a corpus is read in, and what reading one gives."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from beamrank.formats.corpora.row_checks import RowError
from beamrank.formats.ids import IdError
from beamrank.records import BadRow

Row = TypeVar("Row")
Fields = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class CorpusUnit:
    """A piece of a corpus that is read alone.

    Attributes:
        index: its place in the corpus, from 0.
        url: the file.
        format: one of the formats of `CorpusConfig`.
        fields: the fields that make a doc's text; None for the format's own.
        start: the first byte (TSV, JSONL, BEIR), or the row group (Parquet).
        end: the byte or row group after the last; 0, like `start`, for a whole file that is compressed or CBOR.
            A line belongs to the unit in which it begins.
    """

    index: int
    url: str
    format: str
    fields: Fields
    start: int
    end: int


@dataclass(slots=True)
class DocBatch:
    """Docs of a unit, in order.

    Attributes:
        unit: the index of the unit.
        doc_ids: their ids.
        texts: their texts; an empty passage is a doc with the text "".
        positions: where they stand (see `place`).
        bad: rows that could not be used, from among these docs.
    """

    unit: int
    doc_ids: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)


@dataclass(frozen=True)
class CorpusFormat:
    """How one format is found, checked, cut and read.

    Attributes:
        files: the files that the path of a corpus names.
        check: raises PreflightError where a file cannot be of the format, or has not the fields.
        ranges: `start` and `end` of a file's units, for a size in bytes.
        read: the docs of a unit, in batches of any size.
    """

    files: Callable[[str], list[str]]
    check: Callable[[str, Fields], None]
    ranges: Callable[[str, int], list[tuple[int, int]]]
    read: Callable[[CorpusUnit], Iterator[DocBatch]]


def place(unit: CorpusUnit, position: int) -> str:
    """Where a doc stands, for messages.

    `position` is the byte at which a line begins, the row of a Parquet file, the paragraph of a CBOR file or the line
    of a compressed one; all count from 0.
    """
    if unit.format == "parquet":
        return f"{unit.url} at row {position} (from 0)"
    if unit.format == "car":
        return f"{unit.url} at paragraph {position} (from 0)"
    return f"{unit.url} at byte {position}" if unit.end else f"{unit.url}:{position + 1}"


def parse_rows(
    unit: CorpusUnit, positions: Iterable[int], rows: Iterable[Row], parse: Callable[[Row], tuple[str, str]]
) -> DocBatch:
    """Turns rows into docs; a row for which `parse` raises RowError or IdError becomes a bad row."""
    batch = DocBatch(unit.index)
    add_id, add_text, add_position = batch.doc_ids.append, batch.texts.append, batch.positions.append
    for position, row in zip(positions, rows, strict=True):
        try:
            doc_id, text = parse(row)
        except (RowError, IdError) as error:
            batch.bad.append(BadRow(place(unit, position), f"the row {error}"))
            continue
        add_id(doc_id)
        add_text(text)
        add_position(position)
    return batch


def split_batch(batch: DocBatch, batch_docs: int) -> Iterator[DocBatch]:
    """Cuts a batch into batches of at most `batch_docs` docs; its bad rows go with the first."""
    bad = batch.bad
    for start in range(0, max(len(batch.doc_ids), 1), batch_docs):
        cut = slice(start, start + batch_docs)
        yield DocBatch(batch.unit, batch.doc_ids[cut], batch.texts[cut], batch.positions[cut], bad)
        bad = []
