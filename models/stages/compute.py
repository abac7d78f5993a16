"""What a stage computes of a shard, and from what. A worker's attempt (`models.stages.attempt`)
reads the inputs and commits what was computed.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from beamrank.commit.receipts import Receipt
from beamrank.commit.shards import ShardTask
from beamrank.formats.rejects import Rejects
from beamrank.records import Topic
from beamrank.storage import files as storage
from beamrank.storage.digested import RowRange
from models.scoring.answers import Answers

_Opened = TypeVar("_Opened")


class LeaveOpen(Exception):
    """Leaves a shard open: another run does it."""


class Computed(NamedTuple):
    """What a stage computed of a shard.

    Attributes:
        part: its rows.
        counts: for its receipt.
        examples: for its receipt.
        rejects: the rows of its input that cannot be used.
    """

    part: pa.Table
    counts: Mapping[str, int]
    examples: Sequence[str] = ()
    rejects: Rejects | None = None

    def commit(self, task: ShardTask, seconds: float) -> Receipt:
        """Commits the shard, which took so long."""
        receipt: dict[str, Any] = {"counts": self.counts, "examples": self.examples}
        if self.rejects is not None:
            receipt |= {
                "bad_rows": self.rejects.count,
                "examples": self.rejects.examples,
                "rejects_file": self.rejects.publish(storage.parent(task.folder.url), task.shard),
            }
        return task.commit(self.part, seconds=seconds, **receipt)


@dataclass
class ShardInputs:
    """What a stage reads of a shard.

    Attributes:
        shard: its number.
        read: the shard's part of a stage, by its name; it is kept once it was read.
        topics: the shard's, sorted by query_id, for a stage that reads them.
        rows: the shard's, for a stage that reads rows of a file.
        model: an engine that is loaded already, in place of what `ModelStage.open` gives.
        earlier: answers of parts of earlier runs, each read when it is needed.
        unused: counts of parts that cannot be used, for the receipt.
        counts: of requests, for the receipt.
        opening_seconds: how long opening a model has taken, which is not the shard's time.
    """

    shard: int
    read: Callable[[str], pa.Table]
    topics: Sequence[Topic] = ()
    rows: RowRange | None = None
    model: Any = None
    earlier: Iterable[Answers] = ()
    unused: Counter[str] = field(default_factory=Counter)
    opening_seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    _asking: Lock = field(default_factory=Lock, repr=False)

    def find(self, keys: Iterable[bytes]) -> Answers:
        """The answers that earlier parts have. The next part is read only while a key is without
        an answer.
        """
        missing, answers = set(keys), dict[bytes, Any]()
        earlier = iter(self.earlier)
        while missing and (part := next(earlier, None)) is not None:
            known = missing & part.keys()
            answers |= {key: part[key] for key in known}
            missing -= known
        return answers

    def ask(
        self,
        key: bytes,
        call: Callable[[], Mapping[str, Any]],
        valid: Callable[[Mapping[str, Any]], bool] = bool,  # noqa: ARG002
    ) -> Mapping[str, Any]:
        """The answer of an earlier part, or else of `call`."""
        with self._asking:
            self.earlier = list(self.earlier)
            answers = self.find([key])
        if key in answers:
            answer: Mapping[str, Any] = answers[key]
            return answer
        answer = call()
        with self._asking:
            self.counts["requests"] += 1
        return answer

    def is_kept(self, key: bytes) -> bool:
        """Whether `ask` has an answer without a call."""
        self.earlier = list(self.earlier)
        return key in self.find([key])

    def opened(self, open_model: Callable[[], _Opened]) -> _Opened:
        """What a function opens, such as a model: its time is not the shard's."""
        start = time.monotonic()
        opened = open_model()
        self.opening_seconds += time.monotonic() - start
        return opened
