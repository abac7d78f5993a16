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

from beamrank.commit.asked import Answer, Check, KeptAnswers
from beamrank.commit.receipts import Receipt
from beamrank.commit.shards import ShardTask
from beamrank.commit.working import shard_at_work
from beamrank.formats.rejects import Rejects
from beamrank.records import Topic
from beamrank.storage import files as storage
from beamrank.storage.digested import RowRange
from models.scoring.answers import Answers
from models.stages import calls

_Opened = TypeVar("_Opened")


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
        earlier: answers of parts of earlier runs, each read when it is needed; a list where the
            stage asks.
        kept: the answers that the stage keeps in its output, where it has one.
        counts: for the receipt, beside those of the stage: of parts that cannot be used, and of
            answers. `requests` are calls, `kept` answers of an earlier attempt, and `repeated`
            calls whose answer another attempt kept meanwhile, so that it was paid twice.
        opening_seconds: how long opening a model has taken, which is not the shard's time.
    """

    shard: int
    read: Callable[[str], pa.Table]
    topics: Sequence[Topic] = ()
    rows: RowRange | None = None
    model: Any = None
    earlier: Iterable[Answers] = ()
    kept: KeptAnswers | None = None
    counts: Counter[str] = field(default_factory=Counter)
    opening_seconds: float = 0.0
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

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

    def ask(self, key: bytes, call: Callable[[], Answer], is_valid: Check = bool) -> Answer:
        """An answer that costs money: of an earlier part, else one that is kept in the output, else
        that of a call, which is kept before it is returned. Threads may ask side by side.

        Args:
            key: names the question, with its texts, and the number of the try.
            call: raises LeftOpenError where it gets no answer.
            is_valid: whether an answer may be used. One that may not counts for its own shard
                alone: every other shard asks again.

        Raises:
            LeftOpenError: the call got no answer, or so did the last calls of this process.
        """
        answer, count = self._known(key), "reused"
        url = ""
        if answer is None and self.kept is not None:
            url, answer = self.kept.find(key, is_valid)
            count = "kept"
        if answer is None:
            answer, count = calls.make(call), "requests"
            if self.kept is not None:
                answer, is_own = self.kept.keep(url, answer)
                self._count("repeated", int(not is_own))
        self._count(count)
        shard_at_work().add(1)
        return answer

    def _known(self, key: bytes) -> Answer | None:
        return next((part[key] for part in self.earlier if key in part), None)

    def _count(self, name: str, count: int = 1) -> None:
        with self._lock:
            self.counts[name] += count

    def opened(self, open_model: Callable[[], _Opened]) -> _Opened:
        """What a function opens, such as a model: its time is not the shard's."""
        start = time.monotonic()
        opened = open_model()
        self.opening_seconds += time.monotonic() - start
        return opened
