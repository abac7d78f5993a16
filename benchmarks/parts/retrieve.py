"""Retrieval: the retrieve stage without Beam, against bare pyserini on the same index, topics and
threads.
"""

import statistics
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beamrank.commit.receipts import StageFolder
from beamrank.commit.shards import cut_shards
from beamrank.machine import usable_cores
from beamrank.records import Topic
from benchmarks.peers import Hits, Searched, search_pyserini
from benchmarks.results import Part, Target
from benchmarks.subprocess_meter import run_apart
from benchmarks.workspace import Workspace
from models.lucene import jvm
from models.lucene.bm25 import Bm25Searcher

_WANTED_RATIO = 1.15
_SCORE_TOLERANCE = 1e-3


def measure(workspace: Workspace) -> Part:
    """The stage's search, committed shard by shard, over one `batch_search` of all topics with its
    hits read.
    """
    index, topics, k = str(workspace.index()), workspace.topics, workspace.settings.depths.bm25
    threads = usable_cores()
    sides: dict[str, Any] = {"beamrank": search_ours, "pyserini": search_pyserini}
    rounds: dict[str, list[Searched]] = {side: [] for side in sides}
    for _ in range(workspace.settings.rounds):
        for side, search in sides.items():
            rounds[side].append(run_apart(search, index, topics, k, threads))
    ours, peers = (searched[0].hits for searched in rounds.values())
    _check_equal(ours, peers)
    seconds = {
        side: {
            name: round(statistics.median(getattr(each, name) for each in searched), 3)
            for name in ("open_seconds", "first_seconds", "second_seconds")
        }
        for side, searched in rounds.items()
    }
    first, second = (
        round(seconds["beamrank"][name] / seconds["pyserini"][name], 3)
        for name in ("first_seconds", "second_seconds")
    )
    name = "retrieval over bare pyserini"
    return Part(
        {
            "topics": len(topics),
            "hits": sum(map(len, ours.values())),
            "threads": threads,
            **seconds,
            "ratio_first_pass": first,
            "ratio_second_pass": second,
        },
        (
            Target(f"{name}, first pass of a process", first, "at most", _WANTED_RATIO),
            Target(f"{name}, second pass", second, "at most", _WANTED_RATIO),
        ),
    )


def search_ours(index: str, topics: Sequence[Topic], k: int, threads: int) -> Searched:
    """Searches shard by shard and publishes each shard's part and receipt, as the retrieve stage
    does.
    """
    jvm.start(threads)
    start = time.perf_counter()
    searcher = Bm25Searcher(index, 0.9, 0.4, threads)
    opened = time.perf_counter()
    tables = _search_and_commit(searcher, topics, k)
    first = time.perf_counter()
    _search_and_commit(searcher, topics, k)
    return Searched(opened - start, first - opened, time.perf_counter() - first, _hits(tables))


def _search_and_commit(searcher: Bm25Searcher, topics: Sequence[Topic], k: int) -> list[pa.Table]:
    tables = []
    with tempfile.TemporaryDirectory() as output:
        folder = StageFolder(output)
        for shard in cut_shards(topics, None):
            tables.append(searcher.search(shard.topics, k))
            folder.commit(shard.index, shard.digest, tables[-1], seconds=0.0, counts={})
    return tables


def _hits(tables: Sequence[pa.Table]) -> Hits:
    hits: Hits = {}
    for table in tables:
        for row in table.to_pylist():
            hits.setdefault(row["query_id"], []).append((row["doc_id"], row["score"]))
    return hits


def _check_equal(ours: Hits, peers: Hits) -> None:
    """Checks that both sides found the same: otherwise their ratio would be meaningless."""
    for query_id, hits in peers.items():
        mine = ours.get(query_id, [])
        scores, other = [score for _, score in mine], [score for _, score in hits]
        if [doc_id for doc_id, _ in mine] != [doc_id for doc_id, _ in hits] or not np.allclose(
            scores, other, rtol=0, atol=_SCORE_TOLERANCE
        ):
            raise RuntimeError(
                f"pyserini ranks {query_id} differently: {hits[:3]}, beamrank {mine[:3]}"
            )
