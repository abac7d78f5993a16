"""Tables of positives with their negatives: their columns, and the file or the folder that holds
one.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import IO, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.commit.owner import launched
from beamrank.commit.receipts import part_bytes
from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.notes import Progress
from beamrank.storage import files as storage
from beamrank.storage.digested import FileState
from beamrank.storage.documents import digest, hash64, hashes64
from contrib.negatives.choose import Rules
from models.training.data.texts import Hashes, is_in
from pipelines.runs.run_file import SUCCESS, PartFolder

FORMATS = ("triplet", "n-tuple", "labeled-list")
"""The names of sentence-transformers."""
_RECORD = "_negatives.json"
# In the metadata of a part.
_RULES = b"beamrank.rules"
_TEXT = pa.string()
# A row has several texts.
_GROUP_ROWS = 4096


def table_schema(rules: Rules) -> pa.Schema:
    """The columns of a format, texts first: sentence-transformers goes by their order."""
    numbers = range(1, rules.num_negatives + 1)
    columns = {"anchor": _TEXT} | {
        "triplet": {"positive": _TEXT, "negative": _TEXT},
        "n-tuple": {"positive": _TEXT} | {f"negative_{number}": _TEXT for number in numbers},
        "labeled-list": {"docs": pa.list_(_TEXT)},
    }[rules.output_format]
    if rules.output_scores:
        columns["scores"] = pa.list_(pa.float64())
    elif rules.output_format == "labeled-list":
        columns["labels"] = pa.list_(pa.int64())
    if rules.ids:
        columns |= {"query_id": _TEXT, "doc_ids": pa.list_(_TEXT)}
    return pa.schema(columns, {"beamrank.schema": "negatives/1"})


def table_rows(
    rules: Rules, query_id: str, query: str, docs: Sequence[tuple[str, str, float]]
) -> list[dict[str, Any]]:
    """The rows of a positive and its negatives, each with its doc_id, text and score; of triplets
    one for each.
    """
    chosen: list[Sequence[int]] = [range(len(docs))]
    if rules.output_format == "triplet":
        chosen = [(0, place) for place in range(1, len(docs))]
    elif len(docs) <= (rules.num_negatives if rules.output_format == "n-tuple" else 1):
        chosen = []
    schema, rows = table_schema(rules), []
    for places in chosen:
        doc_ids, texts, scores = zip(*(docs[place] for place in places), strict=True)
        values = dict(zip(schema.names, (query, *texts), strict=False))
        values |= {"docs": texts, "scores": scores, "labels": [int(place == 0) for place in places]}
        values |= {"query_id": query_id, "doc_ids": doc_ids}
        rows.append({name: values[name] for name in schema.names})
    return rows


class DocTexts:
    """The texts of some docs on disk, so that memory holds three numbers for each, whatever the
    corpus.
    """

    def __init__(self, file: IO[bytes], hashes: Hashes) -> None:
        """Takes the hashes of the doc_ids, sorted and distinct."""
        self._file, self._hashes = file, hashes
        self._places = np.zeros((len(hashes), 2), np.int64)

    def scan(self, corpus: CorpusConfig, progress: Progress) -> None:
        """Reads a corpus once."""
        units, end = list_units(corpus), 0
        for done, unit in enumerate(units):
            progress.update(done, len(units), "units of the corpus")
            for batch in read_unit(unit):
                hashes = hashes64(batch.doc_ids)
                for at in np.flatnonzero(is_in(hashes, self._hashes)).tolist():
                    # No id holds white space.
                    size = self._file.write(f"{batch.doc_ids[at]} {batch.texts[at]}".encode())
                    self._places[np.searchsorted(self._hashes, hashes[at])] = end, end + size
                    end += size

    def __getitem__(self, doc_id: str) -> str:
        start, end = self._places[np.searchsorted(self._hashes, np.uint64(hash64(doc_id)))].tolist()
        self._file.seek(start)
        stored_id, _, text = self._file.read(end - start).decode().partition(" ")
        if stored_id != doc_id:
            raise DataError(
                f"doc {doc_id!r} was scored, and the corpus lacks it: restore the one that the "
                "run read"
            )
        return text


@dataclass(frozen=True)
class TableFolder(PartFolder):
    """A folder of parts that one process makes, or several by the same rules.

    A file beside the parts holds the rules; each part has their digest.

    Attributes:
        rules: all that decides the parts, as JSON can hold it.
    """

    records: ClassVar[tuple[str, ...]] = (SUCCESS, _RECORD)
    rules: Mapping[str, Any]

    @contextmanager
    def opened(self) -> Iterator[list[int]]:
        """Keeps other rules out of the folder until the `with` block ends, and removes what other
        rules made; yields the shards whose part has to be made.

        Raises:
            PreflightError: it holds other files.
            TemporaryError: another process makes it by other rules.
        """
        storage.check_folder(self.url)
        if self._made_by() is None and not storage.is_empty(self.url):
            raise PreflightError(
                f"--output {self.url} is a folder that `beamrank negatives` did not make, and "
                "what it holds would be removed: give another one, or a file whose name ends in "
                ".parquet"
            )
        if storage.is_link(self.url):
            self.begin()
        with launched(self.url, self.digest, self.digest):
            if self._made_by() != self.digest:
                self.begin()
                content = json.dumps(self.rules, indent=1).encode()
                storage.replace(storage.join(self.url, _RECORD), content)
            missing = self.missing()
            if missing:
                storage.remove(storage.join(self.url, SUCCESS))
            yield missing

    @property
    def digest(self) -> str:
        """The digest of the rules."""
        return digest(self.rules)

    def _made_by(self) -> str | None:
        """The digest of the rules that made the folder; None where none did."""
        try:
            return digest(json.loads(storage.read_bytes(storage.join(self.url, _RECORD))))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            return ""

    def add(self, shard: int, table: pa.Table) -> None:
        """Writes a shard's table with the digest of the rules."""
        metadata = {**(table.schema.metadata or {}), _RULES: self.digest}
        self.write(shard, part_bytes(table.replace_schema_metadata(metadata)))

    def missing(self, older: Mapping[str, FileState] = MappingProxyType({})) -> list[int]:
        """The shards without a part that these rules made."""
        absent = set(super().missing(older))
        return [shard for shard in range(self.shards) if shard in absent or not self._is_own(shard)]

    def _is_own(self, shard: int) -> bool:
        with storage.open_binary(storage.join(self.url, self.part(shard))) as file:
            try:
                metadata = pq.read_schema(file).metadata or {}
            except (pa.ArrowException, OSError):
                return False
        return bool(metadata.get(_RULES) == self.digest.encode())


def row_groups(schema: pa.Schema, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows of several tables, the same however they are cut into these."""
    rest = schema.empty_table()
    for table in tables:
        rest = pa.concat_tables([rest, table])
        while len(rest) >= _GROUP_ROWS:
            yield rest.slice(0, _GROUP_ROWS).combine_chunks()
            rest = rest.slice(_GROUP_ROWS)
    yield rest.combine_chunks()
