"""The tasks of a Beam job in a file: its graph carries ranges of them, and a worker reads those of its own shards."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import TypeAdapter

from beamrank.commit.plan import Plan
from beamrank.commit.shards import ShardTask
from beamrank.errors import DataError
from beamrank.storage.documents import digest, parse_json, validated
from beamrank.storage.row_files import open_rows, read_row, write_rows
from beamrank.topic_table import TopicTable

# One row: a task without its topics, as JSON; `topics` is the digest of these, empty where it has none.
_SCHEMA = pa.schema({"shard": pa.int32(), "topics": pa.string(), "task": pa.string()})
_TASK = TypeAdapter(ShardTask)
_MOST_RANGES = 256
_AGAIN = "Run the same command again, which writes it again"


@dataclass(frozen=True)
class TaskFile:
    """The tasks of one Beam job, sorted by shard.

    Attributes:
        url: of the file.
        topics_url: of the plan's file of topics, in which the row group of a number is the shard of that number; empty
            where the tasks have no topics.
        tasks: how many they are.
    """

    url: str
    topics_url: str
    tasks: int

    @classmethod
    def write(cls, plan: Plan, folder: str, prefix: str, tasks: Sequence[ShardTask]) -> Self:
        """Writes tasks of a plan that is written, under a prefix and their content's own name."""
        url = write_rows(folder, prefix, _SCHEMA, _rows(plan, tasks))
        return cls(url, plan.stored_shards() if any(task.topics for task in tasks) else "", len(tasks))

    def ranges(self) -> list[tuple[int, int]]:
        """Ranges of the tasks, from the first to the last, exclusive: a few hundred at most, however many tasks."""
        bounds = np.linspace(0, self.tasks, min(self.tasks, _MOST_RANGES) + 1).astype(int)
        return list(pairwise(bounds.tolist()))

    def shards(self, start: int, end: int) -> list[int]:
        """The shards of a range."""
        found: list[int] = _shards(self.url)[start:end].tolist()
        return found

    def read(self, shard: int) -> ShardTask:
        """The task of a shard, with its topics.

        Raises:
            DataError: a file is missing or was changed.
        """
        row = int(np.searchsorted(_shards(self.url), shard))
        values = read_row(self.url, row)
        task = validated(_TASK, parse_json(values["task"]))
        return replace(task, topics=self._topics(shard, values["topics"])) if values["topics"] else task

    def _topics(self, shard: int, expected: str) -> TopicTable:
        topics = TopicTable(open_rows(self.topics_url).group(shard))
        if digest(list(topics)) != expected:
            raise DataError(f"{self.topics_url} does not hold the topics of shard {shard}: it was changed. {_AGAIN}")
        return topics


@dataclass(frozen=True)
class StoredTask:
    """The task of a shard as a job carries it: the place where it is."""

    file: TaskFile
    shard: int

    def read(self) -> ShardTask:
        """The task: see `TaskFile.read`."""
        return self.file.read(self.shard)


def _rows(plan: Plan, tasks: Sequence[ShardTask]) -> Iterator[dict[str, Any]]:
    for task in sorted(tasks, key=lambda each: each.shard):
        topics = plan.shards.digests[task.shard] if task.topics else ""
        yield {"shard": task.shard, "topics": topics, "task": _TASK.dump_json(task, exclude={"topics"})}


@lru_cache(maxsize=4)
def _shards(url: str) -> npt.NDArray[np.int32]:
    """The shards of the tasks in a file, ascending."""
    found: npt.NDArray[np.int32] = open_rows(url).read("shard")["shard"].to_numpy()
    return found
