"""The units of a corpus, and the batches of docs in them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa

from beamrank.formats.files import Format, InputFile
from beamrank.formats.reader import TableReader
from beamrank.formats.rejects import Rejects, row_place
from beamrank.formats.schemas import DOCS, Hints
from beamrank.storage.local_files import check_regular

Fields = tuple[str, ...] | None


@dataclass(frozen=True)
class CorpusUnit:
    """A part of a corpus that is read on its own. With its format: workers need no registry.

    Attributes:
        index: its position in the corpus, from 0.
        url: the file.
        format: how to read it.
        hints: what the configuration says about it, with the name of the format.
        start: the first byte, row group or other unit of the format.
        end: the end of the range, exclusive; 0, like `start`, for a whole file. A line belongs to
            the unit in which it begins.
        header: whether the first line of the file names the columns; None to recognize one.
    """

    index: int
    url: str
    format: Format
    hints: Hints
    start: int
    end: int
    header: bool | None = None

    def open(self, rejects: Rejects | None = None) -> TableReader:
        """Opens its file; raises PreflightError where it cannot be read, or is no such file."""
        check_regular(self.url)
        hints = self.hints._replace(header=self.header)
        formats = {hints.format: self.format}
        return TableReader(InputFile(self.url), DOCS, hints, rejects, formats)

    def place(self, position: int) -> str:
        """The place of a doc, for messages."""
        return row_place(self.url, position, self.open().noun(self.end))


@dataclass(slots=True)
class DocBatch:
    """Docs of a unit, in order.

    Attributes:
        unit: the index of the unit.
        doc_ids: their ids.
        texts: their texts; an empty passage is a doc with the text "".
        positions: where they are in the file (see `CorpusUnit.place`).
        query_ids: the query of each doc, if the format lists the candidates of queries.
    """

    unit: int
    doc_ids: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    query_ids: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, unit: int, rows: pa.RecordBatch) -> Self:
        """Docs as `TableReader` gives them."""
        names = ("doc_id", "text", "place", "query_id")
        columns = [rows.column(name).to_pylist() for name in names if name in rows.schema.names]
        return cls(unit, *columns)

    @property
    def keys(self) -> list[str]:
        """The keys by which candidates find the docs: `doc_keys`."""
        return doc_keys(self.query_ids, self.doc_ids) if self.query_ids else self.doc_ids


def doc_keys(query_ids: Sequence[str], doc_ids: Sequence[str]) -> list[str]:
    """The keys of candidates in a format that lists them by query; ids hold no space."""
    return list(map("{} {}".format, query_ids, doc_ids))


def duplicate_doc(key: str, first: str, second: str) -> str:
    """The message about a doc that appears twice, by its doc_id or `doc_keys`."""
    *query_id, doc_id = key.split(" ")
    of_query = f" of query_id {query_id[0]!r}" if query_id else ""
    return (
        f"doc_id {doc_id!r}{of_query} appears twice in the corpus: {first} and {second}. Which "
        "text belongs to it is ambiguous: remove one, or give it a different id"
    )
