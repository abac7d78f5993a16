"""Rows with a list of docs, as a row for each doc."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from beamrank.formats.decode.base import Bad, Decoder, Rows, Wanted, WrongFormatError
from beamrank.formats.schemas import plain_name
from beamrank.formats.values import RowError, type_name, values_of


class ListDecoder(Decoder):
    """A row for each element of a list, whose relevance is 1; see `Decoder`."""

    names = ("query_id", "doc_id", "rank", "relevance")

    def __init__(self, rows: Decoder, names: tuple[str, str]) -> None:
        """Takes the decoder of the lists, and the names of the id and of the list in it."""
        self._rows = rows
        plain = [plain_name(name) for name in rows.names]
        self._at = [plain.index(name) for name in names if name in plain]
        if rows.width and len(self._at) < len(names):
            raise WrongFormatError(f"has no columns {' and '.join(names)}", kind="column-missing")
        self.noun = rows.noun
        self.width = len(self.names) if rows.width else 0

    def ranges(self, unit_bytes: int) -> list[tuple[int, int]]:
        return self._rows.ranges(unit_bytes)

    def rows(self, start: int, end: int, wanted: Wanted, bad: Bad) -> Iterator[Rows]:
        query, docs = self._at
        for rows in self._rows.rows(start, end, dict.fromkeys(self._at, pa.string()), bad):
            columns: list[list[Any]] = [[], [], [], []]
            places = []
            for query_id, doc_ids, place in zip(
                values_of(rows.columns[query]),
                values_of(rows.columns[docs]),
                rows.places,
                strict=True,
            ):
                if not isinstance(doc_ids, list):
                    reason = f"has {type_name(doc_ids)}, where a list of docs is expected"
                    bad(place, RowError(reason, "list-column"), [query_id, doc_ids])
                    continue
                columns[0] += [query_id] * len(doc_ids)
                columns[1] += doc_ids
                columns[2] += range(1, len(doc_ids) + 1)
                columns[3] += [1] * len(doc_ids)
                places += [place] * len(doc_ids)
            self.noun = self._rows.noun
            yield Rows({at: columns[at] for at in wanted}, places)
