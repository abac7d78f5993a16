"""Retrieval: the retrieve stage without Beam, against bare pyserini on the same index, topics and
threads.
"""

import statistics
import tempfile
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from beamrank.commit.receipts import StageFolder
from beamrank.commit.shards import cut_shards
from beamrank.machine import usable_cores
from beamrank.records import Topic
from benchmarks.peers import Searched, hits_of, search_pyserini, timed_searches
from benchmarks.results import Part, Target
from benchmarks.subprocess_meter import run_apart
from benchmarks.workspace import Workspace
from models.lucene import jvm
from models.lucene.bm25 import Bm25Searcher

_WANTED_RATIO = 1.15


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
    if ours != peers:
        raise RuntimeError("pyserini ranks differently, so that a ratio would mean nothing")
    seconds = {
        side: {
            name: round(statistics.median(getattr(search, name) for search in searched), 3)
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

    def search(searcher: Bm25Searcher) -> list[pa.Table]:
        tables = []
        with tempfile.TemporaryDirectory() as output:
            folder = StageFolder(output)
            for shard in cut_shards(topics, None):
                tables.append(searcher.search(shard.topics, k))
                folder.commit(shard.index, shard.digest, tables[-1], seconds=0.0, counts={})
        return tables

    seconds, tables = timed_searches(lambda: Bm25Searcher(index, 0.9, 0.4, threads), search)
    return Searched(*seconds, hits_of(pa.concat_tables(tables)))
