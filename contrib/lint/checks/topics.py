"""Checks of topics."""

from beamrank.formats.ids import IdError, check_query_id
from beamrank.formats.rows import shown
from contrib.lint.check import Found
from contrib.lint.id_forms import id_form
from contrib.lint.state import RunState
from contrib.lint.topic_rows import TopicRows
from contrib.lint.tracks import matches


def unknown_topic(topic: TopicRows, run: RunState) -> Found:
    topics = run.references.topics
    if topics is None or topic.query_id in topics:
        return
    similar = run.references.topic_forms.get(id_form(topic.query_id))
    hint = f"; they have {shown(similar)}" if similar else ""
    yield topic.lines[0], f"query {topic.shown} is not in the topics{hint}"


def missing_topic(run: RunState) -> Found:
    for query_id in sorted((run.references.topics or frozenset()) - run.topics.keys()):
        yield 1, f"query {shown(query_id)} of the topics has no rows"


def topic_returns(topic: TopicRows, _run: RunState) -> Found:
    for line in topic.returns:
        yield line, f"query {topic.shown} comes back after rows of other queries: it began on line {topic.lines[0]}"


def leading_zeros(run: RunState) -> Found:
    first: dict[int, bytes] = {}
    for query_id, facts in run.topics.items():
        if not query_id.isdigit():
            continue
        other = first.setdefault(int(query_id), query_id)
        if other != query_id:
            yield facts.line, f"query {shown(query_id)} differs from query {shown(other)} in leading zeros only"


def usable_query_id(topic: TopicRows, _run: RunState) -> Found:
    try:
        check_query_id(topic.query_id.decode())
    except UnicodeDecodeError:
        return
    except IdError as error:
        yield topic.lines[0], f"the row {error}"


def query_id_pattern(topic: TopicRows, run: RunState) -> Found:
    pattern = run.track.query_id
    if pattern is not None and not matches(pattern, topic.query_id):
        yield topic.lines[0], f"query {topic.shown} does not match {pattern.decode()}, the ids of the track"
