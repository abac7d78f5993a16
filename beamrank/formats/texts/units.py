"""What a corpus format is; units of a corpus, and the batches of docs in them."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from beamrank.formats.checks import RowError, WrongFormatError, check_doc_id
from beamrank.formats.columns import Names, Table
from beamrank.formats.files import Look
from beamrank.formats.rejects import beginning
from beamrank.records import BadRow
from beamrank.storage import files as storage

Row = TypeVar("Row")
Fields = tuple[str, ...] | None
# Rows without a doc after which a file is not read further to check its format.
_CHECKED_ROWS = 1000


@dataclass(frozen=True, slots=True)
class CorpusUnit:
    """A part of a corpus that is read on its own. It carries its format, so a worker needs no registry.

    Attributes:
        index: its position in the corpus, from 0.
        url: the file.
        format: how to read it.
        fields: the fields that make a doc's text; None for the format's own.
        start: the first byte, row group or other unit of the format.
        end: the end of the range, exclusive; 0, like `start`, for a whole file. A line belongs to the unit in which it
            begins.
        doc_id: the column or field of the id, if `corpus.columns` names one.
        header: whether the first line of the file names the columns.
    """

    index: int
    url: str
    format: "CorpusFormat"
    fields: Fields
    start: int
    end: int
    doc_id: str | None = None
    header: bool = False

    @property
    def names(self) -> Names:
        """What the configuration tells about the columns."""
        return Names("doc_id", {} if self.doc_id is None else {"doc_id": self.doc_id}, self.fields, self.header)

    def place(self, position: int) -> str:
        """The place of a doc, for messages."""
        return self.format.place(self, position)


@dataclass(slots=True)
class DocBatch:
    """Docs of a unit, in order.

    Attributes:
        unit: the index of the unit.
        doc_ids: their ids.
        texts: their texts; an empty passage is a doc with the text "".
        positions: where they are in the file (see `CorpusUnit.place`).
        bad: rows among them that cannot be used.
        query_ids: the query of each doc, if the format lists the candidates of queries.
        scores: the score of each candidate, if the format has them; None for one without.
    """

    unit: int
    doc_ids: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    query_ids: list[str] = field(default_factory=list)
    scores: list[float | None] = field(default_factory=list)

    @property
    def keys(self) -> list[str]:
        """The keys by which candidates find the docs: `doc_keys`."""
        return doc_keys(self.query_ids, self.doc_ids) if self.query_ids else self.doc_ids

    def split(self, batch_docs: int) -> Iterator["DocBatch"]:
        """Batches of at most `batch_docs` docs; the bad rows go with the first."""
        bad = self.bad
        for start in range(0, max(len(self.doc_ids), 1), batch_docs):
            cut = slice(start, start + batch_docs)
            columns = (self.doc_ids[cut], self.texts[cut], self.positions[cut], bad)
            yield DocBatch(self.unit, *columns, self.query_ids[cut], self.scores[cut])
            bad = []


def whole_file(url: str, _unit_bytes: int) -> list[tuple[int, int]]:
    """The range of a file that is one unit; none if it is empty."""
    return [(0, 0)] if storage.size_bytes(url) else []


def line_place(unit: CorpusUnit, position: int) -> str:
    """The place of a line: its first byte in a plain file, its number in a compressed one."""
    return f"{unit.url} at byte {position}" if unit.end else f"{unit.url}:{position + 1}"


@dataclass(frozen=True)
class CorpusFormat:
    """A corpus format: how its files are recognized, checked, split, read and located.

    Its functions are module-level ones, because units that refer to them are sent to workers.

    Attributes:
        name: its name in `corpus.format`.
        endings: how its files are named, below a folder.
        ranges: `start` and `end` of a file's units, for a unit size in bytes.
        read: the docs of a unit, in batches of any size; raises WrongFormatError if the file has a different format.
        place: where a doc is, for messages: of a unit, and a position that `read` gave.
        check: checks a file, given as one unit, before it is read: raises WrongFormatError, PreflightError if it lacks
            the fields. By default one of the rows of the first batch must be a doc.
        look: how its files begin; None if `auto` does not find it.
        file_in_folder: the one file that a folder of this format holds.
        not_docs: matches the paths below a folder, in lower case, of other files that the endings do not tell apart.
        id_field: the field of the id in a JSON object, or None if the objects have no such field; with a different
            usual name in its place a file is read too.
        has_fields: whether `corpus.fields` can name the parts of the text.
        has_columns: whether `corpus.columns` can name the id.
        table: the kind of table, if the first line can name the columns.
        candidate_order: a remark on the order of candidates without scores, if a doc is the candidate of one query: the
            same doc_id in a different query's row is a different doc.
    """

    name: str
    endings: tuple[str, ...]
    ranges: Callable[[str, int], list[tuple[int, int]]]
    read: Callable[[CorpusUnit], Iterator[DocBatch]]
    place: Callable[[CorpusUnit, int], str] = line_place
    check: Callable[[CorpusUnit], None] | None = None
    look: Look | None = None
    file_in_folder: str | None = None
    not_docs: re.Pattern[str] | None = None
    id_field: str | None = None
    has_fields: bool = True
    has_columns: bool = False
    table: Table | None = None
    candidate_order: str | None = None

    @property
    def lists_candidates(self) -> bool:
        """Whether each doc is the candidate of one query."""
        return self.candidate_order is not None

    def check_unit(self, unit: CorpusUnit) -> None:
        """Checks the beginning of a file, given as one unit.

        Raises:
            WrongFormatError: it has a different format, or none of its first rows is a doc.
            PreflightError: it lacks the fields.
        """
        if self.check is not None:
            self.check(unit)
            return
        check_batches(unit, self.read(unit))


def check_batches(unit: CorpusUnit, batches: Iterable[DocBatch]) -> None:
    """Raises WrongFormatError where the first batches have rows, but none is a doc."""
    bad: list[BadRow] = []
    for batch in batches:
        if batch.doc_ids:
            return
        bad += batch.bad
        if len(bad) >= _CHECKED_ROWS:
            break
    if bad:
        raise WrongFormatError(
            f"none of the first {len(bad)} rows of {unit.url} can be read as `format: {unit.format.name}`. "
            f"{bad[0].place}: {bad[0].reason}"
        )


def parse_rows(
    unit: CorpusUnit, positions: Iterable[int], rows: Iterable[Row], parse: Callable[[Row], tuple[str, str]]
) -> DocBatch:
    """Turns rows into docs; a row for which `parse` raises RowError, or whose id cannot be used, becomes a bad row."""
    batch = DocBatch(unit.index)
    add_id, add_text, add_position = batch.doc_ids.append, batch.texts.append, batch.positions.append
    for position, row in zip(positions, rows, strict=True):
        try:
            doc_id, text = parse(row)
            check_doc_id(doc_id)
        except RowError as error:
            batch.bad.append(BadRow(unit.place(position), f"the row {error}", beginning(row)))
            continue
        add_id(doc_id)
        add_text(text)
        add_position(position)
    return batch


def doc_keys(query_ids: Sequence[str], doc_ids: Sequence[str]) -> list[str]:
    """The keys of candidates in a format that lists them by query; ids hold no space."""
    return list(map("{} {}".format, query_ids, doc_ids))


def duplicate_doc(key: str, first: str, second: str) -> str:
    """The message about a doc that appears twice, by its doc_id or `doc_keys`."""
    *query_id, doc_id = key.split(" ")
    of_query = f" of query_id {query_id[0]!r}" if query_id else ""
    return (
        f"doc_id {doc_id!r}{of_query} appears twice in the corpus: {first} and {second}. Which text belongs to it is "
        "ambiguous: remove one, or give it a different id"
    )
