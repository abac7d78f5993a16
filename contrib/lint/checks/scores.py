"""Checks of scores. trec_eval 9 holds them in float32, as beamrank does; version 10 in float64."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from beamrank.formats.rows import shown
from contrib.lint.check import Found
from contrib.lint.state import RunState
from contrib.lint.topic_rows import TopicRows, is_score

_CUTOFFS = (10, 100, 1000)


def number_score(topic: TopicRows, _run: RunState) -> Found:
    yield from _each_wrong(
        topic, is_score, "is not a number: trec_eval would read the part that looks like one, such as 1 of 1,5"
    )


def finite_score(topic: TopicRows, _run: RunState) -> Found:
    yield from _each_wrong(topic, lambda text: not is_score(text) or _is_finite(text), "is not finite in float32")


def _is_finite(text: bytes) -> bool:
    return abs(float(text)) <= float(np.finfo(np.float32).max)


def _each_wrong(topic: TopicRows, accepts: Callable[[bytes], bool], reason: str) -> Found:
    if topic.scores is not None or not topic.format.has_scores:
        return
    for line, text in zip(topic.lines, topic.column("score"), strict=True):
        if not accepts(text):
            yield line, f"score {shown(text)} {reason}"


def tied_scores(topic: TopicRows, _run: RunState) -> Found:
    yield from _first_tie(
        topic,
        "float64",
        "rows with the score of the row before",
        "trec_eval orders ties by doc_id, other tools otherwise",
    )


def float32_ties(topic: TopicRows, _run: RunState) -> Found:
    yield from _first_tie(
        topic,
        "float32",
        "scores that are equal in float32 only",
        "trec_eval 9 orders them by doc_id, version 10 by score",
    )


def _first_tie(topic: TopicRows, kind: str, what: str, why: str) -> Found:
    lines = [line for line, tied in zip(*_ties(topic), strict=True) if tied == kind]
    if lines:
        yield lines[0], f"query {topic.shown} has {what}: {len(lines):,}. {why}"


def tie_at_cutoff(topic: TopicRows, _run: RunState) -> Found:
    lines, tied = _ties(topic)
    for cutoff in _CUTOFFS:
        if cutoff <= len(tied) and tied[cutoff - 1]:
            yield (
                lines[cutoff - 1],
                f"ranks {cutoff:,} and {cutoff + 1:,} of query {topic.shown} are tied: a measure with the cutoff "
                f"{cutoff:,} depends on how a tool orders ties",
            )


def _ties(topic: TopicRows) -> tuple[list[int], list[str]]:
    """The line of each row after the first, best first, and how its score ties with the one before."""
    topic = topic.finite
    if topic.scores is None or topic.is_constant:
        return [], []
    narrow = topic.scores.astype(np.float32)
    if len(np.unique(narrow)) == len(narrow):
        return [], []
    order = topic.order
    assert order is not None
    lines = [topic.lines[i] for i in order[1:]]
    return lines, np.where(
        _same(narrow[order]), np.where(_same(topic.scores[order]), "float64", "float32"), ""
    ).tolist()


def _same(scores: NDArray[np.floating]) -> NDArray[np.bool_]:
    return np.asarray(scores[1:] == scores[:-1])
