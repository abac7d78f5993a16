"""The join of candidates with their docs: one scan of the corpus, one shuffle of tokens
(docs/internals/join.md).

The needed docs are listed (`beamrank.join.doc_hashes`) with the query shards that need each. Every
corpus unit is filtered against them by binary search, and only what stages store of needed docs
travels to the shards, where docs are matched by doc_id exactly: a hash that collides costs a few
bytes, never a wrong doc.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import starmap
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.schemas import TEXT_DIGEST, Texts, required, tokenized_table
from beamrank.errors import DataError
from beamrank.formats.texts.units import doc_keys, duplicate_doc


class MissingDoc(NamedTuple):
    """A candidate that the corpus lacks, and the first query that has it."""

    doc_id: str
    query_id: str

    def __str__(self) -> str:
        return f"{self.doc_id!r} of query_id {self.query_id!r}"


class JoinedShard(NamedTuple):
    """A shard's queries with their candidates' tokens or texts, and counts."""

    table: pa.Table
    missing: tuple[MissingDoc, ...]
    truncated_docs: int


def sent_docs(*contents: pa.DataType) -> pa.Schema:
    """The rows of the shuffle: a needed doc, its place in the corpus (unit number, position), and
    what stages of these types of contents store of it, each with whether it is cut.
    """
    of_stages = {
        f"{name}{number}": data_type
        for number, kind in enumerate(contents)
        for name, data_type in (("contents", kind), ("truncated", pa.bool_()))
    }
    place = {"doc_id": pa.string(), "unit": pa.int32(), "position": pa.int64()}
    return required(**place, digest=TEXT_DIGEST, **of_stages)


def by_shard(
    batches: Sequence[pa.RecordBatch], shards: Sequence[npt.NDArray[np.uint32]]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cuts rows into one batch a shard, by the shards of the rows of each batch: small batches are
    mostly headers.
    """
    if not any(map(len, batches)):
        return
    shard_of = np.concatenate(shards)
    order = np.argsort(shard_of, kind="stable")
    rows = pa.concat_batches(batches).take(pa.array(order))
    numbers, starts = np.unique(shard_of[order], return_index=True)
    for shard, start, end in zip(numbers, starts, [*starts[1:], len(order)], strict=True):
        yield int(shard), rows.slice(start, end - start)


def join_shard(
    schema: pa.Schema,
    query_ids: Sequence[str],
    queries: Texts,
    candidates: pa.Table,
    docs: pa.Table,
    place: Callable[[int, int], str],
    of_queries: bool = False,
    number: int = 0,
) -> JoinedShard:
    """Puts a shard's parts together.

    Args:
        schema: `schemas.tokenized`, with the metadata of the part, or `schemas.TEXTS`.
        query_ids: the shard's queries, sorted; one without candidates keeps its row.
        queries: their texts, in the same order.
        candidates: `schemas.CANDIDATES`, sorted by query_id and rank.
        docs: `sent_docs`, in any order, docs that no candidate names (hash collisions)
            among them.
        place: puts a unit number and a position into words.
        of_queries: whether `docs` has `doc_keys` in place of doc_ids.
        number: the stage's, among the stages that `docs` has contents for.

    Returns:
        The joined rows; candidates whose doc is not among `docs` are left out and listed as
        missing.

    Raises:
        DataError: a doc that is needed appears twice in the corpus.
    """
    keys = pa.array(candidate_keys(candidates, of_queries), pa.string())
    docs = docs.filter(pc.is_in(docs["doc_id"], keys)).combine_chunks()
    values, counts = pc.value_counts(docs["doc_id"]).flatten()
    for key in values.filter(pc.greater(counts, 1)).to_pylist():
        twice = docs.filter(pc.equal(docs["doc_id"], key))
        places = sorted(zip(twice["unit"].to_pylist(), twice["position"].to_pylist(), strict=True))
        raise DataError(duplicate_doc(key, *(place(*at) for at in places[:2])))
    rows = pc.index_in(keys, docs["doc_id"])
    is_missing = pc.is_null(rows)
    missing: dict[str, str] = {}
    for candidate in candidates.filter(is_missing).to_pylist():
        missing.setdefault(candidate["doc_id"], candidate["query_id"])
    joined = candidates.filter(pc.invert(is_missing))
    numbers = rows.drop_null().to_numpy().astype(np.int64)
    texts = Texts(docs[f"contents{number}"].combine_chunks(), docs["digest"].combine_chunks())
    table = tokenized_table(schema, query_ids, queries, joined, texts, numbers)
    truncated = pc.sum(docs[f"truncated{number}"]).as_py() or 0
    return JoinedShard(table, tuple(starmap(MissingDoc, missing.items())), truncated)


def candidate_keys(candidates: pa.Table, of_queries: bool) -> list[str]:
    """The keys that find the docs of `schemas.CANDIDATES`: their doc_ids, or with `of_queries`
    their `doc_keys`.
    """
    doc_ids: list[str] = candidates["doc_id"].to_pylist()
    return doc_keys(candidates["query_id"].to_pylist(), doc_ids) if of_queries else doc_ids
