"""Checks of ranks and scores."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from beamrank.formats.values import shown
from contrib.lint.check import Found, RunState
from contrib.lint.run_rows import TopicRows, is_rank, is_score

_DISTANCES = ". All are: are these distances? A higher score must be better"


def whole_rank(topic: TopicRows, _run: RunState) -> Found:
    if topic.ranks is not None or "rank" not in topic.format.columns:
        return
    for line, text in zip(topic.lines, topic.column("rank"), strict=True):
        if not is_rank(text):
            yield (
                line,
                f"rank {shown(text)} is not a whole number: the ranks of its query are not "
                "compared",
            )


def first_rank(topic: TopicRows, run: RunState) -> Found:
    if topic.ranks is None:
        return
    at = int(topic.ranks.argmin())
    accepted = run.track.first_ranks
    if topic.ranks[at] not in accepted:
        expected = " or ".join(map(str, accepted))
        yield (
            topic.lines[at],
            f"the first rank of query {topic.shown} is {topic.ranks[at]}, not {expected}",
        )


def rank_gaps(topic: TopicRows, _run: RunState) -> Found:
    if topic.ranks is None:
        return
    ordered = np.argsort(topic.ranks, kind="stable")
    ranks = topic.ranks[ordered]
    gaps = np.flatnonzero(np.diff(ranks) > 1)
    if len(gaps):
        line = topic.lines[ordered[gaps[0] + 1]]
        yield (
            line,
            f"no row of query {topic.shown} has rank {ranks[gaps[0]] + 1} (gaps in its ranks: "
            f"{len(gaps):,})",
        )


def equal_ranks(topic: TopicRows, _run: RunState) -> Found:
    if topic.ranks is None:
        return
    ordered = np.argsort(topic.ranks, kind="stable")
    for at in np.flatnonzero(np.diff(topic.ranks[ordered]) == 0):
        first, second = ordered[at], ordered[at + 1]
        yield (
            topic.lines[second],
            f"query {topic.shown} has rank {topic.ranks[first]} already on {topic.place(first)}",
        )


def ranks_against_scores(topic: TopicRows, _run: RunState) -> Found:
    topic = topic.finite
    if topic.ranks is None or topic.scores is None:
        return
    ordered = np.argsort(topic.ranks, kind="stable")
    ranks, scores = topic.ranks[ordered], topic.scores[ordered].astype(np.float32)
    wrong = np.flatnonzero((np.diff(scores) > 0) & (np.diff(ranks) > 0))
    if len(wrong):
        yield (
            topic.lines[ordered[wrong[0] + 1]],
            f"query {topic.shown} has a higher score here than at the rank above (rows like this: "
            f"{len(wrong):,}): trec_eval orders by score, other tools by "
            f"rank{_DISTANCES if len(wrong) == len(ranks) - 1 > 1 else ''}",
        )


def line_order(topic: TopicRows, _run: RunState) -> Found:
    if topic.ranks is None:
        return
    wrong = np.flatnonzero(np.diff(topic.ranks) < 0)
    if len(wrong):
        line = topic.lines[wrong[0] + 1]
        yield (
            line,
            f"the rows of query {topic.shown} are not in the order of their ranks: some tools "
            "read line by line",
        )


_CUTOFFS = (10, 100, 1000)


def number_score(topic: TopicRows, _run: RunState) -> Found:
    yield from _each_wrong(
        topic,
        is_score,
        "is not a number: trec_eval would read the part that looks like one, such as 1 of 1,5",
    )


def finite_score(topic: TopicRows, _run: RunState) -> Found:
    yield from _each_wrong(
        topic, lambda text: not is_score(text) or _is_finite(text), "is not finite in float32"
    )


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
                f"ranks {cutoff:,} and {cutoff + 1:,} of query {topic.shown} are tied: a measure "
                f"with the cutoff {cutoff:,} depends on how a tool orders ties",
            )


def _ties(topic: TopicRows) -> tuple[list[int], list[str]]:
    """The line of each row after the first, best first, and how its score ties with the one
    before.
    """
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
