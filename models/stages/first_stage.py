"""The base of first stages, which give each topic its candidates."""

import time
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pyarrow as pa

from beamrank.config.first_stages import FirstStageConfig
from beamrank.config.run import RunConfig
from beamrank.errors import DataError
from beamrank.formats.ids import IdError, are_usable, check_doc_id
from beamrank.stages.receipts import Receipt
from beamrank.stages.tasks import ShardTask
from models.stages.base import CANDIDATE_BYTES, Cost, CostOf, ShardStage, Worker
from models.stages.planning import Planning
from models.stages.sample import Sample


@dataclass(frozen=True, kw_only=True)
class FirstStage(ShardStage):
    """A first stage. Its type_name is also the name of its section of the configuration, and of its run."""

    step = "retrieve"
    rows = "candidates"
    reads_input = True
    section: ClassVar[type[FirstStageConfig]]

    @classmethod
    @abstractmethod
    def from_config(cls, section: Any, planning: Planning) -> Self:
        """Made from its section of the configuration."""

    @classmethod
    def is_ready(cls, config: RunConfig) -> bool:  # noqa: ARG003
        """Whether it can be planned without writing anything."""
        return True

    @classmethod
    def worker_on(cls, device: str) -> Worker:  # noqa: ARG003
        return Worker.CPU

    @classmethod
    def estimate(cls, config: RunConfig, sample: Sample) -> CostOf:
        """As long as `seconds_a_topic` for each topic."""
        seconds = cls.seconds_a_topic(config, sample)
        return lambda topics: Cost(0, topics * config.first_stage.k * CANDIDATE_BYTES, topics * seconds)

    @classmethod
    def seconds_a_topic(cls, config: RunConfig, sample: Sample) -> float:  # noqa: ARG003
        """The time of one topic on this machine."""
        return 0.0


def commit_candidates(task: ShardTask, candidates: pa.Table, start: float) -> Receipt:
    """Commits what a first stage found for a shard; topics without candidates are counted and named.

    Args:
        task: the shard's.
        candidates: `schemas.CANDIDATES`, sorted by query_id and rank.
        start: when the shard was started, by `time.monotonic()`.

    Raises:
        DataError: a doc_id cannot be used, which an index that was built elsewhere may hold.
    """
    _check_doc_ids(candidates)
    found = set(candidates["query_id"].unique().to_pylist())
    without = [topic.query_id for topic in task.topics if topic.query_id not in found]
    counts = {
        "topics": len(task.topics),
        "topics_without_candidates": len(without),
        "candidates": candidates.num_rows,
    }
    return task.commit(
        candidates,
        seconds=time.monotonic() - start,
        counts=counts,
        examples=[f"query {query_id!r} has no candidates" for query_id in without],
    )


def _check_doc_ids(candidates: pa.Table) -> None:
    doc_ids = candidates["doc_id"].to_pylist()
    if are_usable(doc_ids):
        return
    for query_id, doc_id in zip(candidates["query_id"].to_pylist(), doc_ids, strict=True):
        try:
            check_doc_id(doc_id)
        except IdError as error:
            raise DataError(
                f"a candidate of query {query_id!r} {error}. Build the index again from a corpus without it"
            ) from error
