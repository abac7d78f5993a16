"""Finished outputs of earlier releases, read by a later version, which neither resumes nor reuses
them.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from beamrank.commit.plan import ENGINE_VERSION
from infra.release.outputs import KEPT, keep, unpack_output
from tests import ROOT

_VERSION = f"ENGINE_VERSION = {ENGINE_VERSION}\n"
_OTHERS = ("deepened", "instructed", "pairs")
# Several commands in one process: each needs torch, Beam or matplotlib.
_RUN = (
    "import json, sys\n"
    "from tests.support.processes import beamrank_here\n"
    "done = [beamrank_here(*each) for each in json.loads(sys.argv[1])]\n"
    "print(json.dumps([(each.returncode, each.stdout, each.stderr) for each in done]))"
)


class _Done(NamedTuple):
    code: int
    stdout: str
    stderr: str


class _Later:
    """A later beamrank, whose engine writes other bytes."""

    def __init__(self, folder: Path) -> None:
        shutil.copytree(
            ROOT / "beamrank", folder / "beamrank", ignore=shutil.ignore_patterns("__pycache__")
        )
        plan = folder / "beamrank/commit/plan.py"
        assert _VERSION in plan.read_text()
        plan.write_text(
            plan.read_text().replace(_VERSION, f"ENGINE_VERSION = {ENGINE_VERSION + 1}\n")
        )
        self._environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "PYTHONSAFEPATH": "1"}

    def __call__(self, *commands: tuple[str | Path, ...]) -> list[_Done]:
        """Runs commands of which none may end with an error that is not ours."""
        given = json.dumps([[str(argument) for argument in each] for each in commands])
        done = subprocess.run(
            [sys.executable, "-c", _RUN, given],
            capture_output=True,
            text=True,
            env=self._environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [_Done(*each) for each in json.loads(done.stdout.splitlines()[-1])]


@pytest.fixture(scope="module")
def later(tmp_path_factory) -> _Later:
    return _Later(tmp_path_factory.mktemp("later"))


@pytest.fixture(scope="module")
def this_version(tmp_path_factory) -> Path:
    return keep(tmp_path_factory.mktemp("kept"))


@pytest.fixture(params=[None, *sorted(KEPT.glob("*.tar.xz"))], ids=lambda kept: kept and kept.name)
def output(request, this_version, tmp_path) -> Path:
    """The output of this version, and what was kept of each release."""
    return unpack_output(request.param or this_version, tmp_path)


@pytest.mark.slow
def test_later_version_reads_a_release(later, output):
    runs, qrels = output / "runs", output.parent / "qrels.txt"
    written = {path.name: path.read_bytes() for path in runs.glob("*.trec")}
    (runs / "duo-sum.trec").unlink()
    (query_id, *_) = next(line.split() for line in qrels.read_text().splitlines())
    report = output.parent / "report"
    done = later(
        ("aggregate", output, "--aggregation", "sum,min"),
        ("verify", output),
        ("status", output, "--json"),
        ("inspect", output, "--query", query_id, "--qrels", qrels, "--no-texts", "--json"),
        ("inspect", output, "--shard", "1", "--json"),
        (
            "report",
            output,
            "--output",
            report,
            "--baseline",
            output,
            "--qrels",
            qrels,
            "--no-texts",
        ),
        ("audit", output),
        *(("verify", output.parent / name) for name in _OTHERS),
        *(("status", output.parent / name, "--json") for name in _OTHERS),
    )
    assert [each.code for each in done] == [*[0] * 6, 3, *[0] * 2 * len(_OTHERS)], done
    aggregated, verified, status, inspected, attempts, _, audit, *others = done
    assert f"version {ENGINE_VERSION + 1}" in audit.stderr
    assert (runs / "duo-sum.trec").read_bytes() == written["duo-sum.trec"]
    assert f"{runs}/duo-min.trec" in aggregated.stdout
    assert verified.stdout == ""
    stages = json.loads(status.stdout)["stages"]
    assert all(stage["done"] == stage["shards"] == 2 for stage in stages)
    assert [stage["inferences"] > 0 for stage in stages] == [False, False, True, True]
    candidates = json.loads(inspected.stdout)["candidates"]
    best = written["duo-sum.trec"].decode().splitlines()
    assert [each["doc_id"] for each in candidates] == [
        line.split()[2] for line in best if line.split()[0] == query_id
    ]
    assert {each["state"] for each in json.loads(attempts.stdout)["attempts"]} == {"counts"}
    assert [each.stdout for each in others[: len(_OTHERS)]] == [""] * len(_OTHERS)
    finished = [json.loads(each.stdout)["stages"] for each in others[len(_OTHERS) :]]
    assert all(stage["done"] == stage["shards"] for stages in finished for stage in stages)
    means = json.loads((runs / "measures.json").read_text())["duo-sum"]
    tables = (report / "tables.md").read_text()
    assert f"{means['nDCG@10']:.4f}" in tables
    assert "counts" not in (report / "drift.csv").read_text()


@pytest.mark.slow
def test_later_version_does_not_resume_or_reuse_a_release(later, output):
    def parts(stage: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in output.glob(f"{stage}/part-*")}

    before = parts("mono")
    run, status = later(
        ("run", output.parent / "config.yaml", "--output", output, "--only", "0/1"),
        ("status", output, "--json"),
    )
    assert run.code == 0, run.stderr
    assert f"version {ENGINE_VERSION + 1}" in run.stderr
    scored = {
        each["stage"]: (each["inferences"] > 0, each["reused"])
        for each in json.loads(status.stdout)["stages"]
    }
    assert (scored["mono"], scored["duo"]) == ((True, 0), (True, 0))
    assert before.items() <= parts("mono").items()
    assert len(list((output / "mono/receipts").iterdir())) == 4
