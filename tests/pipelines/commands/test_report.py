"""`beamrank report` and `beamrank inspect`."""

import csv
import json
import re

import pytest

from models.training.report_section import TrainingRecord
from tests.support.processes import beamrank_here, refused, succeed
from tests.support.scored_outputs import ScoredOutput
from tests.support.small_collection import DOCS, small_cascade


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    made = ScoredOutput(tmp_path_factory.mktemp("made")).run()
    made.write_corpus()
    return made


@pytest.mark.slow
def test_report_takes_the_points_that_are_asked(output, tmp_path):
    arguments = ["--k0", "0,4", "--k1", "3,99", "--opponents", "2", "--trials", "1"]
    succeed("report", output.plan.output, *arguments, "--output", tmp_path, "--baseline", "mono")
    with (tmp_path / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["k0"] for row in rows if row["figure"] == "2"} == {"0", "4"}
    assert {row["k1"] for row in rows if row["figure"] == "3"} == {"0", "3"}
    assert {row["trial"] for row in rows if row["opponents"]} == {"0", "mean", "sd"}
    assert "Differences from mono" in (tmp_path / "tables.md").read_text()


@pytest.mark.slow
def test_report_of_two_runs_has_the_files_of_both(output, tmp_path):
    succeed(
        "report",
        output.plan.output,
        output.plan.output,
        "--trials",
        "1",
        "--output",
        tmp_path,
        "--no-texts",
    )
    assert {"report.html", "curves.csv", "2-curves.csv", "2-figure-2.svg"} <= {
        path.name for path in tmp_path.iterdir()
    }


def test_report_tells_trainings_of_one_name_apart(tmp_path):
    odd = b"odd\xff<b>".decode("utf-8", "surrogateescape")
    folders = [tmp_path / "a/out", tmp_path / "b/out", tmp_path / odd]
    for folder in folders:
        TrainingRecord("mono", 100, 32).write(str(folder))
    succeed("report", *folders, "--output", tmp_path / "page")
    table = (tmp_path / "page/tables.md").read_text()
    assert all(f"| {folder} | mono |" in table for folder in folders[:2])
    assert r"/odd\\udcff&lt;b> | mono |" in table
    assert "odd\\udcff&lt;b&gt;" in (tmp_path / "page/report.html").read_text()


def test_report_of_a_run_and_a_training_is_one_page(output, tmp_path):
    TrainingRecord("mono", 10, 32).write(str(tmp_path / "trained"))
    paths = [tmp_path / "trained", output.plan.output]
    options = [
        "--qrels",
        output.folder / "qrels.txt",
        "--measures",
        "P_5, AP",
        "--trials",
        "1",
        "--no-texts",
    ]
    done = succeed("report", *paths, *options)
    page = tmp_path / "trained" / "report" / "report.html"
    assert done.stdout == f"{page}\n"
    titles = re.findall(r"<h1[^>]*>(.*)</h1>", page.read_text())
    assert titles == [f"made: {output.folder.name}/out", "trained"]
    assert "| run | P@5 | AP | Judged@10 |" in (page.parent / "tables.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--k0", "1,x"], 2, "--k0 '1,x'"),
        (["--k0", "1_0"], 2, "--k0 '1_0'"),
        (["--trials", "99999999999"], 2, "--trials"),
        (["--trials", "1_0"], 2, "'1_0'"),
        (["--k1", "-1"], 2, "--k1 '-1'"),
        (["--baseline", "bm25"], 2, "--baseline 'bm25'"),
        (["--qrels", "/nowhere"], 3, "/nowhere"),
    ],
)
def test_report_refuses_wrong_options(output, arguments, code, message):
    assert message in refused("report", output.plan.output, *arguments, code=code)


def test_report_of_a_folder_without_a_run_is_an_error(tmp_path):
    assert "current-plan.json" in refused("report", tmp_path, code=3)


def test_report_prints_warnings_and_the_answer_as_json(tmp_path):
    output = ScoredOutput(tmp_path, spread=0.0).run().plan.output
    done = beamrank_here("report", output, "--json", "--no-texts", "--trials", "1")
    found = json.loads(done.stdout)
    assert found["page"] == f"{output}/report/report.html"
    assert "out: candidates has one score for all docs of 5 of 5 topics" in done.stderr
    (run,) = found["runs"]
    assert run.keys() == {"run", "answer", "stages", "warnings", "missing"}
    assert run["answer"].startswith("By RR@10, duo-sum (")
    assert [each["run"] for each in run["stages"]] == ["candidates", "mono", "duo-sum"]
    first = run["warnings"][0]
    assert (first["warning"], first["stage"], first["value"], first["threshold"]) == (
        "one score",
        "retrieve",
        1.0,
        0.5,
    )
    assert f"{first['text']}" in done.stderr


def test_report_notes_what_is_missing(tmp_path):
    done = beamrank_here("report", ScoredOutput(tmp_path).run(2).plan.output)
    assert done.returncode == 0
    assert "duo is not finished (0 of 3 shards)" in done.stderr
    assert "No passages are shown" in done.stderr


@pytest.mark.slow
def test_passages_of_a_corpus_that_changed_are_not_shown(tmp_path):
    collection = small_cascade(tmp_path)
    collection.run()
    shown = beamrank_here("inspect", collection.output, "--query", "q0")
    collection.write(
        "corpus.jsonl", (f'{{"id": "{doc_id}", "contents": "other"}}' for doc_id in DOCS)
    )
    changed = beamrank_here("inspect", collection.output, "--query", "q0")
    assert (shown.returncode, changed.returncode) == (0, 3)
    assert "corpus.jsonl changed" in changed.stderr
    report = beamrank_here("report", collection.output)
    assert report.returncode == 0
    assert "No passages are shown" in report.stderr
    assert (
        beamrank_here("inspect", collection.output, "--query", "q0", "--no-texts").returncode == 0
    )


def test_report_of_a_run_file_names_what_compares_it(output, tmp_path):
    run = tmp_path / "a.trec"
    run.write_text("q1 Q0 d1 1 2.5 a\n")
    assert "`beamrank compare RUN..." in refused("report", output.plan.output, run, code=2)


@pytest.mark.slow
def test_report_and_inspect_show_every_stage_of_a_long_cascade(tmp_path):
    collection = small_cascade(tmp_path)
    mono, duo = (collection.keys.pop(name)["checkpoint"] for name in ("mono", "duo"))
    collection.keys["cascade"] = [
        {"mono": {"checkpoint": mono, "k": 6}},
        {"mono": {"checkpoint": mono, "k": 4, "name": "large"}},
        {"duo": {"checkpoint": duo, "k": 3}},
    ]
    collection.run()
    succeed("report", collection.output, "--trials", "1")
    page = collection.output / "report"
    with (page / "curves.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["measure"] == "RR@10"]
    depths: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        depths.setdefault((row["figure"], row["stage"]), []).append(
            row["k0"] if row["figure"] == "2" else row["k1"]
        )
    # The first depth of a curve is the stage before.
    assert depths["2", "first"] == ["0"]
    assert depths["2", "mono"] == [*"123456", "0"]
    assert depths["2", "large"] == [*"1234"]
    assert set(depths["3", "large"]) == {"0"}
    assert set(depths["3", "duo"]) == {"2", "3"}
    assert {row["k0"] for row in rows if row["figure"] == "3"} == {"4"}
    assert {"figure-2.svg", "figure-2-large.svg", "figure-3.svg"} <= {
        path.name for path in page.iterdir()
    }
    shown = beamrank_here("inspect", collection.output, "--query", "q0", "--json")
    (first, *_) = json.loads(shown.stdout)["candidates"]
    assert list(first["ranks"]) == [
        "candidates",
        "mono",
        "large",
        "duo-sum",
        *list(first["ranks"])[4:],
    ]
    assert first["strongest"]["doc_id"] != first["doc_id"]
