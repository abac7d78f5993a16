"""`beamrank compare`, `fuse` and `stats` as a user runs them."""

import csv
import io
import json

import pytest
from typer.testing import CliRunner

from beamrank.errors import BeamrankError
from beamrank.evaluation import fusion, significance
from pipelines.cli import app

BASE = "q1 Q0 a 1 3 t\nq1 Q0 b 2 2 t\nq2 Q0 c 1 3 t\nq2 Q0 d 2 2 t\n"
OTHER = "q1 Q0 b 1 3 t\nq1 Q0 a 2 2 t\nq2 Q0 c 1 3 t\nq2 Q0 d 2 2 t\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "base.trec").write_text(BASE)
    (tmp_path / "other.trec").write_text(OTHER)
    (tmp_path / "third.tsv").write_text("q1\tb\t1\nq1\tc\t2\n")
    (tmp_path / "qrels").write_text("q1 0 a 1\nq2 0 c 1\n")
    (tmp_path / "corpus.tsv").write_text("a\tsome words here\nb\tantidisestablishmentarianism\nc\tmore\n")
    (tmp_path / "topics.tsv").write_text("q1\tone query\nq2\tanother\n")
    (tmp_path / "config.yaml").write_text(
        "corpus: {path: corpus.tsv, format: tsv}\ntopics: {path: topics.tsv, format: tsv}\nqrels: qrels\n"
        "candidates: {run: base.trec, k: 2}\noutput: out\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_compare_prints_a_row_for_each_run_and_measure():
    done = _run("compare", "base.trec", "other.trec", "--qrels", "qrels", "--measures", "RR@10 Judged@10")
    assert done.exit_code == 0
    header, *rows = (line.split("\t") for line in done.stdout.splitlines())
    assert header == ["run", "measure", "mean", "diff", "p", "p (holm)", "wins", "ties", "losses"]
    assert [row[:4] + row[6:] for row in rows[:2]] == [
        ["base.trec", "RR@10", "1.0", "", "", "", ""],
        ["other.trec", "RR@10", "0.75", "-0.25", "0", "1", "1"],
    ]
    assert 0 < float(rows[1][4]) == float(rows[1][5]) < 1
    assert [row[:3] for row in rows[2:]] == [
        ["base.trec", "Judged@10", "0.5"],
        ["other.trec", "Judged@10", "0.5"],
        ["other.trec", "RBO", repr((0.9 + 1) / 2)],
        ["other.trec", "tau", "0.0"],
        ["other.trec", "overlap@10", "1.0"],
    ]


def test_compare_prints_one_result_in_every_format():
    asked = ("compare", "other.trec", "--baseline", "base.trec", "--qrels", "qrels", "--test", "randomization")
    found = json.loads(_run(*asked, "--format", "json").stdout)
    assert (found["baseline"], found["queries"], found["test"]) == ("base.trec", 2, "randomization")
    assert found["runs"][0]["measures"]["Judged@10"] == 0.5
    assert found["runs"][1]["differences"]["RR@10"]["p_value"] == 1
    assert found["runs"][1]["differences"]["R@1000"]["p_value"] is None
    rows = list(csv.DictReader(io.StringIO(_run(*asked, "--format", "csv").stdout)))
    (row,) = (row for row in rows if (row["run"], row["measure"]) == ("other.trec", "AP"))
    assert (row["mean"], row["losses"]) == (str(found["runs"][1]["measures"]["AP"]), "1")
    assert "| other.trec | AP | 0.7500 | -0.2500 |" in _run(*asked, "--format", "markdown").stdout
    assert r"other.trec & AP & 0.7500 & -0.2500 & 1 & 1 & 0 & 1 & 1 \\" in _run(*asked, "--format", "latex").stdout


def test_compare_explains_what_is_missing():
    done = _run("compare", "base.trec", "third.tsv", "--measures", "recip_rank")
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        "note: recip_rank is trec_eval's name for RR",
        "note: no qrels: measures, differences and tests need judgments (--qrels)",
        "note: third.tsv: topics that only this run or the baseline has: 1; the agreement leaves them out",
    ]
    (_, name, value), tau, overlap = (line.split("\t") for line in done.stdout.splitlines()[1:])
    # They share b, second in one and first in the other: of depth 2 on half.
    assert (name, float(value)) == ("RBO", pytest.approx(0.45))
    assert (tau, overlap) == (["third.tsv", "tau", ""], ["third.tsv", "overlap@10", "0.5"])


def test_fuse_writes_a_run_that_eval_reads(folder):
    done = _run("fuse", "base.trec", "other.trec", "third.tsv", "--method", "rrf", "--output", "fused.trec")
    assert (done.exit_code, done.stdout) == (0, "fused.trec\n")
    assert done.stderr == "note: third.tsv lacks topics of the other runs: 1; there it adds nothing\n"
    rows = [line.split() for line in (folder / "fused.trec").read_text().splitlines()]
    assert [row[:4] + row[5:] for row in rows] == [
        [query_id, "Q0", doc_id, str(rank), "fused-rrf"]
        for query_id, docs in (("q1", "bac"), ("q2", "cd"))
        for rank, doc_id in enumerate(docs, 1)
    ]
    assert float(rows[0][4]) == pytest.approx(1 / 62 + 2 / 61)
    again = (folder / "fused.trec").read_bytes()
    _run("fuse", "base.trec", "other.trec", "third.tsv", "--method", "rrf", "--output", "fused.trec")
    assert (folder / "fused.trec").read_bytes() == again
    assert json.loads(_run("eval", "fused.trec", "--qrels", "qrels", "--json").stdout)["measures"]["RR@10"] == 0.75


def test_fuse_takes_weights_a_normalization_a_depth_and_a_tag(folder):
    options = ["--weights", "1,3", "--norm", "none", "--k", "1", "--tag", "mine", "--output", "fused.trec"]
    done = _run("fuse", "base.trec", "third.tsv", "--method", "wsum", *options)
    assert done.exit_code == 0
    assert "note: third.tsv has no scores: minus its ranks are taken for them" in done.stderr
    assert (folder / "fused.trec").read_text() == "q1 Q0 a 1 3 mine\nq2 Q0 c 1 3 mine\n"


def test_methods_tests_and_corrections_defined_outside_the_package_are_used(folder, monkeypatch):
    monkeypatch.setitem(fusion.METHODS, "combmax", fusion.Method(max))
    done = _run("fuse", "base.trec", "other.trec", "--method", "combmax", "--norm", "none", "--output", "fused.trec")
    assert done.exit_code == 0
    assert (
        (folder / "fused.trec").read_text().startswith("q1 Q0 a 1 3 fused-combmax\nq1 Q0 b 2 2.99998999 fused-combmax")
    )
    monkeypatch.setitem(significance.TESTS, "coin", lambda run, baseline: 0.25)
    monkeypatch.setitem(significance.CORRECTIONS, "double", lambda p_values: [2 * p_value for p_value in p_values])
    asked = ("compare", "base.trec", "other.trec", "--qrels", "qrels", "--test", "coin", "--correction", "double")
    found = json.loads(_run(*asked, "--format", "json").stdout)["runs"][1]["differences"]["AP"]
    assert (found["p_value"], found["corrected_p_value"]) == (0.25, 0.5)


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


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["compare", "base.trec"], 2, "give two runs or more, or one and a --baseline"),
        (["compare", "base.trec", "none"], 3, "there is no file none"),
        (["compare", "base.trec", "other.trec", "--test", "x"], 2, "choose one of t-test, randomization"),
        (["compare", "base.trec", "other.trec", "--correction", "x"], 2, "choose one of holm, bonferroni, none"),
        (["compare", "base.trec", "other.trec", "--format", "x"], 2, "choose one of table, latex, markdown, csv, json"),
        (["fuse", "base.trec", "--method", "rrf", "--output", "o"], 2, "give two runs or more"),
        (["fuse", "base.trec", "other.trec", "--method", "x", "--output", "o"], 2, "choose one of rrf, combsum"),
        (["fuse", "base.trec", "base.trec", "--method", "rrf", "--output", "./base.trec"], 2, "is one of the runs"),
        (["fuse", "base.trec", "a", "--method", "rrf", "--output", "."], 2, "is a folder: give the path of a file"),
        (["fuse", "base.trec", "a", "--method", "wsum", "--weights", "1,x", "--output", "o"], 2, "must be numbers"),
        (["fuse", "base.trec", "a", "--method", "rrf", "--tag", "a b", "--output", "o"], 2, "no white space"),
        (["fuse", "base.trec", "none", "--method", "rrf", "--output", "o"], 3, "there is no file none"),
        (["stats", "none.yaml"], 3, "none.yaml"),
    ],
)
def test_errors_have_their_exit_codes(folder, arguments, code, message):
    done = _run(*arguments)
    assert isinstance(done.exception, BeamrankError), done.exception
    assert (done.exception.exit_code, done.stdout) == (code, "")
    assert message in str(done.exception)
    assert (folder / "base.trec").read_text() == BASE
    assert not (folder / "o").exists()
