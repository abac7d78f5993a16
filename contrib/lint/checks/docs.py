"""Checks of doc_ids."""

import numpy as np

from beamrank.formats.ids import IdError, are_usable, check_doc_id
from beamrank.formats.rows import shown
from contrib.lint.check import Found
from contrib.lint.references import among
from contrib.lint.state import RunState
from contrib.lint.topic_rows import TopicRows
from contrib.lint.tracks import matches


def duplicate_doc(topic: TopicRows, _run: RunState) -> Found:
    for first, i in _repeated(topic):
        if topic.rows[first] != topic.rows[i]:
            yield (
                topic.lines[i],
                f"query {topic.shown} has doc {shown(topic.doc_ids[i])} already on line {topic.lines[first]}",
            )


def repeated_row(topic: TopicRows, _run: RunState) -> Found:
    for first, i in _repeated(topic):
        if topic.rows[first] == topic.rows[i]:
            yield topic.lines[i], f"the same row as line {topic.lines[first]}"


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
            check_doc_id(text)
        except IdError as error:
            yield line, f"the row {error}"


def doc_id_pattern(topic: TopicRows, run: RunState) -> Found:
    pattern = run.track.doc_id
    if pattern is None:
        return
    for line, doc_id in zip(topic.lines, topic.doc_ids, strict=True):
        if not matches(pattern, doc_id):
            yield line, f"doc {shown(doc_id)} does not match {pattern.decode()}, the ids of the track"


def unknown_doc(topic: TopicRows, run: RunState) -> Found:
    if run.references.docs is None:
        return
    for i in np.flatnonzero(~among(topic.doc_hashes, run.references.docs)):
        yield topic.lines[i], f"doc {shown(topic.doc_ids[i])} is not in the corpus"
