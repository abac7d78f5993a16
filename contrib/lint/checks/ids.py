"""Checks of the ids of topics and docs, and of how many docs a topic has."""

import numpy as np

from beamrank.formats.values import RowError, are_usable, check_id, check_query_id, shown
from contrib.lint.check import Found, RunState, matches
from contrib.lint.references import among, id_form
from contrib.lint.run_rows import TopicRows


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
        yield (
            line,
            f"query {topic.shown} comes back after rows of other queries: it began on "
            f"{topic.place(0)}",
        )


def leading_zeros(run: RunState) -> Found:
    first: dict[bytes, bytes] = {}
    for query_id, facts in run.topics.items():
        if not query_id.isdigit():
            continue
        other = first.setdefault(query_id.lstrip(b"0"), query_id)
        if other != query_id:
            yield (
                facts.line,
                f"query {shown(query_id)} differs from query {shown(other)} in leading zeros only",
            )


def usable_query_id(topic: TopicRows, _run: RunState) -> Found:
    try:
        check_query_id(topic.query_id.decode())
    except UnicodeDecodeError:
        return
    except RowError as error:
        yield topic.lines[0], f"the row {error}"


def query_id_pattern(topic: TopicRows, run: RunState) -> Found:
    pattern = run.track.query_id
    if pattern is not None and not matches(pattern, topic.query_id):
        yield (
            topic.lines[0],
            f"query {topic.shown} does not match {pattern.decode()}, the ids of the track",
        )


def duplicate_doc(topic: TopicRows, _run: RunState) -> Found:
    for first, i in _repeated(topic):
        if topic.rows[first] != topic.rows[i]:
            yield (
                topic.lines[i],
                f"query {topic.shown} has doc {shown(topic.doc_ids[i])} already on "
                f"{topic.place(first)}",
            )


def repeated_row(topic: TopicRows, _run: RunState) -> Found:
    for first, i in _repeated(topic):
        if topic.rows[first] == topic.rows[i]:
            yield topic.lines[i], f"the same row as {topic.place(first)}"


def _repeated(topic: TopicRows) -> list[tuple[int, int]]:
    """For each further row of a doc, the first one's position and its own."""
    if not topic.has_duplicates:
        return []
    first: dict[bytes, int] = {}
    pairs = [(first.setdefault(doc_id, i), i) for i, doc_id in enumerate(topic.doc_ids)]
    return [pair for pair in pairs if pair[0] != pair[1]]


def usable_doc_id(topic: TopicRows, _run: RunState) -> Found:
    texts = [doc_id.decode("utf-8", "backslashreplace") for doc_id in topic.doc_ids]
    if are_usable(texts):
        return
    for line, text in zip(topic.lines, texts, strict=True):
        try:
            check_id(text)
        except RowError as error:
            yield line, f"the row {error}"


def doc_id_pattern(topic: TopicRows, run: RunState) -> Found:
    pattern = run.track.doc_id
    if pattern is None:
        return
    for line, doc_id in zip(topic.lines, topic.doc_ids, strict=True):
        if not matches(pattern, doc_id):
            yield (
                line,
                f"doc {shown(doc_id)} does not match {pattern.decode()}, the ids of the track",
            )


def unknown_doc(topic: TopicRows, run: RunState) -> Found:
    if run.references.docs is None:
        return
    for i in np.flatnonzero(~among(topic.doc_hashes, run.references.docs)):
        yield topic.lines[i], f"doc {shown(topic.doc_ids[i])} is not in the corpus"


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
            yield (
                facts.line,
                f"query {shown(query_id)} has {facts.rows:,} docs: other queries have {most:,}",
            )
