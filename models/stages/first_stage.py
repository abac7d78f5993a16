"""The base of first stages, which give each topic its candidates."""

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.receipts import Receipt
from beamrank.commit.shards import ShardTask
from beamrank.config.cascade import ConfiguredStage
from beamrank.config.run import RunConfig
from beamrank.config.stages import FirstStageConfig
from beamrank.errors import DataError
from beamrank.formats.checks import RowError, are_usable, check_doc_id
from beamrank.formats.excluded import OWN_DEPTH, Excluded, read_excluded
from beamrank.join import schemas
from beamrank.join.schemas import candidates_table
from beamrank.ranking.rankings import Rankings, rank_candidates
from beamrank.records import Topic
from beamrank.section import SELF
from models.stages.base import CANDIDATE_BYTES, Cost, CostOf, Key, ShardStage
from models.stages.planning import Planning, Sample, Trial

# The name of its folder, and its `--stage`.
FIRST = "retrieve"
# The doc_ids of a query with their scores, best first.
_Rows: TypeAlias = list[tuple[str, float]]


@dataclass(frozen=True, kw_only=True)
class FirstStage(ShardStage):
    """A first stage. Its type_name is also the name of its section of the configuration, and of its run."""

    name = FIRST
    schema = schemas.CANDIDATES
    reads_input = True
    section: ClassVar[type[FirstStageConfig]]

    # `self`, or the digest of the pairs of docs that are left out; where these are; the depth.
    exclude: Annotated[str | None, Key("{type_name}.exclude")] = None
    excluded: str = ""
    depth: int = 0

    @property
    def run_name(self) -> str:
        return self.type_name

    def rank(self, before: Rankings | None, part: pa.Table, k: int | None = None) -> Rankings:  # noqa: ARG002
        """The candidates in their order."""
        assert before is None
        return rank_candidates(part)

    @classmethod
    @abstractmethod
    def from_config(cls, section: Any, planning: Planning) -> Self:
        """Made from its section of the configuration."""

    @classmethod
    def is_ready(cls, config: RunConfig) -> bool:  # noqa: ARG003
        """Whether it can be planned without writing anything."""
        return True

    @classmethod
    def estimate(cls, own: ConfiguredStage, config: RunConfig, sample: Sample) -> CostOf:  # noqa: ARG003
        """As long as its `trial` for each topic."""
        seconds = sample.first.seconds_a_topic
        return lambda topics: Cost(0, topics * own.section.k * CANDIDATE_BYTES, topics * seconds)

    @classmethod
    def trial(cls, config: RunConfig, topics: Sequence[Topic]) -> Trial:  # noqa: ARG003
        """The time of a topic on this machine, and candidates of some, from which later stages estimate their cost."""
        return Trial()

    @classmethod
    def worker_paths(cls, own: ConfiguredStage, config: RunConfig) -> dict[str, str]:
        """The file of the docs that workers leave out."""
        exclude = own.section.exclude
        if exclude in (None, SELF) or not cls.needs_workers(own, config):
            return {}
        return {f"{own.kind}.exclude": str(exclude)}

    def with_options(self, config: RunConfig) -> Self:
        """The stage with what the section of any first stage can ask for: docs that are left out.

        Raises:
            PreflightError: the file of docs to exclude is missing or invalid.
        """
        section = config.first_stage
        if section.exclude is None:
            return self
        pairs = read_excluded(section.exclude)
        return replace(self, exclude=pairs.digest, depth=section.k, excluded=section.exclude)

    def to_retrieve(self, task: ShardTask, k: int) -> int:
        """How many docs of a topic of a shard `run` finds, so that `commit` has `k` beside those that are left out."""
        excluded = self._excluded()
        return k if excluded is None else excluded.depth((topic.query_id for topic in task.topics), k)

    def _excluded(self) -> Excluded | None:
        return None if self.exclude is None else _read_excluded(self.excluded, self.exclude)

    def commit(
        self,
        task: ShardTask,
        candidates: pa.Table,
        start: float,
        counts: Mapping[str, int] = MappingProxyType({}),
        examples: Sequence[str] = (),
    ) -> Receipt:
        """Commits the candidates of a shard; topics without candidates are counted and named.

        Args:
            task: the shard's.
            candidates: `schemas.CANDIDATES`, sorted by query_id and rank.
            start: when the shard was started, by `time.monotonic()`.
            counts: others for the receipt.
            examples: for the receipt, before those of topics without candidates.

        Raises:
            DataError: a doc_id cannot be used, which an index that was built elsewhere may hold.
        """
        _check_doc_ids(candidates)
        added = dict(counts)
        excluded = self._excluded()
        if excluded is not None:
            candidates, added["excluded"] = _without(excluded, candidates, self.depth)
        if own := _own_docs(candidates):
            added["own_docs"] = own
        found = set(candidates["query_id"].unique().to_pylist())
        without = [topic.query_id for topic in task.topics if topic.query_id not in found]
        found_counts = {
            "topics": len(task.topics),
            "topics_without_candidates": len(without),
            "candidates": candidates.num_rows,
        }
        return task.commit(
            candidates,
            seconds=time.monotonic() - start,
            counts=found_counts | added,
            examples=[*examples, *(f"query {query_id!r} has no candidates" for query_id in without)],
        )


def _without(excluded: Excluded, candidates: pa.Table, k: int) -> tuple[pa.Table, int]:
    """The best k candidates of each query that are not excluded, and how many stood above these."""
    kept: dict[str, _Rows] = {}
    left_out = 0
    for query_id, rows in _by_query(candidates).items():
        places = excluded.kept(query_id, [row[0] for row in rows])[:k]
        left_out += places[-1] + 1 - len(places) if len(places) == k else len(rows) - len(places)
        if places:
            kept[query_id] = [rows[place] for place in places]
    return _table(kept), left_out


def _own_docs(candidates: pa.Table) -> int:
    """How many queries have the doc of their own id among the first."""
    first = candidates.filter(pc.less_equal(candidates["rank"], OWN_DEPTH))
    return int(pc.sum(pc.equal(first["query_id"], first["doc_id"])).as_py() or 0)


def _by_query(candidates: pa.Table) -> dict[str, _Rows]:
    columns = (candidates[name].to_pylist() for name in ("query_id", "doc_id", "score"))
    return {
        query_id: [(doc_id, score) for _, doc_id, score in rows]
        for query_id, rows in groupby(zip(*columns, strict=True), key=lambda row: row[0])
    }


def _table(by_query: Mapping[str, _Rows]) -> pa.Table:
    query_ids = sorted(by_query)
    rows = [by_query[query_id] for query_id in query_ids]
    doc_ids = [[doc_id for doc_id, _ in each] for each in rows]
    return candidates_table(query_ids, doc_ids, [[score for _, score in each] for each in rows])


@lru_cache(maxsize=1)
def _read_excluded(path: str, expected: str) -> Excluded:
    excluded = read_excluded(path)
    if excluded.digest != expected:
        raise DataError(
            f"the file of docs to exclude {path} changed since the run was planned. Nothing was committed: run the "
            "same command again"
        )
    return excluded


def _check_doc_ids(candidates: pa.Table) -> None:
    doc_ids = candidates["doc_id"].to_pylist()
    if are_usable(doc_ids):
        return
    for query_id, doc_id in zip(candidates["query_id"].to_pylist(), doc_ids, strict=True):
        try:
            check_doc_id(doc_id)
        except RowError as error:
            raise DataError(
                f"a candidate of query {query_id!r} {error}. Build the index again from a corpus without it"
            ) from error
