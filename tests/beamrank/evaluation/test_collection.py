"""The sizes of a collection, counted by hand."""

import statistics
from typing import Any

import pytest

from beamrank.evaluation.collection import Distribution, count_words, measure_collection
from beamrank.formats.corpora import DocBatch
from beamrank.formats.qrels import qrels_of
from beamrank.records import BadRow, Topic

TOPICS = [Topic("q1", "one two"), Topic("q2", "one two three four")]
BATCHES = [
    DocBatch(0, ["d1", "d2"], ["a b c", ""], [0, 1], [BadRow("corpus:3", "no text")]),
    DocBatch(1, ["d3"], ["  a\tb\u00a0c\nd  "], [0]),
]
QRELS = qrels_of({"q1": {"d1": 1, "d9": 0}, "q9": {"d3": 2}})


@pytest.mark.parametrize("values", [[3], [1, 2], [5, 1, 1, 9], [2, 2, 7, 1, 4]])
def test_distribution_equals_statistics(values):
    found = Distribution()
    found.add(values[:1])
    found.add(values[1:])
    assert found.count == len(values)
    assert (found.shortest, found.longest) == (min(values), max(values))
    assert found.median == statistics.median(values)
    assert found.mean == pytest.approx(statistics.mean(values))
    assert found.share_beyond(2) == sum(value > 2 for value in values) / len(values)


def test_distribution_of_nothing_is_undefined():
    found = Distribution()
    assert found.as_object() == dict.fromkeys(("shortest", "median", "mean", "longest"))
    assert (found.count, found.share_beyond(1)) == (0, None)


def test_collection_is_counted():
    units = {"words": count_words, "characters": lambda texts: map(len, texts)}
    found: Any = measure_collection(TOPICS, iter(BATCHES), QRELS, units, (3,)).as_object()
    assert found["queries"] == {
        "count": 2,
        "words": {"shortest": 2, "median": 3, "mean": 3, "longest": 4, "share_beyond": {"3": 0.5}},
        "characters": {"shortest": 7, "median": 12.5, "mean": 12.5, "longest": 18, "share_beyond": {"3": 1}},
    }
    assert found["docs"]["count"] == 3
    assert found["docs"]["words"]["mean"] == pytest.approx((3 + 0 + 4) / 3)
    assert found["bad_rows"] == 1
    assert found["qrels"] == {
        "queries": 2,
        "judged_docs": {"shortest": 1, "median": 1.5, "mean": 1.5, "longest": 2},
        "relevant_docs": {"shortest": 1, "median": 1, "mean": 1, "longest": 1},
        "labels": {"0": 1, "1": 1, "2": 1},
        "queries_not_in_topics": 1,
        "docs_not_in_corpus": 1,
    }


def test_table_and_notes_have_what_was_counted():
    found = measure_collection(TOPICS, BATCHES, QRELS, {"words": count_words}, (3, 1000))
    assert found.table().header == ["length", "count", "shortest", "median", "mean", "longest", "> 3", "> 1,000"]
    assert found.table().shown() == [
        ["queries, words", "2", "2", "3.0", "3.0", "4", "50.00%", "0.00%"],
        ["docs, words", "3", "0", "3.0", "2.3", "4", "33.33%", "0.00%"],
        ["judged docs of a query", "2", "1", "1.5", "1.5", "2", "-", "-"],
        ["relevant docs of a query", "2", "1", "1.0", "1.0", "1", "-", "-"],
        *([f"judgments with label {label}", "1", *["-"] * 6] for label in (0, 1, 2)),
    ]
    assert found.lines() == [
        "rows of the corpus that cannot be used: 1",
        "judged queries that are not among the topics: 1",
        "judged docs that are not in the corpus: 1",
    ]


def test_collection_without_qrels_has_none():
    found = measure_collection(TOPICS, BATCHES, None, {"words": count_words})
    assert found.as_object()["qrels"] is None
    assert [row[0] for row in found.table().rows] == ["queries, words", "docs, words"]
