"""A run that the user already has, as the first stage."""

import time
from collections.abc import Sequence

import pyarrow as pa

from beamrank import storage
from beamrank.fingerprint import sha256
from beamrank.plan import Shard
from beamrank.receipts import StageFolder
from beamrank.runs import Run, read_run
from beamrank.schemas import CANDIDATES


def candidates_digest(url: str) -> str:
    """The digest of the run's bytes."""
    return sha256(storage.read_bytes(url))


def split_run(url: str, k: int, shards: Sequence[Shard], digests: Sequence[str], folder: StageFolder) -> None:
    """Commits each shard's share of a given run, cut to its best `k` a query: by score, then by rank.

    Queries of the run that are no topics are left out; topics that the run does not have are counted.
    """
    run = read_run(url, ties="rank")
    for shard, digest in zip(shards, digests, strict=True):
        start = time.monotonic()
        table = _share(run, k, shard)
        without = sum(topic.query_id not in run.order for topic in shard.topics)
        counts = {
            "topics": len(shard.topics),
            "topics_without_candidates": without,
            "candidates": table.num_rows,
        }
        folder.commit(shard.index, digest, table, seconds=time.monotonic() - start, counts=counts)


def _share(run: Run, k: int, shard: Shard) -> pa.Table:
    """The candidates of one shard: `schemas.CANDIDATES`, sorted by query_id and rank."""
    query_ids: list[str] = []
    doc_ids: list[str] = []
    ranks: list[int] = []
    scores: list[float] = []
    for topic in sorted(shard.topics):
        kept = run.order.get(topic.query_id, [])[:k]
        query_ids += [topic.query_id] * len(kept)
        doc_ids += kept
        ranks += range(1, len(kept) + 1)
        scores += run.scores[topic.query_id][: len(kept)].tolist() if kept else []
    columns = [query_ids, doc_ids, ranks, scores]
    return pa.table(
        [pa.array(each, field.type) for each, field in zip(columns, CANDIDATES, strict=True)], schema=CANDIDATES
    )
