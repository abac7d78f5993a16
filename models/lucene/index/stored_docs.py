"""The docs that an index was built from: their ids and the hashes of their texts, by which an update finds changes."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beamrank.formats.corpora import DocBatch
from beamrank.storage.documents import hashes64

DOCS_NAME = "beamrank.docs.parquet"
_SCHEMA = pa.schema([("doc_id", pa.string()), ("text_hash", pa.uint64())])


class StoredDocs:
    """The docs of a corpus, as they are read. Any number of docs takes about 30 bytes each."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._hashes: list[npt.NDArray[np.uint64]] = []

    def add(self, batch: DocBatch) -> None:
        """Takes docs."""
        ids, texts = pa.array(batch.doc_ids, pa.string()), pa.array(hashes64(batch.texts))
        self._batches.append(pa.RecordBatch.from_arrays([ids, texts], schema=_SCHEMA))
        self._hashes.append(hashes64(batch.doc_ids))

    @property
    def id_hashes(self) -> npt.NDArray[np.uint64]:
        """The hashes of the ids. uint64[n]."""
        return np.concatenate([*self._hashes, np.empty(0, np.uint64)])

    def write(self, folder: Path) -> None:
        """Writes the file into an index folder."""
        pq.write_table(
            pa.Table.from_batches(self._batches, _SCHEMA),
            folder / DOCS_NAME,
            compression="zstd",
            write_page_checksum=True,
        )


class EarlierDocs:
    """The docs of an index that exists."""

    def __init__(self, folder: Path) -> None:
        """Reads the file of an index folder.

        Raises:
            OSError, pa.ArrowInvalid: it is missing or damaged.
        """
        docs = pq.read_table(folder / DOCS_NAME, schema=_SCHEMA, page_checksum_verification=True).combine_chunks()
        self._ids: Any = docs["doc_id"]
        hashes = hashes64(self._ids.to_pylist())
        self._order = np.argsort(hashes, kind="stable")
        self._sorted = hashes[self._order]
        self._text_hashes = docs["text_hash"].to_numpy()
        self._kept = np.zeros(len(hashes), bool)

    def __len__(self) -> int:
        return len(self._ids)

    def changed(self, batch: DocBatch) -> npt.NDArray[np.bool_]:
        """Which docs are new or have another text. bool[n]."""
        if not len(self):
            return np.ones(len(batch.doc_ids), bool)
        found = np.searchsorted(self._sorted, hashes64(batch.doc_ids))
        rows = self._order[np.minimum(found, len(self) - 1)]
        same_id = pc.equal(self._ids.take(rows), pa.array(batch.doc_ids, pa.string())).to_numpy()
        same: npt.NDArray[np.bool_] = same_id & (self._text_hashes[rows] == hashes64(batch.texts))
        self._kept[rows[same]] = True
        return ~same

    def superseded(self) -> list[str]:
        """The ids of docs that the corpus lacks now, or has with another text; all batches were seen."""
        return list(self._ids.filter(pa.array(~self._kept)).to_pylist())
