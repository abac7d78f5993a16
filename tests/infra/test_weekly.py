"""The weekly job of the examples, by hand and by Airflow itself: twice, with a corpus that changed
in between.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from beamrank.commit.plan import OLDEST_READ_VERSION
from beamrank.storage.documents import checked_json, checked_values
from tests import ROOT
from tests.support.processes import beamrank_here, succeed
from tests.support.services.environments import airflow_python, environ

pytestmark = [pytest.mark.slow, pytest.mark.jvm]


@pytest.fixture
def job(tmp_path):
    """The job's folder, beside the corpus that its configuration names."""
    for name in ("own_corpus", "weekly"):
        shutil.copytree(ROOT / "examples" / name, tmp_path / name)
    return tmp_path / "weekly"


def _change(job: Path) -> None:
    """A doc has another text, one is removed, one is new; so is a topic."""
    corpus = job.parent / "own_corpus" / "corpus.jsonl"
    docs = [json.loads(line) for line in corpus.read_text().splitlines()]
    docs[0]["contents"] += " Let it cool before you cut it."
    docs = [
        *docs[:5],
        *docs[6:],
        {"id": "rye", "contents": "A rye crust stays crisp if the oven door is open at the end."},
    ]
    corpus.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    with (job.parent / "own_corpus" / "topics.tsv").open("a") as topics:
        topics.write("rye\thow does rye bread get a crisp crust\n")


def _close_gate(job: Path) -> None:
    script = job / "weekly.sh"
    script.write_text(script.read_text().replace("topics_changed > 0.5", "topics_changed > 0"))


def _check_second_run(job: Path) -> None:
    second = job / "runs" / "2026-11-23"
    assert os.readlink(job / "latest") == "runs/2026-11-23"
    stages = json.loads(beamrank_here("status", second, "--json").stdout)["stages"]
    scored = {stage["stage"]: (stage["inferences"], stage["reused"]) for stage in stages}
    for stage in ("mono", "duo"):
        assert scored[stage][0] < scored[stage][1], scored
    succeed(
        "run", job / "config.yaml", "--output", job / "fresh", "--set", "index.path=fresh-index"
    )
    _check_bytes(second, job / "fresh")
    assert "rye,new topic" in (second / "report" / "drift.csv").read_text()


def _check_bytes(found: Path, wanted: Path) -> None:
    for name in ("bm25.trec", "mono.trec", "duo-sum.trec"):
        assert (found / "runs" / name).read_bytes() == (wanted / "runs" / name).read_bytes()


def _make_old(output: Path) -> None:
    """Makes an output that of a beamrank before release 0.3.0."""
    for path in output.glob("plan-*.json"):
        path.write_bytes(
            checked_json(
                {**checked_values(path.read_bytes()), "engine_version": OLDEST_READ_VERSION - 1}
            )
        )


def _python_first() -> dict[str, str]:
    return {"PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}"}


def test_weekly_script_reuses_what_did_not_change(job):
    def run(date: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command, own = [str(job / "weekly.sh"), date], environ(**_python_first(), **variables)
        return subprocess.run(command, capture_output=True, text=True, env=own, check=False)

    for past in ("2026-10-05", "2026-10-12", "2026-10-19"):
        (job / "runs" / past).mkdir(parents=True)
    first = run("2026-11-16")
    assert first.returncode == 0, first.stderr
    again = run("2026-11-16")
    assert (again.returncode, again.stdout) == (0, "runs/2026-11-16 is finished\n")
    _change(job)
    _close_gate(job)
    gated = run("2026-11-23")
    assert gated.returncode == 4, gated.stderr
    assert "topics_changed > 0 holds" in gated.stderr
    assert os.readlink(job / "latest") == "runs/2026-11-16"
    second = run("2026-11-23", ACCEPT="yes")
    assert second.returncode == 0, second.stderr
    assert "topics differ from" in second.stderr
    _check_second_run(job)
    assert sorted(path.name for path in (job / "runs").iterdir()) == [
        "2026-10-12", "2026-10-19", "2026-11-16", "2026-11-23",
    ]  # fmt: skip
    _make_old(job / "runs" / "2026-11-23")
    third = run("2026-11-30")
    assert third.returncode == 0, third.stderr
    assert "cannot read runs/2026-11-23" in third.stderr
    assert os.readlink(job / "latest") == "runs/2026-11-30"
    assert not (job / "runs/2026-11-30/report").exists()
    _check_bytes(job / "runs/2026-11-30", job / "fresh")
    earlier = run("2026-10-26")
    assert earlier.returncode == 0, earlier.stderr
    assert (job / "latest/runs/mono.trec").exists()
    assert os.readlink(job / "latest") == "runs/2026-10-26"
    assert (job / "accepted").read_text().splitlines() == [
        f"runs/{date}" for date in ("2026-11-16", "2026-11-23", "2026-11-30", "2026-10-26")
    ]
    shutil.rmtree(job / "runs/2026-10-26")
    gone = run("2026-12-06")
    assert (gone.returncode, os.readlink(job / "latest")) == (0, "runs/2026-12-06")
    assert "runs/2026-10-26" in gone.stderr
    assert run("2026-12-07").returncode == 0
    assert (job / "runs/2026-12-07/report").exists()


def test_weekly_script_refuses_a_second_run_at_once(job):
    command = ["flock", str(job / ".lock"), str(job / "weekly.sh")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (75, "the last run has not ended\n")


def test_weekly_dag_runs_twice_in_airflow(job, tmp_path):
    python = airflow_python()
    home = tmp_path / "airflow"
    (home / "dags").mkdir(parents=True)
    shutil.copy(ROOT / "examples/weekly/weekly_dag.py", home / "dags")
    own = environ(AIRFLOW_HOME=str(home), AIRFLOW__CORE__LOAD_EXAMPLES="False", **_python_first())

    def airflow(*arguments: str, **variables: str) -> str:
        command, variables = [str(python), "-m", "airflow", *arguments], own | variables
        done = subprocess.run(
            command, capture_output=True, text=True, env=variables, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    airflow("db", "migrate")
    airflow("dags", "reserialize")
    parameters = json.dumps({"folder": str(job)})
    airflow("dags", "test", "beamrank_weekly", "2026-11-16", "--conf", parameters)
    _change(job)
    _close_gate(job)
    # The command itself ends with 0.
    task = ["tasks", "test", "beamrank_weekly", "rank", "2026-11-23", "--task-params", parameters]
    said = airflow(*task)
    assert "topics_changed > 0 holds: duo-sum has" in said
    assert "the gate refused runs/2026-11-23" in said
    assert "up_for_retry" not in said.lower()
    assert os.readlink(job / "latest") == "runs/2026-11-16"
    script = (job / "weekly.sh").read_text()
    for code, words in ((3, "exit code 3: see its message"), (75, "exit code 75")):
        (job / "weekly.sh").write_text(f"#!/bin/sh\nexit {code}\n")
        assert words in airflow(*task)
    (job / "weekly.sh").write_text(script)
    airflow("dags", "test", "beamrank_weekly", "2026-11-23", "--conf", parameters, ACCEPT="yes")
    _check_second_run(job)
