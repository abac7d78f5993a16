"""`beamrank eval` as a user runs it."""

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress

import pytest

from tests import ROOT
from tests.support.processes import beamrank_here, refused, succeed

RUN = "q1 Q0 a 1 3 t\nq1 Q0 b 2 2 t\nq1 Q0 c 3 2 t\nq9 Q0 a 1 1 t\n"
QRELS = "q1 0 c 1\nq2 0 a 1\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "a.run").write_text(RUN)
    (tmp_path / "qrels").write_text(QRELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_eval_prints_tab_separated_values(folder):
    done = succeed("eval", "a.run", "--qrels", "qrels", "--measures", "RR P@2")
    assert done.stdout == "RR\t0.25\nP@2\t0.25\n"
    assert done.stderr.splitlines() == [
        "note: rows with the score of the row before: 1; ordered by doc_id, descending, as in "
        "trec_eval. A run that is given as the first stage orders them by rank, unless "
        "`candidates.ties` is `doc_id`",
        "note: rows whose rank disagrees with the scores: 1; the scores decide, the rank column "
        "is not read",
        "note: judged topics that are not in the run: 1 of 2 ('q2'); they count as 0",
        "note: topics of the run without judgments: 1 ('q9'); they are left out",
    ]


def test_eval_compares_with_several_baselines(folder):
    (folder / "b.run").write_text("q1 Q0 c 1 3 t\nq2 Q0 a 1 2 t\n")
    (folder / "c.run").write_text("q1 Q0 x 1 3 t\nq1 Q0 c 2 2 t\n")
    asked = ["b.run", "--qrels", "qrels", "--measures", "RR NumRet"]
    for other in ("a.run", "c.run", "a.run"):
        asked += ["--against", other]
    done = succeed("eval", *asked)
    first, counted = (line.split("\t") for line in done.stdout.splitlines())
    assert (first[:4], first[5:7], first[8:10]) == (
        ["RR", "1.0", "0.25", "0.75"],
        ["0.25", "0.75"],
        ["0.25", "0.75"],
    )
    assert len(first) == 2 + 3 * 3
    assert counted == ["NumRet", "2.0"]
    assert (
        done.stderr.count(
            "note: not compared, because they are not means over two or more topics: NumRet"
        )
        == 1
    )
    assert "1 ('q9')" in done.stderr
    compared = json.loads(succeed("eval", *asked, "--json").stdout)["against"]
    assert [each["run"] for each in compared] == ["a.run", "c.run", "a.run"]
    assert compared[0]["measures"]["RR"]["better"] == 2
    assert [str(each["measures"]["RR"]["p_value"]) for each in compared] == [
        first[4],
        first[7],
        first[10],
    ]


def test_eval_explains_names_of_trec_eval(folder):
    done = succeed("eval", "a.run", "--qrels", "qrels", "--measures", "recip_rank,P_2")
    assert done.stdout == "RR\t0.25\nP@2\t0.25\n"
    assert done.stderr.startswith(
        "note: recip_rank is trec_eval's name for RR\nnote: P_2 is trec_eval's name for P@2\n"
    )
    done = succeed("eval", "a.run", "--qrels", "qrels", "--measures", "recip_rank", "--json")
    assert json.loads(done.stdout)["measures"] == {"RR": 0.25}


def test_eval_prints_each_topic(folder):
    done = succeed("eval", "a.run", "--qrels", "qrels", "--measures", "RR,P@2", "--per-query")
    assert [line.split("\t") for line in done.stdout.splitlines()] == [
        ["q1", "RR", "0.5"],
        ["q1", "P@2", "0.5"],
        ["q2", "RR", "0.0"],
        ["q2", "P@2", "0.0"],
        ["RR", "0.25"],
        ["P@2", "0.25"],
    ]


def test_eval_prints_json(folder):
    done = succeed("eval", "a.run", "--qrels", "qrels", "--measures", "RR@10", "--json")
    assert json.loads(done.stdout) == {
        "run": "a.run",
        "queries": 2,
        "judged_queries": 2,
        "topics": "qrels",
        "measures": {"RR@10": 0.25},
    }
    done = succeed(
        "eval", "a.run", "--qrels", "qrels", "--measures", "RR@10", "--json", "--per-query"
    )
    assert json.loads(done.stdout)["per_query"] == {"q1": {"RR@10": 0.5}, "q2": {"RR@10": 0.0}}


def test_eval_has_default_measures(folder):
    done = succeed("eval", "a.run", "--qrels", "qrels", "--json")
    assert list(json.loads(done.stdout)["measures"]) == ["RR@10", "nDCG@10", "AP", "R@1000"]


def test_eval_prints_a_table_on_a_terminal(folder):
    """The command line itself, on a pseudo-terminal."""
    parent, child = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    command = [
        sys.executable,
        "-m",
        "pipelines.main",
        "eval",
        "a.run",
        "--qrels",
        "qrels",
        "--measures",
        "RR",
    ]
    subprocess.run(
        [*command, "--per-query"], env=environment, stdout=child, stderr=subprocess.PIPE, check=True
    )
    os.close(child)
    shown = b""
    with suppress(OSError):
        while chunk := os.read(parent, 65536):
            shown += chunk
    os.close(parent)
    text = shown.decode()
    assert "0.2500" in text
    assert "a.run (trec), 2 topics" in text
    assert "query_id" in text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["none.run", "--qrels", "qrels"], 3, "there is no run"),
        (["a.run", "--qrels", "none"], 3, "there is no qrels file"),
        (["other.run", "--qrels", "qrels"], 3, "no topic in common"),
        (["a.run", "--qrels", "qrels", "--measures", "ndcg@10"], 2, "did you mean nDCG@10?"),
        (
            ["a.run", "--qrels", "qrels", "--against", "a.run", "--against", "none.run"],
            3,
            "there is no run none.run",
        ),
        (["a.run"], 2, "--qrels"),
    ],
)
def test_eval_errors_have_their_exit_codes(folder, arguments, code, message):

    (folder / "other.run").write_text("001 Q0 a 1 3 t\n")
    assert message in refused("eval", *arguments, code=code)


def test_eval_leaves_out_the_doc_that_is_the_query(folder):
    """BEIR's figures of a collection whose queries are docs."""
    (folder / "a.run").write_text("a Q0 a 1 3 x\na Q0 b 2 2 x\na Q0 c 3 1 x\n")
    (folder / "qrels").write_text("query-id\tcorpus-id\tscore\na\tb\t1\n")
    asked = ("a.run", "--qrels", "qrels", "--measures", "RR@10 nDCG@10")
    done = succeed("eval", *asked)
    assert done.stdout.startswith("RR@10\t0.5\n")
    assert "doc of their own id" in done.stderr
    done = succeed("eval", *asked, "--exclude", "self")
    assert done.stdout == "RR@10\t1.0\nnDCG@10\t1.0\n"
    assert "left out: 1" in done.stderr
    assert "own id" not in done.stderr


def test_rows_that_cannot_be_used_are_left_out_and_counted(folder):
    """In `eval` and `compare`: so many of each file."""
    (folder / "a.run").write_text(RUN + "q2 Q0 a one 1 t\n")
    (folder / "b.run").write_text(RUN)
    (folder / "qrels").write_text(QRELS + "q3 0 a high\n")
    for command in (["eval", "b.run", "--against"], ["compare", "b.run"]):
        asked = (*command, "a.run", "--qrels", "qrels", "--measures", "RR")
        assert "1 problem" in refused(*asked, code=3)
        errors = succeed(*asked, "--max-bad-rows", "1").stderr
        assert (
            "rows of qrels that cannot be used: 1 (qrels:3: the row has the relevance 'high'"
            in errors
        )
        run_note = "note: a.run: rows of run that cannot be used: 1 (a.run:5: the row has the rank"
        assert run_note in errors
    (folder / "qrels").write_text(QRELS)
    assert "1 problem" in refused("eval", "a.run", "--qrels", "qrels", code=3)


def test_commands_take_the_format_and_the_columns_of_files(folder):
    (folder / "named.csv").write_text("topic,item,sim\nq1,a,3\nq1,c,2\n")
    (folder / "other.csv").write_text("topic,item,sim\nq1,c,3\n")
    (folder / "numbers").write_text("q1 c 1 0.0\nq2 a 1 0.0\n")
    run = "run.query_id=topic,run.doc_id=item,score=sim"
    columns = "qrels.query_id=1,qrels.doc_id=2,relevance=3," + run
    files = ("--qrels", "numbers", "--columns", columns, "--run-format", "csv")
    done = succeed("eval", "named.csv", *files, "--measures", "RR")
    assert done.stdout == "RR\t0.25\n"
    done = succeed("compare", "named.csv", "other.csv", *files, "--measures", "RR")
    assert "0.25" in done.stdout
    done = beamrank_here("lint", "named.csv", *files)
    assert "1 query, 2 rows, Judged@10 0.5000" in done.stderr
    fused = ("--method", "rrf", "--output", "fused.trec", "--columns", run)
    succeed("fuse", "named.csv", "named.csv", *fused)
    assert [line.split()[2] for line in (folder / "fused.trec").read_text().splitlines()] == [
        "a",
        "c",
    ]
    assert "top_ranked" in refused(
        "eval", "named.csv", "--qrels", "qrels", "--run-format", "x", code=2
    )


@pytest.mark.parametrize(
    ("topics", "count", "value"), [("qrels", 2, 0.25), ("run", 1, 0.5)], ids=["qrels", "run"]
)
def test_eval_says_which_topics_the_means_are_over(folder, topics, count, value):
    arguments = ("a.run", "--qrels", "qrels", "--measures", "RR", "--topics", topics)
    done = succeed("eval", *arguments, "--json")
    found = json.loads(done.stdout)
    assert (found["topics"], found["queries"], found["judged_queries"]) == (topics, count, 2)
    assert found["measures"] == {"RR": value}
    assert "1 of 2" in done.stderr
    against = json.loads(succeed("eval", *arguments, "--against", "a.run", "--json").stdout)
    assert against["measures"] == found["measures"]


def test_compare_measures_over_the_topics_of_the_baseline(folder):
    (folder / "all.run").write_text(RUN + "q2 Q0 a 1 1 t\n")
    arguments = ("a.run", "all.run", "--qrels", "qrels", "--measures", "RR", "--topics", "run")
    found = json.loads(succeed("compare", *arguments, "--format", "json").stdout)
    assert (found["topics"], found["queries"], found["judged_queries"]) == ("run", 1, 2)
    assert [run["measures"]["RR"] for run in found["runs"]] == [0.5, 0.5]
