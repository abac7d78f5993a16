"""BM25 over the shards of topics."""

import time
from dataclasses import dataclass
from functools import lru_cache

from beamrank.candidates import commit_candidates
from beamrank.receipts import Receipt, StageFolder
from models.bm25 import Bm25Searcher
from models.index import local_index
from transforms.shards import ShardTask


@dataclass(frozen=True)
class RetrieveJob:
    """Retrieves `k` candidates for each topic of a shard."""

    url: str
    index_url: str
    index_digest: str
    k1: float
    b: float
    k: int
    threads: int

    @property
    def folder(self) -> StageFolder:
        """Where the parts and receipts go."""
        return StageFolder(self.url)

    def run(self, task: ShardTask) -> Receipt:
        """Does one shard; a topic that matches nothing has no rows and is counted."""
        searcher = _searcher(self.index_url, self.index_digest, self.k1, self.b, self.threads)
        start = time.monotonic()
        candidates = searcher.search(task.topics, self.k)
        return commit_candidates(self.folder, task.shard, task.digest, task.topics, candidates, start)


@lru_cache(maxsize=1)
def _searcher(index_url: str, index_digest: str, k1: float, b: float, threads: int) -> Bm25Searcher:
    return Bm25Searcher(local_index(index_url, index_digest), k1, b, threads)
