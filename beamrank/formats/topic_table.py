"""Topics as an Arrow table, for jobs of millions of them: a `Topic` is made when it is read."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.formats.id_places import IdMapping, IdPlaces
from beamrank.notes import Note
from beamrank.records import BM25_TEXT, INSTRUCTION, Topic

Places: TypeAlias = npt.NDArray[np.int64]
_COLUMNS = pa.schema({"query_id": pa.string(), "text": pa.string()})
_TEXTS = ("text", INSTRUCTION, BM25_TEXT)
_ROWS_AT_ONCE = 1 << 16


class TopicTable(Sequence[Topic]):
    """Topics in the columns `query_id` and `text`, and `instruction` and `bm25_text` if they are
    read; others are kept beside them.
    """

    def __init__(self, table: Any, notes: Sequence[Note] = ()) -> None:
        """Takes what a user should know about the topics as they were read."""
        self.table, self.notes = table, notes

    @classmethod
    def of(cls, topics: Iterable[tuple[str, str]]) -> "TopicTable":
        """Topics of any kind; a table stays as it is."""
        if isinstance(topics, cls):
            return topics
        rows = iter(topics)
        batches = []
        while batch := list(islice(rows, _ROWS_AT_ONCE)):
            ids, texts = zip(*batch, strict=True)
            batches.append(pa.record_batch([ids, texts], schema=_COLUMNS))
        return cls(pa.Table.from_batches(batches, _COLUMNS))

    @property
    def query_ids(self) -> Any:
        """string[n]."""
        return self.table["query_id"]

    def of_queries(self, query_ids: Collection[str]) -> "TopicTable":
        """The topics with these ids, in their order."""
        return TopicTable(
            self.table.filter(pc.is_in(self.query_ids, pa.array(list(query_ids), pa.string())))
        )

    @property
    def texts(self) -> Mapping[str, str]:
        """The text of each topic by query_id, read from the table."""
        return IdMapping(
            IdPlaces(self.query_ids), lambda place: str(self.table["text"][place].as_py())
        )

    @property
    def instructions(self) -> list[str]:
        """The instruction of each topic; none where they are not read."""
        return self._column(INSTRUCTION)

    @property
    def bm25_texts(self) -> list[str]:
        """The text of each topic that BM25 gets; none where it is `text`."""
        return self._column(BM25_TEXT)

    def _column(self, name: str) -> list[str]:
        return self.table[name].to_pylist() if name in self.table.column_names else []

    @property
    def for_bm25(self) -> "TopicTable":
        """The topics with the texts that BM25 gets."""
        text = BM25_TEXT if BM25_TEXT in self.table.column_names else "text"
        table = self.table.select(["query_id", text])
        return TopicTable(table.rename_columns(_COLUMNS.names))

    def those_of(self, query_ids: Collection[str]) -> set[str]:
        """Which of some query_ids topics have."""
        return set(self.of_queries(query_ids).query_ids.to_pylist())

    def in_both(self, other: "TopicTable") -> tuple[Places, Places]:
        """The rows of the topics that another table has too, and of the topics with the same texts:
        int64 each.
        """
        theirs = (
            pc.index_in(self.query_ids, other.query_ids.combine_chunks()).fill_null(-1).to_numpy()
        )
        both = np.flatnonzero(theirs >= 0)
        names = [
            [name for name in _TEXTS if name in topics.table.column_names]
            for topics in (self, other)
        ]
        if names[0] != names[1]:
            return both, both[:0]
        mine, others = pa.array(both), pa.array(theirs[both])
        same = [
            pc.equal(self.table[name].take(mine), other.table[name].take(others)).to_numpy()
            for name in names[0]
        ]
        return both, both[np.all(same, axis=0)]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Topic]:
        for batch in self.table.select(_COLUMNS.names).to_batches(_ROWS_AT_ONCE):
            yield from map(Topic, *(column.to_pylist() for column in batch.columns))

    @overload
    def __getitem__(self, place: int) -> Topic: ...
    @overload
    def __getitem__(self, place: slice) -> "TopicTable": ...
    def __getitem__(self, place: int | slice) -> "Topic | TopicTable":
        if isinstance(place, slice):
            return TopicTable(self.table.take(pa.array(range(len(self))[place], pa.int64())))
        return Topic(self.query_ids[place].as_py(), self.table["text"][place].as_py())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicTable) and bool(self.table.equals(other.table))

    __hash__ = None  # type: ignore[assignment]
