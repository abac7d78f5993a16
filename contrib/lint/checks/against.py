"""Checks against a first stage and against qrels."""

import numpy as np

from beamrank.evaluation.evaluate import FEWEST_RANKING_JUDGED
from beamrank.formats.rows import shown
from contrib.lint.check import Found
from contrib.lint.id_forms import IdForm, could_be, id_form
from contrib.lint.references import among
from contrib.lint.state import RunState
from contrib.lint.topic_rows import TopicRows


def new_doc(topic: TopicRows, run: RunState) -> Found:
    if run.references.first_stage is None:
        return
    before = run.references.first_stage.get(topic.query_id)
    if before is None:
        yield topic.lines[0], f"query {topic.shown} is not in the first stage"
        return
    for i in np.flatnonzero(~among(topic.doc_hashes, before)):
        yield topic.lines[i], f"doc {shown(topic.doc_ids[i])} of query {topic.shown} is not in the first stage"


def lost_docs(topic: TopicRows, run: RunState) -> Found:
    before = (run.references.first_stage or {}).get(topic.query_id)
    if before is None:
        return
    lost = int(np.count_nonzero(~among(before, np.unique(topic.doc_hashes))))
    if lost:
        yield topic.lines[0], f"query {topic.shown} lacks {lost:,} of the {len(before):,} docs of the first stage"


def lost_topic(run: RunState) -> Found:
    for query_id in sorted((run.references.first_stage or {}).keys() - run.topics.keys()):
        yield 1, f"query {shown(query_id)} of the first stage has no rows"


def missing_judged_topic(run: RunState) -> Found:
    for query_id in sorted((run.references.qrels or {}).keys() - run.topics.keys()):
        yield 1, f"query {shown(query_id)} has judgments and no rows: it counts as 0"


def nothing_judged(run: RunState) -> Found:
    if run.judged_at_10 == 0:
        yield 1, "no doc among the first ten of any query is judged (Judged@10 is 0): do the doc_ids agree?"
    elif run.reached < FEWEST_RANKING_JUDGED * run.judged_topics:
        yield 1, f"a judged doc ranks in {run.reached:,} of {run.judged_topics:,} judged queries: do the doc_ids agree?"


def excluded_doc(topic: TopicRows, run: RunState) -> Found:
    if run.references.excluded is None:
        return
    excluded = {doc_id.encode() for doc_id in run.references.excluded.of(topic.query_id.decode("utf-8", "replace"))}
    for line, doc_id in zip(topic.lines, topic.doc_ids, strict=True):
        if doc_id in excluded:
            yield line, f"doc {shown(doc_id)} of query {topic.shown} is one that --exclude leaves out"


def judged_id_form(topic: TopicRows, run: RunState) -> Found:
    judged = (run.references.qrels or {}).get(topic.query_id)
    if judged is None:
        return
    lost = judged.keys() - set(topic.doc_ids)
    if not lost:
        return
    forms: dict[bytes, list[tuple[int, IdForm]]] = {}
    for i, doc_id in enumerate(topic.doc_ids):
        if doc_id not in judged:
            form = id_form(doc_id)
            forms.setdefault(form.rest, []).append((i, form))
    for doc_id in sorted(lost):
        form_of_judged = id_form(doc_id)
        for i, form in forms.get(form_of_judged.rest, ()):
            # Collections have docs that differ in case only. A run in another case has no judged doc at all (L905).
            if could_be(form, form_of_judged) and topic.doc_ids[i].lower() != doc_id.lower():
                yield (
                    topic.lines[i],
                    f"doc {shown(topic.doc_ids[i])} of query {topic.shown} is not judged, but {shown(doc_id)} is",
                )
