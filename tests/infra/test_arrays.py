"""The array jobs of the examples: Slurm's script under a scheduler of plain processes, and
Kubernetes' manifest.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from beamrank.commit.owner import launched
from beamrank.errors import TemporaryError
from pipelines.shares import Share
from tests import ROOT
from tests.support.processes import beamrank_here, receipts_exist, wait_until
from tests.support.runs import assert_same_bytes
from tests.support.small_collection import small_cascade

PROCESSES = 3
_SCRIPT = ROOT / "examples/slurm/array.sbatch"


def _start(
    config: Path, output: Path, index: int, restarts: int = 0, programs: str = ""
) -> "subprocess.Popen[str]":
    """A task of the array, as Slurm starts it: the processes of one are a group."""
    slurm = {
        "SLURM_JOB_ID": "17",
        "SLURM_ARRAY_TASK_ID": str(index),
        "SLURM_ARRAY_TASK_COUNT": str(PROCESSES),
        "SLURM_RESTART_COUNT": str(restarts),
    }
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", str(_SCRIPT), str(config), "--output", str(output)]
    return subprocess.Popen(
        command,
        env={**os.environ, **slurm, "PATH": path},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_slurm_array_with_a_lost_task_leaves_one_run(tmp_path, number) -> None:
    collection, output = small_cascade(tmp_path), tmp_path / "array"
    collection.run()
    tasks = [_start(collection.path, output, index) for index in range(PROCESSES)]
    wait_until(receipts_exist("tokenize", 1), output, tasks[0])
    # A lost node ends all processes; before the end of its time, the script is told.
    (os.killpg if number == signal.SIGKILL else os.kill)(tasks[1].pid, number)
    codes = [(task.communicate(timeout=200), task.returncode)[1] for task in tasks]
    assert codes == [0, -9 if number == signal.SIGKILL else 143, 0]
    assert not (output / "runs").exists()
    # Slurm starts it again.
    again = _start(collection.path, output, 1)
    assert (again.communicate(timeout=200), again.returncode)[1] == 0
    assert_same_bytes(output, collection.output)


@pytest.mark.slow
@pytest.mark.parametrize(("restarts", "said"), [(0, "requeue 17\n"), (3, "")])
def test_slurm_queues_a_task_again_that_another_attempt_may_cure(tmp_path, restarts, said) -> None:
    collection, output = small_cascade(tmp_path), tmp_path / "array"
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\n')
    scontrol.chmod(0o755)
    (tmp_path / "said").touch()
    with launched(str(output), "0" * 64, "1" * 64):
        task = _start(collection.path, output, 0, restarts, str(tmp_path))
        errors = task.communicate(timeout=200)[1]
    assert (task.returncode, (tmp_path / "said").read_text()) == (75, said), errors


def test_kubernetes_job_gives_each_index_its_share(tmp_path) -> None:
    (job,) = yaml.safe_load_all((ROOT / "examples/kubernetes/job.yaml").read_text())
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (job["apiVersion"], job["kind"], spec["completionMode"]) == (
        "batch/v1",
        "Job",
        "Indexed",
    )
    assert pod["restartPolicy"] == "Never"
    flags = dict(each.split("=", 1) for each in container["args"] if each.startswith("--"))
    last = flags["--only"].replace("$(JOB_COMPLETION_INDEX)", str(spec["completions"] - 1))
    assert Share.parse(last) == Share(spec["completions"] - 1, spec["completions"])
    assert float(flags["--grace-seconds"]) < pod["terminationGracePeriodSeconds"]
    # The command line knows the flags: it gets as far as the configuration, which is not there.
    command: list[str] = [*container["command"], *container["args"]]
    here = [
        each.replace("gs://BUCKET", str(tmp_path)).replace("$(JOB_COMPLETION_INDEX)", "0")
        for each in command[1:]
    ]
    assert command[0] == "beamrank"
    done = beamrank_here(*here)
    final = spec["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"]
    assert done.returncode in final
    assert TemporaryError.exit_code not in final
    assert "config.yaml" in done.stderr
    assert "No such option" not in done.stderr


def test_kubernetes_patch_asks_for_a_gpu_and_changes_nothing_else() -> None:
    folder = ROOT / "examples/kubernetes"
    job, patch = (
        yaml.safe_load((folder / name).read_text())["spec"]["template"]["spec"]
        for name in ("job.yaml", "gpu.yaml")
    )
    (before,), (added,) = job["containers"], patch["containers"]
    assert patch.keys() == {"containers"}
    assert added.keys() == {"name", "image", "resources"}
    # Kubernetes merges containers by name, and takes the limit for the request.
    assert added["name"] == before["name"]
    assert added["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert added["image"] == before["image"].replace("/cpu:", "/gpu:")
