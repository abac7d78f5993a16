"""The rows of one topic, in columns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamrank.formats.checks import shown
from beamrank.formats.run_writer import RunFormat
from beamrank.formats.runs import Indices, score_order


@dataclass
class TopicRows:
    """All rows of one topic, in the order of the file.

    Attributes:
        query_id: the topic.
        format: the format of the run.
        rows: the columns of each row.
        lines: the line of each row.
        returns: the lines on which the topic comes back after rows of other topics.
    """

    query_id: bytes
    format: RunFormat
    rows: list[list[bytes]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    returns: Sequence[int] = ()

    def column(self, name: str) -> list[bytes]:
        """The texts of a column."""
        at = self.format.columns.index(name)
        return [row[at] for row in self.rows]

    @property
    def shown(self) -> str:
        """The query_id for a message."""
        return shown(self.query_id)

    @cached_property
    def doc_ids(self) -> list[bytes]:
        """The docs."""
        return self.column("doc_id")

    @cached_property
    def doc_hashes(self) -> NDArray[np.int64]:
        """The hash of each doc_id; it differs from process to process."""
        return np.fromiter(map(hash, self.doc_ids), np.int64, len(self.doc_ids))

    @cached_property
    def has_duplicates(self) -> bool:
        """Whether a doc has two rows."""
        return len(set(self.doc_ids)) < len(self.doc_ids)

    @cached_property
    def ranks(self) -> NDArray[np.int64] | None:
        """The ranks; None if one is not a whole number."""
        return _numbers(int, self.column("rank"), "q")

    @cached_property
    def scores(self) -> NDArray[np.float64] | None:
        """The scores; None if the format has none, or one is not a finite number in float32."""
        return _finite(self.column("score")) if self.format.has_scores else None

    @cached_property
    def finite(self) -> "TopicRows":
        """The rows with finite scores, which are compared; all if the format has none."""
        if self.scores is not None or not self.format.has_scores:
            return self
        texts = self.column("score")
        kept = [place for place, text in enumerate(texts) if _finite([text]) is not None]
        return TopicRows(
            self.query_id, self.format, [self.rows[i] for i in kept], [self.lines[i] for i in kept], self.returns
        )

    @cached_property
    def is_constant(self) -> bool:
        """Whether three or more docs all have the same score."""
        scores = self.scores
        return scores is not None and len(scores) > 2 and len(np.unique(scores.astype(np.float32))) == 1

    @cached_property
    def order(self) -> Indices | None:
        """The rows in the order of an evaluation (`read_run`), best first; None if a number is missing for it."""
        if not self.format.has_scores:
            return None if self.ranks is None else np.argsort(self.ranks, kind="stable")
        return None if self.scores is None else score_order(self.scores.astype(np.float32), self.doc_ids)


def _numbers(kind: Callable[[bytes], float], texts: Sequence[bytes], dtype: str) -> NDArray[Any] | None:
    try:
        return None if b"_" in b"".join(texts) else np.fromiter(map(kind, texts), dtype, len(texts))
    except (ValueError, OverflowError):
        return None


def _finite(texts: Sequence[bytes]) -> NDArray[np.float64] | None:
    """Scores; None if one is not a finite number in float32."""
    found = _numbers(float, texts, "d")
    if found is None:
        return None
    with np.errstate(over="ignore"):
        return found if np.isfinite(found.astype(np.float32)).all() else None


def is_rank(text: bytes) -> bool:
    """Whether a column is a whole number that `read_run` reads."""
    return _numbers(int, [text], "q") is not None


def is_score(text: bytes) -> bool:
    """Whether a column is a number that `read_run` reads, finite or not."""
    return _numbers(float, [text], "d") is not None
