"""BM25 over the shards of topics."""

import time
from dataclasses import dataclass
from functools import lru_cache

from beamrank.errors import DataError
from beamrank.stages.given_run import commit_candidates
from beamrank.stages.receipts import Receipt, StageFolder
from models.lucene.bm25 import Bm25Searcher
from models.lucene.index import LocalIndex, local_index
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
        """Does one shard; a topic that matches nothing has no rows and is counted.

        Raises:
            DataError: the index changed since it was opened, so that nothing is committed.
        """
        index, searcher = _open(self.index_url, self.index_digest, self.k1, self.b, self.threads)
        start = time.monotonic()
        try:
            with index.held():
                candidates = searcher.search(task.topics, self.k)
        except DataError:
            # Whoever tries again opens the index anew, which checks its content.
            _open.cache_clear()
            searcher.close()
            raise
        return commit_candidates(self.folder, task.shard, task.digest, task.topics, candidates, start)


@lru_cache(maxsize=1)
def _open(index_url: str, index_digest: str, k1: float, b: float, threads: int) -> tuple[LocalIndex, Bm25Searcher]:
    index = local_index(index_url, index_digest)
    return index, Bm25Searcher(index.folder, k1, b, threads)
