"""`beamrank compare` as a user runs it."""

import csv
import io
import json

import pytest

from beamrank.evaluation import significance
from tests.support.processes import refused, succeed

pytestmark = pytest.mark.usefixtures("two_runs")


def test_compare_prints_a_row_for_each_run_and_measure():
    asked = (
        "compare",
        "base.trec",
        "other.trec",
        "--qrels",
        "qrels",
        "--measures",
        "RR@10 Judged@10",
    )
    done = succeed(*asked, "--agreement")
    assert succeed(*asked).stdout.splitlines() == done.stdout.splitlines()[:-3]
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
    asked = (
        "compare",
        "other.trec",
        "--baseline",
        "base.trec",
        "--qrels",
        "qrels",
        "--test",
        "randomization",
    )
    found = json.loads(succeed(*asked, "--format", "json").stdout)
    assert (found["baseline"], found["queries"], found["test"]) == ("base.trec", 2, "randomization")
    assert found["runs"][0]["measures"]["Judged@10"] == 0.5
    assert found["runs"][1]["differences"]["RR@10"]["p_value"] == 1
    assert found["runs"][1]["differences"]["R@1000"]["p_value"] is None
    rows = list(csv.DictReader(io.StringIO(succeed(*asked, "--format", "csv").stdout)))
    (row,) = (row for row in rows if (row["run"], row["measure"]) == ("other.trec", "AP"))
    assert (row["mean"], row["losses"]) == (str(found["runs"][1]["measures"]["AP"]), "1")
    assert (
        "| other.trec | AP | 0.7500 | -0.2500 |" in succeed(*asked, "--format", "markdown").stdout
    )
    assert (
        r"other.trec & AP & 0.7500 & -0.2500 & 1 & 1 & 0 & 1 & 1 \\"
        in succeed(*asked, "--format", "latex").stdout
    )


def test_compare_explains_what_is_missing():
    done = succeed("compare", "base.trec", "third.tsv", "--measures", "recip_rank")
    assert done.stderr.splitlines() == [
        "note: recip_rank is trec_eval's name for RR",
        "note: no qrels: measures, differences and tests need judgments (--qrels)",
        "note: third.tsv: topics that only this run or the baseline has: 1; the agreement leaves "
        "them out",
    ]
    (_, name, value), tau, overlap = (line.split("\t") for line in done.stdout.splitlines()[1:])
    # They share b, second in one and first in the other: of depth 2 on half.
    assert (name, float(value)) == ("RBO", pytest.approx(0.45))
    assert (tau, overlap) == (["third.tsv", "tau", ""], ["third.tsv", "overlap@10", "0.5"])


def test_compare_gives_runs_the_names_that_are_asked_for():
    asked = (
        "compare",
        "other.trec",
        "--baseline",
        "base.trec",
        "--qrels",
        "qrels",
        "--measures",
        "RR@10",
    )
    done = succeed(*asked, "--names", "ours, theirs")
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["run", "theirs", "ours"]
    found = json.loads(succeed(*asked, "--names", "ours,theirs", "--format", "json").stdout)["runs"]
    assert [(each["name"], each["run"]) for each in found] == [
        ("theirs", "base.trec"),
        ("ours", "other.trec"),
    ]
    for wrong in ("ours", "a,a", "a,", "a,b,c"):
        assert "--names" in refused(*asked, "--names", wrong, code=2)


def test_compare_says_once_what_several_runs_have(two_runs):
    (two_runs / "qrels").write_text("q1 0 a 1\nq2 0 c 1\nq3 0 a 1\nq4 0 a 1\nq5 0 a 1\n")
    done = succeed(
        "compare", "base.trec", "other.trec", "third.tsv", "--qrels", "qrels", "--measures", "RR@10"
    )
    assert [line for line in done.stderr.splitlines() if "not in the run" in line] == [
        "note: judged topics that are not in the run: base.trec 3 of 5 ('q3', 'q4', 'q5'), "
        "other.trec 3 of 5 ('q3', 'q4', 'q5'), third.tsv 4 of 5 ('q2', 'q3', 'q4', ...); they "
        "count as 0"
    ]
    assert done.stderr.count("warning: base.trec: judged topics that are in the run: 2 of 5") == 1


def test_compare_leaves_docs_out(two_runs):
    (two_runs / "pairs").write_text("q1 b\n")
    asked = ("compare", "base.trec", "other.trec", "--qrels", "qrels", "--measures", "RR@10")
    means = [
        line.split("\t")[2]
        for line in succeed(*asked, "--exclude", "pairs").stdout.splitlines()[1:]
    ]
    assert means == ["1.0", "1.0"]


def test_test_and_correction_defined_outside_the_package_are_used(monkeypatch):
    monkeypatch.setitem(significance.TESTS, "coin", lambda run, baseline: 0.25)
    monkeypatch.setitem(
        significance.CORRECTIONS, "double", lambda p_values: [2 * p_value for p_value in p_values]
    )
    asked = (
        "compare",
        "base.trec",
        "other.trec",
        "--qrels",
        "qrels",
        "--test",
        "coin",
        "--correction",
        "double",
    )
    found = json.loads(succeed(*asked, "--format", "json").stdout)["runs"][1]["differences"]["AP"]
    assert (found["p_value"], found["corrected_p_value"]) == (0.25, 0.5)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["base.trec"], 2, "--baseline"),
        (["base.trec", "none"], 3, "none"),
        (["base.trec", "other.trec", "--test", "x"], 2, "t-test, randomization"),
        (["base.trec", "other.trec", "--correction", "x"], 2, "holm, bonferroni, none"),
        (["base.trec", "other.trec", "--format", "x"], 2, "table, latex, markdown, csv, json"),
    ],
)
def test_compare_errors_have_their_exit_codes(arguments, code, message):
    assert message in refused("compare", *arguments, code=code)
