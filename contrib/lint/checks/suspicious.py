"""Checks of patterns that a broken job leaves: a constant model, a wrong join, two activations."""

from beamrank.formats.excluded import OWN_DEPTH, OWN_SHARE
from beamrank.formats.rows import shown
from contrib.lint.check import Found
from contrib.lint.state import RunState
from contrib.lint.topic_rows import TopicRows

# Fewer docs or topics than these agree by chance.
_DOCS = 5
_TOPICS = 3
_SCORED_DOCS = 10


def constant_scores(topic: TopicRows, _run: RunState) -> Found:
    if topic.finite.is_constant:
        yield topic.lines[0], f"all {len(topic.finite.rows):,} docs of query {topic.shown} have the same score"


def identical_rankings(run: RunState) -> Found:
    first: dict[int, bytes] = {}
    for query_id, facts in run.topics.items():
        if facts.rows < _DOCS:
            continue
        other = first.setdefault(facts.ranking, query_id)
        if other != query_id:
            yield facts.line, f"query {shown(query_id)} has the same docs in the same order as query {shown(other)}"


def same_first_doc(run: RunState) -> Found:
    docs = {facts.first_doc for facts in run.topics.values()}
    if len(docs) == 1 and len(run.topics) >= _TOPICS:
        yield 1, f"all {len(run.topics):,} queries have the same first doc, {shown(docs.pop())}"


def own_docs(run: RunState) -> Found:
    lines = [facts.own_line for facts in run.topics.values() if facts.own_line is not None]
    # With --exclude self, each of them is a finding of its own.
    if run.references.excluded is None and lines and len(lines) >= OWN_SHARE * len(run.topics):
        yield (
            lines[0],
            f"the doc of the query's own id is among the first {OWN_DEPTH} of {len(lines):,} of {len(run.topics):,} "
            "queries: where queries are docs, as in ArguAna and Quora, BEIR and MTEB leave that doc out",
        )


def mixed_activations(run: RunState) -> Found:
    ranges = {
        query_id: facts.scores
        for query_id, facts in run.topics.items()
        if facts.scores is not None and facts.rows >= _SCORED_DOCS and facts.scores[0] < facts.scores[1]
    }
    inside = [query_id for query_id, (low, high) in ranges.items() if low >= 0 and high <= 1]
    outside = [query_id for query_id in ranges if query_id not in set(inside)]
    if not inside or not outside:
        return
    rare = min(inside, outside, key=len)
    for query_id in rare:
        low, high = ranges[query_id]
        where = "lie between 0 and 1, unlike those of other queries" if rare is inside else "do not lie between 0 and 1"
        yield run.topics[query_id].line, f"the scores of query {shown(query_id)}, from {low:.4g} to {high:.4g}, {where}"
