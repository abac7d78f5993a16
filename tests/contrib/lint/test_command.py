"""`beamrank lint` as a user runs it."""

import json
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contrib.lint.check import TRACKS
from contrib.lint.linter import EXAMPLES
from tests.contrib.lint.broken_runs import GOOD, MSMARCO
from tests.support.processes import BEAMRANK, beamrank_here, refused

CRLF = GOOD.replace("\n", "\r\n")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "good.run").write_text(GOOD)
    (tmp_path / "bad.run").write_text(GOOD.replace("2 Q0 b", "2 0 b").replace("Q0 c", "Q0 a"))
    (tmp_path / "crlf.run").write_bytes(CRLF.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _lint(*arguments):
    return beamrank_here("lint", *arguments)


def test_lint_of_a_clean_run_prints_nothing(folder):
    done = _lint("good.run")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "good.run: 0 errors, 0 warnings, 2 queries, 5 rows\n"


def test_lint_prints_file_line_code_and_message(folder):
    done = _lint("good.run", "bad.run")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "bad.run:3: L401 error: query '1' has doc 'a' already on line 1",
        "bad.run:4: L203 warning: column 2 of 1 rows of query '2' is not `Q0`",
    ]
    assert done.stderr.endswith("bad.run: 1 error, 1 warning, 2 queries, 5 rows\n")


def test_lint_counts_what_it_does_not_print(folder):
    (folder / "crlf.run").write_bytes(
        b"".join(b"1 Q0 d%d %d %d t\r\n" % (n, n, -n) for n in range(1, 1501))
    )
    shown = _lint("crlf.run").stdout.splitlines()
    assert len(shown) == EXAMPLES + 1
    assert shown[-1] == "crlf.run: L105 and 1,495 more"


def test_lint_accepts_as_many_bad_rows_as_it_is_told_to(folder):
    (folder / "short.run").write_text(GOOD + "2 Q0 z 3\n")
    (folder / "qrels").write_text("1 0 a 1\n2 0 b high\n")
    assert _lint("short.run").returncode == 1
    done = _lint("short.run", "--qrels", "qrels", "--max-bad-rows", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("short.run:6: L101 error: 4 columns")
    assert (
        "rows of qrels that cannot be used: 1 (qrels:2: the row has the relevance 'high'"
        in done.stderr
    )
    assert done.stderr.endswith("5 rows, 1 bad row, Judged@10 0.3333\n")
    assert _lint("bad.run", "--max-bad-rows", "9").returncode == 1


def test_lint_checks_against_other_files(folder):
    (folder / "topics").write_text("1\n2\n3\n")
    (folder / "corpus").write_text("a\nb\n")
    (folder / "qrels").write_text("1 0 a 1\n2 0 b 0\n")
    (folder / "first.run").write_text(GOOD + "2 Q0 z 3 0 t\n")
    options = [
        "--topics",
        "topics",
        "--corpus",
        "corpus",
        "--qrels",
        "qrels",
        "--first-stage",
        "first.run",
    ]
    done = _lint("good.run", *options)
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["L302", "L405", "L902"]
    assert "Judged@10 0.4000" in done.stderr


def test_lint_knows_the_rules_of_tracks(folder):
    assert _lint("good.run", "--track", "trec-dl").returncode == 1
    (folder / "msmarco.tsv").write_text(MSMARCO.replace("a", "12").replace("b", "13"))
    assert _lint("msmarco.tsv", "--track", "msmarco").stdout.startswith(
        "msmarco.tsv:3: L702 warning: "
    )
    assert _lint("good.run", "--track", "generic").returncode == 0


def test_lint_fixes_in_place_and_reports_it(folder):
    (folder / "crlf.run").write_bytes(f"{CRLF}2 Q0 a 2 1e-05 t".encode())
    done = _lint("crlf.run", "--fix")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[0] == (
        "crlf.run: fixed L105 (5), L109 (1), L402 (1), L504 (1), L603 (1); 5 rows written; 1 copy "
        "of rows removed"
    )
    assert (folder / "crlf.run").read_bytes() == GOOD.encode()


def test_lint_does_not_fix_a_run_that_could_lose_a_row(folder):
    content = (folder / "bad.run").read_bytes()
    done = _lint("bad.run", "--fix")
    assert done.returncode == 1
    assert "first correct L401" in done.stderr
    assert (folder / "bad.run").read_bytes() == content


def test_lint_prints_json(folder):
    good, bad = json.loads(_lint("good.run", "bad.run", "--json").stdout)["runs"]
    assert (good["errors"], good["findings"], good["docs_per_query"]) == (0, [], [2, 3])
    assert bad["counts"] == {"L203": 1, "L401": 1}
    assert bad["findings"][0] == {
        "file": "bad.run",
        "line": 3,
        "code": "L401",
        "severity": "error",
        "fixable": False,
        "message": "query '1' has doc 'a' already on line 1",
    }
    fixed = json.loads(_lint("crlf.run", "--fix", "--json").stdout)["runs"][0]
    assert (fixed["fixed"], fixed["findings"], fixed["rows_removed"]) == ({"L105": 5}, [], 0)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["none.run"], 3, "none.run"),
        (["good.run", "none.run"], 3, "none.run"),
        (["."], 3, "files of several kinds"),
        (["good.run", "--qrels", "none"], 3, "qrels file none"),
        (["good.run", "--topics", "none"], 3, "file none"),
        (["good.run", "--corpus", "none"], 3, "corpus at none"),
        (["good.run", "--first-stage", "none"], 3, "run none"),
        (["good.run", "--track", "none"], 2, "there is no track 'none'; known: generic, "),
        ([], 2, "RUN"),
        (["good.run", "--ignore"], 2, "--ignore"),
    ],
)
def test_lint_errors_have_their_exit_codes(folder, arguments, code, message):
    (folder / "a.trec").write_text(GOOD)
    assert message in refused("lint", *arguments, code=code)


def test_lint_reads_a_pipe_and_does_not_fix_it(folder):
    command = f"{BEAMRANK} lint <(cat crlf.run)"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count(" L105 ")) == (1, 5), done.stderr
    done = subprocess.run(
        ["bash", "-c", f"{command} --fix"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "is a pipe" in done.stderr


@pytest.mark.data
def test_lint_of_real_runs(shared_data):
    folder = shared_data / "msmarco/ans_small"
    assert _lint(*map(str, sorted(folder.glob("run.*.gz"))), "--track", "msmarco").returncode == 0
    assert set(TRACKS) == {"generic", "msmarco", "trec-car", "trec-dl"}


def test_lint_of_parts_names_the_file_and_its_line(folder):
    (folder / "parts").mkdir()
    (folder / "parts/part-00000.trec").write_text(GOOD)
    (folder / "parts/part-00001.trec").write_text(
        "3 Q0 a 1 2 t\n1 Q0 z 9 0.1 t\n1 Q0 a 10 0.05 t\n"
    )
    (folder / "parts/_SUCCESS").touch()
    lines = _lint("parts").stdout.splitlines()
    first, again = f"{folder}/parts/part-00000.trec", f"{folder}/parts/part-00001.trec"
    assert f"{again}:3: L401 error: query '1' has doc 'a' already on line 1 of {first}" in lines
    (report,) = json.loads(_lint("parts", "--json").stdout)["runs"]
    assert {finding["file"] for finding in report["findings"]} == {again}
    assert "folder" in refused("lint", "--fix", "parts", code=2)


def test_lint_of_a_table_checks_its_topics(folder):
    columns = {"qid": ["1", "1", "2"], "docno": ["a", "b", "a"], "score": [1.0, 1.0, 0.5]}
    pq.write_table(pa.table(columns), folder / "run.parquet")
    done = _lint("run.parquet")
    assert [line.split(": ")[1] for line in done.stdout.splitlines()] == ["L603 warning"]
    assert done.stderr.endswith("2 queries, 3 rows\n")
    pq.write_table(pa.table({**columns, "docno": ["a", "a", ""]}), folder / "run.parquet")
    assert "row" in refused("lint", "run.parquet", code=3)
