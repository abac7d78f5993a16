"""`beamrank stats` as a user runs it."""

import json

import pytest
from typer.testing import CliRunner

from pipelines.cli import app


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "qrels").write_text("q1 0 a 1\nq2 0 c 1\n")
    (tmp_path / "given.trec").write_text("q1 Q0 a 1 3 t\n")
    (tmp_path / "corpus.tsv").write_text("a\tsome words here\nb\tantidisestablishmentarianism\nc\tmore\n")
    (tmp_path / "topics.tsv").write_text("q1\tone query\nq2\tanother\n")
    (tmp_path / "config.yaml").write_text(
        "corpus: {path: corpus.tsv, format: tsv}\ntopics: {path: topics.tsv, format: tsv}\nqrels: qrels\n"
        "candidates: {run: given.trec, k: 2}\noutput: out\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_stats_counts_words_and_wordpieces():
    done = _run("stats", "config.yaml", "--set", "mono.checkpoint=embedded:mono", "--format", "json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["queries"]["words"]["longest"] == 2
    assert found["docs"]["count"] == 3
    assert found["docs"]["words"] == {
        "shortest": 1,
        "median": 1,
        "mean": pytest.approx(5 / 3),
        "longest": 3,
        "share_beyond": {"64": 0, "512": 0},
    }
    # anti ##dis ##est ##ab ##lish ##ment ##arian ##ism
    assert found["docs"]["wordpieces"]["longest"] == 8
    assert found["qrels"]["labels"] == {"1": 2}


def test_stats_without_checkpoint_and_qrels_counts_words():
    done = _run("stats", "config.yaml", "--set", "qrels=null", "--beyond", "2", "--format", "csv")
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        "note: no qrels: the configuration has no judgments to count",
        "note: no wordpieces: the configuration names no checkpoint (`mono`)",
    ]
    assert done.stdout.splitlines() == [
        "length,count,shortest,median,mean,longest,> 2",
        '"queries, words",2,1,1.5,1.5,2,0.0',
        f'"docs, words",3,1,1.0,{5 / 3},3,{1 / 3}',
    ]


def test_stats_of_a_missing_configuration_fails():
    assert _run("stats", "none.yaml").exception.exit_code == 3
