"""What a format of docs or topics is; units of a corpus or files of topics, and the batches of
texts in them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from beamrank.formats.checks import Template, decoded
from beamrank.formats.decode.base import WrongFormatError
from beamrank.formats.files import Look
from beamrank.formats.rejects import beginning
from beamrank.formats.values import RowError, check_id, check_query, check_query_id
from beamrank.records import INSTRUCTION, BadRow
from beamrank.storage import files as storage

Row = TypeVar("Row")
Fields = tuple[str, ...] | None
# Rows without a doc after which a file is not read further to check its format.
_CHECKED_ROWS = 1000
_CR = re.compile(rb"\r(?!\n)")
LONE_CR = "holds a carriage return (CR) without a line feed, and lines must end in LF or CR LF"


@dataclass(frozen=True, slots=True)
class CorpusUnit:
    """A part of a corpus, or a file of topics, that is read on its own. With its format: workers
    need no registry.

    Attributes:
        index: its position in the corpus, from 0.
        url: the file.
        format: how to read it.
        fields: the fields that make a doc's text; None for the format's own.
        start: the first byte, row group or other unit of the format.
        end: the end of the range, exclusive; 0, like `start`, for a whole file. A line belongs to
            the unit in which it begins.
        named: the meanings of columns, each with the name, or the number from 1, that a
            configuration gives.
        header: whether the first line of the file names the columns; None to recognize one.
        meaning: of the ids. A file of topics has one unit, in which empty lines do not count, and a
            query_id and a text must be such that they can be ranked.
        original: whether topics are decoded as the code of 2019 did.
        template: what is around the fields.
        instruction: the column or field of the instruction of each topic; empty if none is wanted.
        quotes: whether a TSV has quotes, as a CSV has.
    """

    index: int
    url: str
    format: "TextFormat"
    fields: Fields
    start: int
    end: int
    named: tuple[tuple[str, str | int], ...] = ()
    header: bool | None = None
    meaning: Literal["doc_id", "query_id"] = "doc_id"
    original: bool = False
    template: Template | None = None
    instruction: str = ""
    quotes: bool = False

    @property
    def of_topics(self) -> bool:
        """Whether it is a file of topics."""
        return self.meaning == "query_id"

    @property
    def columns(self) -> dict[str, str | int]:
        """The names of columns that a configuration gives, by their meanings."""
        named = dict(self.named)
        return {**named, INSTRUCTION: self.instruction} if self.instruction else named

    def place(self, position: int) -> str:
        """The place of a doc, for messages."""
        return self.format.place(self, position)


@dataclass(slots=True)
class DocBatch:
    """Docs or topics of a unit, in order.

    Attributes:
        unit: the index of the unit.
        doc_ids: their ids, of topics the query_ids.
        texts: their texts; an empty passage is a doc with the text "".
        positions: where they are in the file (see `CorpusUnit.place`).
        bad: rows among them that cannot be used.
        bad_positions: where these are.
        query_ids: the query of each doc, if the format lists the candidates of queries.
        scores: the score of each candidate, if the format has them; None for one without.
        instructions: that of each topic, if they are wanted.
    """

    unit: int
    doc_ids: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    bad_positions: list[int] = field(default_factory=list)
    query_ids: list[str] = field(default_factory=list)
    scores: list[float | None] = field(default_factory=list)
    instructions: list[str] = field(default_factory=list)

    @property
    def keys(self) -> list[str]:
        """The keys by which candidates find the docs: `doc_keys`."""
        return doc_keys(self.query_ids, self.doc_ids) if self.query_ids else self.doc_ids

    def split(self, batch_docs: int) -> Iterator["DocBatch"]:
        """Batches of at most `batch_docs` docs; the bad rows go with the first."""
        for start in range(0, max(len(self.doc_ids), 1), batch_docs):
            cut = slice(start, start + batch_docs)
            bad = ([], []) if start else (self.bad, self.bad_positions)
            columns = (self.doc_ids[cut], self.texts[cut], self.positions[cut])
            yield DocBatch(self.unit, *columns, *bad, self.query_ids[cut], self.scores[cut])


def whole_file(url: str, _unit_bytes: int) -> list[tuple[int, int]]:
    """The range of a file that is one unit; none if it is empty."""
    return [(0, 0)] if storage.size_bytes(url) else []


def line_place(unit: CorpusUnit, position: int) -> str:
    """The place of a line: its first byte in a plain file, its number in a compressed one."""
    return f"{unit.url} at byte {position}" if unit.end else f"{unit.url}:{position + 1}"


@dataclass(frozen=True)
class TextFormat:
    """A format of docs or topics: how its files are recognized, checked, split, read and located.

    docs/internals/extending.md tells what its fields mean. Its functions are module-level ones,
    because units that refer to them are sent to workers. Beside what is there:

    Attributes:
        look: None if `auto` does not find it.
        not_docs: matches the paths below a folder, in lower case, of other files that the endings
            do not tell apart.
        rules: to raise when the same files are read differently.
        holds: `tsv`, `csv` or `json` where the one reader reads it, `json` with tables too.
        has_original: whether topics have the `decoding: original`.
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
    rules: int = 1
    holds: str = ""
    has_fields: bool = True
    has_columns: bool = False
    noun: str = "line"
    repeats: bool = False
    has_original: bool = False
    candidate_order: str | None = None

    @property
    def lists_candidates(self) -> bool:
        """Whether each doc is the candidate of one query."""
        return self.candidate_order is not None

    def check_unit(self, unit: CorpusUnit) -> None:
        """Checks the beginning of a file, given as one unit; raises as `check`."""
        if self.check is None:
            check_batches(unit, self.read(unit))
        else:
            self.check(unit)


def check_batches(unit: CorpusUnit, batches: Iterable[DocBatch]) -> None:
    """Raises WrongFormatError where none of the first rows is a doc, or there are none."""
    bad: list[BadRow] = []
    for batch in batches:
        if batch.doc_ids:
            return
        bad += batch.bad
        if len(bad) >= _CHECKED_ROWS:
            break
    if not bad:
        raise WrongFormatError(f"{unit.url} holds no rows", kind="no-rows", file=unit.url)
    raise WrongFormatError(
        f"none of the first {len(bad)} rows of {unit.url} can be read as `format: "
        f"{unit.format.name}`. {bad[0].place}: {bad[0].reason}",
        kind=bad[0].kind,
        file=unit.url,
    )


def parse_rows(
    unit: CorpusUnit,
    positions: Iterable[int],
    rows: Iterable[Row],
    parse: Callable[[Row], tuple[str, str]],
) -> DocBatch:
    """Turns rows into docs or topics; one for which `parse` raises RowError, or that cannot be
    used, is a bad row.
    """
    batch, of_topics = DocBatch(unit.index), unit.of_topics
    add_id, add_text, add_position = (
        batch.doc_ids.append,
        batch.texts.append,
        batch.positions.append,
    )
    for position, row in zip(positions, rows, strict=True):
        try:
            doc_id, text = parse(row)
            if of_topics:
                check_query_id(doc_id)
                check_query(text)
            else:
                check_id(doc_id)
        except RowError as error:
            reason = f"the {'topic' if of_topics else 'row'} {error}"
            batch.bad.append(BadRow(unit.place(position), reason, beginning(row), error.kind))
            batch.bad_positions.append(position)
            continue
        add_id(doc_id)
        add_text(text)
        add_position(position)
    return batch


def parse_texts(
    unit: CorpusUnit, rows: Iterable[tuple[int, bytes]], parse: Callable[[str], tuple[str, str]]
) -> DocBatch:
    """`parse_rows` of bytes, each row with the line on which it begins, from 1."""

    def parse_bytes(row: bytes) -> tuple[str, str]:
        if unit.of_topics and _CR.search(row):
            raise RowError(LONE_CR)
        return parse(decoded(row))

    lines, texts = zip(*rows, strict=True) if (rows := list(rows)) else ((), ())
    return parse_rows(unit, [line - 1 for line in lines], texts, parse_bytes)


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
