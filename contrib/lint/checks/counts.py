"""Checks of how many docs a topic has."""

from beamrank.formats.rows import shown
from contrib.lint.check import Found
from contrib.lint.state import RunState
from contrib.lint.topic_rows import TopicRows


def too_many_docs(topic: TopicRows, run: RunState) -> Found:
    most = run.track.max_docs
    if most is not None and len(topic.rows) > most:
        line = topic.lines[most]
        yield line, f"query {topic.shown} has {len(topic.rows):,} docs: the track accepts {most:,}"


def fewer_docs(run: RunState) -> Found:
    if run.track.max_docs is None or not run.topics:
        return
    most = max(facts.rows for facts in run.topics.values())
    for query_id, facts in run.topics.items():
        if facts.rows < min(most, run.track.max_docs):
            yield facts.line, f"query {shown(query_id)} has {facts.rows:,} docs: other queries have {most:,}"
