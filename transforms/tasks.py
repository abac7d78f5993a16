"""The tasks of a Beam job, in a file named after its content.

The job's graph carries ranges of their numbers, and a worker reads the tasks of its own shards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import TypeAdapter

from beamrank.commit.plan import Plan
from beamrank.commit.shards import Shard, ShardTask
from beamrank.errors import DataError
from beamrank.formats.topic_table import TopicTable
from beamrank.storage.documents import parse_json, validated
from beamrank.storage.row_files import open_rows, read_row, write_rows

# One row: a task without its topics, as JSON; `topics` is the digest of these, empty where it has
# none.
_TASKS = pa.schema({"shard": pa.int32(), "topics": pa.string(), "task": pa.string()})
_TASK = TypeAdapter(ShardTask)
_MOST_RANGES = 256


@dataclass(frozen=True)
class TaskFile:
    """The tasks of one Beam job, sorted by shard.

    Attributes:
        url: of the file.
        topics_url: of the plan's file of topics, whose row group i is shard i (`write_shards`);
            empty where the tasks have no topics.
        tasks: how many they are.
    """

    url: str
    topics_url: str
    tasks: int

    @classmethod
    def write(cls, plan: Plan, folder: str, prefix: str, tasks: Sequence[ShardTask]) -> Self:
        """Writes tasks of a plan that is written, under a prefix and their content's own name."""

        def row(task: ShardTask) -> dict[str, Any]:
            topics = plan.shards.digests[task.shard] if task.topics else ""
            return {
                "shard": task.shard,
                "topics": topics,
                "task": _TASK.dump_json(task, exclude={"topics"}),
            }

        url = write_rows(
            folder, prefix, _TASKS, map(row, sorted(tasks, key=lambda each: each.shard))
        )
        return cls(
            url, plan.stored_shards() if any(task.topics for task in tasks) else "", len(tasks)
        )

    def ranges(self) -> list[tuple[int, int]]:
        """Ranges of the tasks, from the first to the last, exclusive: a few hundred at most,
        however many tasks.
        """
        bounds = np.linspace(0, self.tasks, min(self.tasks, _MOST_RANGES) + 1).astype(int)
        return list(pairwise(bounds.tolist()))

    def shards(self, start: int, end: int) -> list[int]:
        """The shards of a range."""
        found: list[int] = _shards(self.url)[start:end].tolist()
        return found

    def read(self, shard: int) -> ShardTask:
        """The task of a shard, with its topics; raises DataError where a file is missing or was
        changed.
        """
        values = read_row(self.url, int(np.searchsorted(_shards(self.url), shard)))
        task = validated(_TASK, parse_json(values["task"]))
        if not values["topics"]:
            return task
        topics = TopicTable(open_rows(self.topics_url).group(shard))
        if Shard(shard, topics).digest != values["topics"]:
            raise DataError(
                f"{self.topics_url} does not hold the topics of shard {shard}: it was changed. "
                "Run the same command again, which writes it again"
            )
        return replace(task, topics=topics)


@dataclass(frozen=True)
class StoredTask:
    """The task of a shard as a job carries it: the place where it is."""

    file: TaskFile
    shard: int

    def read(self) -> ShardTask:
        """The task: see `TaskFile.read`."""
        return self.file.read(self.shard)


@lru_cache(maxsize=4)
def _shards(url: str) -> npt.NDArray[np.int32]:
    """The shards of the tasks in a file, ascending."""
    found: npt.NDArray[np.int32] = open_rows(url).read("shard")["shard"].to_numpy()
    return found
