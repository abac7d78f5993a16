"""`beamrank report` and `beamrank inspect`."""

import csv

import pytest

from tests.support.processes import beamrank_here
from tests.support.scored_outputs import ScoredOutput


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    made = ScoredOutput(tmp_path_factory.mktemp("made")).run()
    made.write_corpus()
    return made


def test_report_prints_the_page_and_writes_below_the_run(output):
    done = beamrank_here("report", output.plan.output, "--trials", "2", "--no-texts")
    assert done.returncode == 0, done.stderr
    page = output.folder / "out" / "report" / "report.html"
    assert done.stdout == f"{page}\n"
    assert page.exists()


def test_report_takes_the_points_that_are_asked(output, tmp_path):
    arguments = ["--k0", "0,4", "--k1", "3,99", "--opponents", "2", "--trials", "1"]
    done = beamrank_here("report", output.plan.output, *arguments, "--output", tmp_path, "--baseline", "mono")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["k0"] for row in rows if row["figure"] == "2"} == {"0", "4"}
    assert {row["k1"] for row in rows if row["figure"] == "3"} == {"0", "3"}
    assert {row["trial"] for row in rows if row["opponents"]} == {"0", "mean", "sd"}
    assert "Differences from mono" in (tmp_path / "tables.md").read_text()


def test_report_of_two_runs_has_the_files_of_both(output, tmp_path):
    done = beamrank_here(
        "report", output.plan.output, output.plan.output, "--trials", "1", "--output", tmp_path, "--no-texts"
    )
    assert done.returncode == 0, done.stderr
    assert {"report.html", "curves.csv", "2-curves.csv", "2-figure-2.svg"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--k0", "1,x"], 2, "--k0 '1,x' is no list of whole numbers"),
        (["--k1", "-1"], 2, "--k1 '-1' has a negative number"),
        (["--baseline", "bm25"], 2, "--baseline 'bm25' is no run of"),
        (["--qrels", "/nowhere"], 3, "there is no file /nowhere"),
    ],
)
def test_report_refuses_wrong_options(output, arguments, code, message):
    done = beamrank_here("report", output.plan.output, *arguments)
    assert done.returncode == code
    assert message in done.stderr


def test_report_of_a_folder_without_a_run_is_an_error(tmp_path):
    done = beamrank_here("report", tmp_path)
    assert done.returncode == 3
    assert "holds no beamrank run" in done.stderr


def test_report_notes_what_is_missing(tmp_path):
    done = beamrank_here("report", ScoredOutput(tmp_path).run(2).plan.output)
    assert done.returncode == 0
    assert "duo is not finished (0 of 3 shards): what needs it is left out" in done.stderr
    assert "No passages are shown" in done.stderr
