"""An experiment that was copied or renamed with its output, and judgments that have changed."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamrank.commit.plan import read_plan
from beamrank.config.load import stored_config
from beamrank.storage.documents import sha256
from pipelines.console.progress import ConsoleProgress
from pipelines.runs.run_files import write_runs
from tests.support.processes import beamrank_here, succeed
from tests.support.runs import assert_same_bytes, committed
from tests.support.small_collection import CANDIDATES, SmallCollection, small_cascade

_CHANGED = "have changed since"


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> SmallCollection:
    collection = small_cascade(tmp_path_factory.mktemp("made"))
    collection.run()
    return collection


@pytest.fixture
def copy(experiment: SmallCollection, tmp_path: Path) -> Iterator[Path]:
    """The experiment in another folder, whose first one has other judgments since."""
    folder = Path(shutil.copytree(experiment.folder, tmp_path / "copy"))
    _judge(experiment.folder, 0)
    yield folder
    _judge(experiment.folder, 4)


def _judge(folder: Path, place: int) -> str:
    """Judges one doc of each topic: the fifth is what the experiment was measured with."""
    lines = (f"{query} 0 {docs[place]} 1\n" for query, docs in CANDIDATES.items())
    (folder / "qrels.txt").write_text("".join(lines))
    return str(folder / "qrels.txt")


def _reported(output: Path, folder: Path) -> float:
    """The first stage's RR@10 in a report."""
    succeed("report", output, "--output", folder, "--no-texts", "--trials", "1")
    lines = (folder / "tables.md").read_text().splitlines()
    return float(next(line for line in lines if line.startswith("| candidates |")).split("|")[2])


@pytest.mark.slow
def test_copy_reads_its_own_inputs(experiment, copy, tmp_path) -> None:
    measured = json.loads((copy / "out/runs/measures.json").read_text())["candidates"]["RR@10"]
    assert _reported(copy / "out", tmp_path / "own") == pytest.approx(measured, abs=1e-4)
    assert _reported(experiment.output, tmp_path / "first") == pytest.approx(1.0)
    for command in ("verify", "status"):
        assert _CHANGED not in succeed(command, copy / "out").stderr
    runs = succeed("aggregate", copy / "out", "--aggregation", "min").stdout
    assert runs == f"{copy}/out/runs/duo-min.trec\n"
    config = read_plan(str(copy / "out")).config
    assert config["output"] == str(copy / "out")
    assert config["cascade"][1]["mono"]["checkpoint"] == str(copy / "mono")


def test_plan_of_an_experiment_holds_no_path_of_it(experiment) -> None:
    (plan,) = experiment.output.glob("plan-*.json")
    assert str(experiment.folder) not in plan.read_text()
    stored = json.loads(plan.read_text())
    assert stored["config"]["qrels"]["path"] == "../qrels.txt"
    assert stored["qrels"] == {
        "../qrels.txt": sha256((experiment.folder / "qrels.txt").read_bytes())
    }


def test_renamed_experiment_is_not_done_again(experiment, copy) -> None:
    """Nor one that has other judgments since: they decide no part."""
    renamed = copy.rename(copy.parent / "renamed")
    before = committed(renamed / "out")
    _judge(renamed, 0)
    succeed("run", renamed / "config.yaml", "--only", "0/1")
    assert committed(renamed / "out") == before
    assert_same_bytes(renamed / "out", experiment.output)
    assert _CHANGED not in succeed("verify", renamed / "out").stderr


@pytest.mark.slow
def test_changed_judgments_are_told_by_file_and_are_no_damage(copy) -> None:
    output, qrels = copy / "out", _judge(copy, 0)
    line = f"the judgments {qrels} {_CHANGED} {output}/runs/measures.json was written"
    commands = (
        ("verify",),
        ("status",),
        ("inspect",),
        ("card",),
        ("report", "--no-texts", "--trials", "1"),
    )
    for command, *options in commands:
        assert line in succeed(command, output, *options).stderr, command
    assert line in (output / "report/report.html").read_text()
    other = copy / "other.txt"
    other.write_bytes((copy / "qrels.txt").read_bytes())
    assert _CHANGED not in succeed("inspect", output, "--qrels", other).stderr
    _judge(copy, 4)
    assert _CHANGED not in succeed("verify", output).stderr


def test_measures_that_unchanged_judgments_do_not_give_are_damage(copy) -> None:
    measures = copy / "out/runs/measures.json"
    measures.write_text(measures.read_text().replace("RR@10", "RR@9"))
    done = beamrank_here("verify", copy / "out")
    assert (done.returncode, done.stdout.partition(":")[0]) == (1, "runs/measures.json")


def test_what_was_measured_decides_and_not_what_was_planned_last(copy) -> None:
    """A stage that starts again plans with the new judgments, and measures nothing."""
    qrels = _judge(copy, 0)
    succeed("run", copy / "config.yaml", "--stage", "mono")
    assert f"{qrels} {_CHANGED}" in succeed("verify", copy / "out").stderr
    succeed("run", copy / "config.yaml", "--stage", "runs")
    assert _CHANGED not in succeed("verify", copy / "out").stderr


def test_judgments_that_change_during_a_run_are_those_that_it_measured(copy) -> None:
    plan = read_plan(str(copy / "out"))
    _judge(copy, 0)
    write_runs(plan, stored_config(plan.config, plan.output), ConsoleProgress(quiet=True))
    assert _CHANGED not in succeed("verify", copy / "out").stderr
