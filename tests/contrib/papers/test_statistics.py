"""The sizes of a collection, counted by hand."""

import json
import statistics
from typing import Any

import pytest

from beamrank.formats.qrels import qrels_of
from beamrank.formats.texts.units import DocBatch
from beamrank.records import Topic
from contrib.papers.statistics import Distribution, count_words, measure_collection
from tests.support.processes import refused, succeed

TOPICS = [Topic("q1", "one two"), Topic("q2", "one two three four")]
BATCHES = [
    DocBatch(0, ["d1", "d2"], ["a b c", ""], [0, 1]),
    DocBatch(1, ["d3"], ["  a\tb\u00a0c\nd  "], [0]),
]
QRELS = qrels_of({"q1": {"d1": 1, "d9": 0}, "q9": {"d3": 2}})


@pytest.mark.parametrize("values", [[3], [1, 2], [5, 1, 1, 9], [2, 2, 7, 1, 4]])
def test_distribution_equals_statistics(values):
    lengths = Distribution()
    lengths.update(values[:1])
    lengths.update(values[1:])
    assert lengths.statistics() == {
        "shortest": min(values),
        "median": statistics.median(values),
        "mean": pytest.approx(statistics.mean(values)),
        "longest": max(values),
    }
    assert lengths.share_beyond(2) == sum(value > 2 for value in values) / len(values)


def test_distribution_of_nothing_is_undefined():
    lengths = Distribution()
    assert lengths.statistics() == dict.fromkeys(("shortest", "median", "mean", "longest"))
    assert lengths.share_beyond(1) is None


def test_collection_is_counted():
    units = {"words": count_words, "characters": lambda texts: map(len, texts)}
    sizes: Any = measure_collection(TOPICS, iter(BATCHES), QRELS, units, (3,)).as_object()
    assert sizes["queries"] == {
        "count": 2,
        "words": {"shortest": 2, "median": 3, "mean": 3, "longest": 4, "share_beyond": {"3": 0.5}},
        "characters": {
            "shortest": 7,
            "median": 12.5,
            "mean": 12.5,
            "longest": 18,
            "share_beyond": {"3": 1},
        },
    }
    assert sizes["docs"]["count"] == 3
    assert sizes["docs"]["words"]["mean"] == pytest.approx((3 + 0 + 4) / 3)
    assert sizes["qrels"] == {
        "queries": 2,
        "judged_docs": {"shortest": 1, "median": 1.5, "mean": 1.5, "longest": 2},
        "relevant_docs": {"shortest": 1, "median": 1, "mean": 1, "longest": 1},
        "labels": {"0": 1, "1": 1, "2": 1},
        "queries_not_in_topics": 1,
        "docs_not_in_corpus": 1,
    }


def test_table_and_notes_have_what_was_counted():
    sizes = measure_collection(TOPICS, BATCHES, QRELS, {"words": count_words}, (3, 1000))
    assert sizes.table().header == [
        "length",
        "count",
        "shortest",
        "median",
        "mean",
        "longest",
        "> 3",
        "> 1,000",
    ]
    assert sizes.table().shown() == [
        ["queries, words", "2", "2", "3.0", "3.0", "4", "50.00%", "0.00%"],
        ["docs, words", "3", "0", "3.0", "2.3", "4", "33.33%", "0.00%"],
        ["judged docs of a query", "2", "1", "1.5", "1.5", "2", "-", "-"],
        ["relevant docs of a query", "2", "1", "1.0", "1.0", "1", "-", "-"],
        *([f"judgments with label {label}", "1", *["-"] * 6] for label in (0, 1, 2)),
    ]
    assert sizes.lines() == [
        "judged queries that are not among the topics: 1",
        "judged docs that are not in the corpus: 1",
    ]


def test_collection_without_qrels_has_none():
    sizes = measure_collection(TOPICS, BATCHES, None, {"words": count_words})
    assert sizes.as_object()["qrels"] is None
    assert [row[0] for row in sizes.table().rows] == ["queries, words", "docs, words"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "qrels").write_text("q1 0 a 1\nq2 0 c 1\n")
    (tmp_path / "given.trec").write_text("q1 Q0 a 1 3 t\n")
    (tmp_path / "corpus.tsv").write_text(
        "a\tsome words here\nb\tantidisestablishmentarianism\nc\tmore\nbad\n"
    )
    (tmp_path / "topics.tsv").write_text("q1\tone query\nq2\tanother\n")
    (tmp_path / "config.yaml").write_text(
        "corpus: {path: corpus.tsv, format: tsv}\ntopics: {path: topics.tsv, format: tsv}\nqrels: "
        "qrels\ncandidates: {run: given.trec, k: 2}\noutput: out\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_stats_counts_words_and_wordpieces(folder):
    done = succeed(
        "stats", "config.yaml", "--set", "mono.checkpoint=embedded:mono", "--format", "json"
    )
    result = json.loads(done.stdout)
    assert result["queries"]["words"]["longest"] == 2
    assert (result["docs"]["count"], result["bad_rows"]) == (3, 1)
    assert result["docs"]["words"] == {
        "shortest": 1,
        "median": 1,
        "mean": pytest.approx(5 / 3),
        "longest": 3,
        "share_beyond": {"64": 0, "512": 0},
    }
    # anti ##dis ##est ##ab ##lish ##ment ##arian ##ism
    assert result["docs"]["wordpieces"]["longest"] == 8
    assert result["qrels"]["labels"] == {"1": 2}


def test_stats_without_checkpoint_and_qrels_counts_words(folder):
    done = succeed(
        "stats", "config.yaml", "--set", "qrels=null", "--beyond", "2", "--format", "csv"
    )
    assert done.stderr.splitlines() == [
        "note: rows of the corpus that cannot be used: 1",
        "note: no qrels: the configuration has no judgments to count",
        "note: no wordpieces: no stage of the configuration has a checkpoint",
    ]
    assert done.stdout.splitlines() == [
        "length,count,shortest,median,mean,longest,> 2",
        '"queries, words",2,1,1.5,1.5,2,0.0',
        f'"docs, words",3,1,1.0,{5 / 3},3,{1 / 3}',
    ]


def test_stats_of_a_missing_configuration_fails():
    assert "none.yaml" in refused("stats", "none.yaml", code=3)
