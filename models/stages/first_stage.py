"""The base of first stages, which give each topic its candidates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from types import MappingProxyType
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit import schemas
from beamrank.config.cascade import ConfiguredStage
from beamrank.errors import DataError
from beamrank.formats.excluded import OWN_DEPTH, Excluded, read_excluded
from beamrank.formats.values import RowError, are_usable, check_id
from beamrank.ranking.rankings import Rankings, rank_candidates
from beamrank.records import Topic
from models.stages.base import FIRST, Key, Stage
from models.stages.compute import Computed
from models.stages.planning import Planning


@dataclass(frozen=True, kw_only=True)
class FirstStage(Stage):
    """A first stage. Its type_name is also the name of its section of the configuration, and of its
    run.
    """

    name = FIRST
    schema = schemas.CANDIDATES
    reads_input = True

    k: Annotated[int, Key("{type_name}.k")]
    # `self`, or the digest of the pairs of docs that are left out; and where these are.
    exclude: Annotated[str | None, Key("{type_name}.exclude")] = None
    excluded: str = ""

    @classmethod
    def settings(cls, own: ConfiguredStage, planning: Planning) -> dict[str, Any]:  # noqa: ARG003
        """The docs that it leaves out."""
        path = own.section.exclude
        return {} if path is None else {"exclude": read_excluded(path).digest, "excluded": path}

    @property
    def run_name(self) -> str:
        return self.type_name

    @property
    def is_ready(self) -> bool:
        """Whether it was planned whole: an index that is not built yet has no digest."""
        return True

    def rank(self, before: Rankings | None, part: pa.Table, k: int | None = None) -> Rankings:  # noqa: ARG002
        """The candidates in their order."""
        assert before is None
        return rank_candidates(part)

    def to_retrieve(self, topics: Sequence[Topic]) -> int:
        """How many docs of a topic `compute` finds, so that `computed` has `k` beside those that
        are left out.
        """
        excluded = self._excluded()
        if excluded is None:
            return self.k
        return excluded.depth((topic.query_id for topic in topics), self.k)

    def _excluded(self) -> Excluded | None:
        return None if self.exclude is None else _read_excluded(self.excluded, self.exclude)

    def computed(
        self,
        topics: Sequence[Topic],
        candidates: pa.Table,
        counts: Mapping[str, int] = MappingProxyType({}),
        examples: Sequence[str] = (),
    ) -> Computed:
        """The candidates of a shard; topics without candidates are counted and named.

        Args:
            topics: the shard's.
            candidates: `schemas.CANDIDATES`, sorted by query_id and rank.
            counts: others for the receipt.
            examples: for the receipt, before those of topics without candidates.

        Raises:
            DataError: a doc_id cannot be used, which an index that was built elsewhere may hold.
        """
        _check_doc_ids(candidates)
        added = dict(counts)
        excluded = self._excluded()
        if excluded is not None:
            candidates, added["excluded"] = without(excluded, candidates, self.k)
        # Queries whose own doc is among the first: they seem to be docs of the collection.
        first = candidates.filter(pc.less_equal(candidates["rank"], OWN_DEPTH))
        if own := pc.sum(pc.equal(first["query_id"], first["doc_id"])).as_py():
            added["own_docs"] = int(own)
        found = set(candidates["query_id"].unique().to_pylist())
        missing = [topic.query_id for topic in topics if topic.query_id not in found]
        return Computed(
            candidates,
            counts={
                "topics": len(topics),
                "topics_without_candidates": len(missing),
                "candidates": candidates.num_rows,
                **added,
            },
            examples=[
                *examples,
                *(f"query {query_id!r} has no candidates" for query_id in missing),
            ],
        )


def without(excluded: Excluded, candidates: pa.Table, k: int) -> tuple[pa.Table, int]:
    """The best k candidates of each query that are not excluded, and how many stood above these."""
    doc_ids = candidates["doc_id"].to_pylist()
    rows: list[int] = []
    ranks: list[int] = []
    left_out = start = 0
    for query_id, group in groupby(candidates["query_id"].to_pylist()):
        count = len(list(group))
        kept = excluded.kept(query_id, doc_ids[start : start + count])[:k]
        left_out += (kept[-1] + 1 if len(kept) == k else count) - len(kept)
        rows += [start + place for place in kept]
        ranks += range(1, len(kept) + 1)
        start += count
    found = candidates.take(pa.array(rows, pa.int64()))
    place = found.schema.get_field_index("rank")
    return found.set_column(place, found.schema.field(place), pa.array(ranks, pa.int32())), left_out


@lru_cache(maxsize=1)
def _read_excluded(path: str, expected: str) -> Excluded:
    excluded = read_excluded(path)
    if excluded.digest != expected:
        raise DataError(
            f"the file of docs to exclude {path} changed since the run was planned. Nothing was "
            "committed: run the same command again"
        )
    return excluded


def _check_doc_ids(candidates: pa.Table) -> None:
    doc_ids = candidates["doc_id"].to_pylist()
    if are_usable(doc_ids):
        return
    for query_id, doc_id in zip(candidates["query_id"].to_pylist(), doc_ids, strict=True):
        try:
            check_id(doc_id)
        except RowError as error:
            raise DataError(
                f"a candidate of query {query_id!r} {error}. Build the index again from a corpus "
                "without it"
            ) from error
