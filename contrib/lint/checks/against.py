"""Checks against other files, and of patterns that a broken job leaves: a constant model, a wrong
join.
"""

import numpy as np

from beamrank.evaluation.evaluate import FEWEST_RANKING_JUDGED
from beamrank.formats.excluded import OWN_DEPTH, OWN_SHARE
from beamrank.formats.values import shown
from contrib.lint.check import Found, RunState
from contrib.lint.references import IdForm, among, could_be, id_form
from contrib.lint.run_rows import TopicRows


def new_doc(topic: TopicRows, run: RunState) -> Found:
    if run.references.first_stage is None:
        return
    before = run.references.first_stage.get(topic.query_id)
    if before is None:
        yield topic.lines[0], f"query {topic.shown} is not in the first stage"
        return
    for i in np.flatnonzero(~among(topic.doc_hashes, before)):
        yield (
            topic.lines[i],
            f"doc {shown(topic.doc_ids[i])} of query {topic.shown} is not in the first stage",
        )


def lost_docs(topic: TopicRows, run: RunState) -> Found:
    before = (run.references.first_stage or {}).get(topic.query_id)
    if before is None:
        return
    lost = int(np.count_nonzero(~among(before, np.unique(topic.doc_hashes))))
    if lost:
        yield (
            topic.lines[0],
            f"query {topic.shown} lacks {lost:,} of the {len(before):,} docs of the first stage",
        )


def lost_topic(run: RunState) -> Found:
    for query_id in sorted((run.references.first_stage or {}).keys() - run.topics.keys()):
        yield 1, f"query {shown(query_id)} of the first stage has no rows"


def missing_judged_topic(run: RunState) -> Found:
    for query_id in sorted((run.references.qrels or {}).keys() - run.topics.keys()):
        yield 1, f"query {shown(query_id)} has judgments and no rows: it counts as 0"


def nothing_judged(run: RunState) -> Found:
    if run.judged_at_10 == 0:
        yield (
            1,
            "no doc among the first ten of any query is judged (Judged@10 is 0): do the doc_ids "
            "agree?",
        )
    elif run.reached < FEWEST_RANKING_JUDGED * run.judged_topics:
        yield (
            1,
            f"a judged doc ranks in {run.reached:,} of {run.judged_topics:,} judged queries: do "
            "the doc_ids agree?",
        )


def excluded_doc(topic: TopicRows, run: RunState) -> Found:
    if run.references.excluded is None:
        return
    excluded = {
        doc_id.encode()
        for doc_id in run.references.excluded.of(topic.query_id.decode("utf-8", "replace"))
    }
    for line, doc_id in zip(topic.lines, topic.doc_ids, strict=True):
        if doc_id in excluded:
            yield (
                line,
                f"doc {shown(doc_id)} of query {topic.shown} is one that --exclude leaves out",
            )


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
            # Collections have docs that differ in case only. A run in a different case has no
            # judged doc at all (L905).
            if could_be(form, form_of_judged) and topic.doc_ids[i].lower() != doc_id.lower():
                yield (
                    topic.lines[i],
                    f"doc {shown(topic.doc_ids[i])} of query {topic.shown} is not judged, but "
                    f"{shown(doc_id)} is",
                )


# Fewer docs or topics than these agree by chance.
_DOCS = 5
_TOPICS = 3
_SCORED_DOCS = 10


def constant_scores(topic: TopicRows, _run: RunState) -> Found:
    if topic.finite.is_constant:
        yield (
            topic.lines[0],
            f"all {len(topic.finite.rows):,} docs of query {topic.shown} have the same score",
        )


def identical_rankings(run: RunState) -> Found:
    first: dict[int, bytes] = {}
    for query_id, facts in run.topics.items():
        if facts.rows < _DOCS:
            continue
        other = first.setdefault(facts.ranking, query_id)
        if other != query_id:
            yield (
                facts.line,
                f"query {shown(query_id)} has the same docs in the same order as query "
                f"{shown(other)}",
            )


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
            f"the doc of the query's own id is among the first {OWN_DEPTH} of {len(lines):,} of "
            f"{len(run.topics):,} queries: where queries are docs, as in ArguAna and Quora, BEIR "
            "and MTEB leave that doc out",
        )


def mixed_activations(run: RunState) -> Found:
    ranges = {
        query_id: facts.scores
        for query_id, facts in run.topics.items()
        if facts.scores is not None
        and facts.rows >= _SCORED_DOCS
        and facts.scores[0] < facts.scores[1]
    }
    inside = [query_id for query_id, (low, high) in ranges.items() if low >= 0 and high <= 1]
    outside = [query_id for query_id in ranges if query_id not in set(inside)]
    if not inside or not outside:
        return
    rare = min(inside, outside, key=len)
    for query_id in rare:
        low, high = ranges[query_id]
        where = (
            "lie between 0 and 1, unlike the scores of other queries"
            if rare is inside
            else "do not lie between 0 and 1"
        )
        yield (
            run.topics[query_id].line,
            f"the scores of query {shown(query_id)}, from {low:.4g} to {high:.4g}, {where}",
        )
