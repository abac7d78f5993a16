"""Checks of ranks. trec_eval reads the scores and ignores ranks; other tools do the opposite, or read line by line."""

import numpy as np

from beamrank.formats.rows import shown
from contrib.lint.check import Found
from contrib.lint.state import RunState
from contrib.lint.topic_rows import TopicRows, is_rank

_DISTANCES = ". All are: are these distances? A higher score must be better"


def whole_rank(topic: TopicRows, _run: RunState) -> Found:
    if topic.ranks is not None:
        return
    for line, text in zip(topic.lines, topic.column("rank"), strict=True):
        if not is_rank(text):
            yield line, f"rank {shown(text)} is not a whole number: the ranks of its query are not compared"


def first_rank(topic: TopicRows, run: RunState) -> Found:
    if topic.ranks is None:
        return
    at = int(topic.ranks.argmin())
    accepted = run.track.first_ranks
    if topic.ranks[at] not in accepted:
        wanted = " or ".join(map(str, accepted))
        yield topic.lines[at], f"the first rank of query {topic.shown} is {topic.ranks[at]}, not {wanted}"


def rank_gaps(topic: TopicRows, _run: RunState) -> Found:
    if topic.ranks is None:
        return
    ordered = np.argsort(topic.ranks, kind="stable")
    ranks = topic.ranks[ordered]
    gaps = np.flatnonzero(np.diff(ranks) > 1)
    if len(gaps):
        line = topic.lines[ordered[gaps[0] + 1]]
        yield line, f"no row of query {topic.shown} has rank {ranks[gaps[0]] + 1} (gaps in its ranks: {len(gaps):,})"


def equal_ranks(topic: TopicRows, _run: RunState) -> Found:
    if topic.ranks is None:
        return
    ordered = np.argsort(topic.ranks, kind="stable")
    for at in np.flatnonzero(np.diff(topic.ranks[ordered]) == 0):
        first, second = ordered[at], ordered[at + 1]
        yield (
            topic.lines[second],
            f"query {topic.shown} has rank {topic.ranks[first]} already on line {topic.lines[first]}",
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
            f"query {topic.shown} has a higher score here than at the rank above (rows like this: {len(wrong):,}): "
            f"trec_eval orders by score, other tools by rank{_DISTANCES if len(wrong) == len(ranks) - 1 > 1 else ''}",
        )


def line_order(topic: TopicRows, _run: RunState) -> Found:
    if topic.ranks is None:
        return
    wrong = np.flatnonzero(np.diff(topic.ranks) < 0)
    if len(wrong):
        line = topic.lines[wrong[0] + 1]
        yield line, f"the rows of query {topic.shown} are not in the order of their ranks: some tools read line by line"
