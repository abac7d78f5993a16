"""Real clusters on loopback, of the job servers' own versions: stand-alone Spark and a session of Flink."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from apache_beam.utils.subprocess_server import pick_port

from beamrank.storage.disk_cache import cache_folder, exclusive
from pipelines.runners.workers import child_command

_HOST = "127.0.0.1"
# What pip calls the engines' own jars.
_PROJECTS = {"spark": "pyspark==3.5.0", "flink": "apache-flink-libraries==1.19.0"}
_START_SECONDS = 90.0
# Flink's own scripts open these to it.
_OPENED = (
    "lang",
    "lang.invoke",
    "net",
    "io",
    "nio",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
    "text",
    "time",
)
_FLINK = {
    "jobmanager.rpc.address": _HOST,
    "jobmanager.bind-host": _HOST,
    "rest.address": _HOST,
    "rest.bind-address": _HOST,
    "taskmanager.host": _HOST,
    "taskmanager.bind-host": _HOST,
    "taskmanager.numberOfTaskSlots": 1,
    "taskmanager.cpu.cores": 1.0,
    # All of them: Flink's own scripts would work them out.
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "192m",
    "taskmanager.memory.jvm-overhead.max": "192m",
    "taskmanager.memory.task.heap.size": "512m",
    "taskmanager.memory.task.off-heap.size": "128m",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "taskmanager.memory.managed.size": "128m",
}


@dataclass(frozen=True)
class Cluster:
    """A cluster with two workers.

    Attributes:
        address: its master's.
        flags: Beam's flags that a job needs beside it.
        done: for each worker that it used, how much it did.
    """

    address: str
    flags: tuple[str, ...]
    done: Callable[[], dict[str, int]]


@contextmanager
def spark_cluster(folder: Path) -> Iterator[Cluster]:
    """A master and two workers; `done` counts the applications that had an executor on a worker."""
    home = distribution("spark")
    java = ["java", "-Xmx512m", "-cp", f"{home}/jars/*"]
    port, page = pick_port(None, None)
    master = f"spark://{_HOST}:{port}"
    workers = [folder / "worker-1", folder / "worker-2"]
    environment = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": _HOST, "SPARK_SCALA_VERSION": "2.12"}
    package = "org.apache.spark.deploy"
    address = ["--host", _HOST]
    with ExitStack() as stack:
        command = [*java, f"{package}.master.Master", *address, "--port", str(port), "--webui-port", str(page)]
        stack.enter_context(_started(command, folder / "master", environment))
        _wait_for(lambda: _read(page, "json/")["status"] == "ALIVE")
        for worker in workers:
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(worker), "--webui-port", "0"]
            command = [*java, f"{package}.worker.Worker", *address, *size, master]
            stack.enter_context(_started(command, worker, environment))
        _wait_for(lambda: _read(page, "json/")["aliveworkers"] == len(workers))
        yield Cluster(
            master,
            (f"--job_server_jvm_properties=-Dspark.driver.host={_HOST}",),
            lambda: {worker.name: len(list(worker.glob("app-*"))) for worker in workers},
        )


@contextmanager
def flink_cluster(folder: Path, class_path: str) -> Iterator[Cluster]:
    """A job manager and two task managers of one slot; `done` counts the subtasks that each one finished."""
    home = distribution("flink")
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED]
    exported = ["--add-exports=java.base/sun.net.util=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]
    java = ["java", *opened, *exported, "-cp", f"{home}/lib/*:{class_path}"]
    rpc, rest = pick_port(None, None)
    (folder / "conf").mkdir(parents=True)
    settings = {**_FLINK, "jobmanager.rpc.port": rpc, "rest.port": rest}
    (folder / "conf" / "flink-conf.yaml").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
    configuration = ["--configDir", str(folder / "conf")]
    package = "org.apache.flink.runtime"
    with ExitStack() as stack:
        manager = [*java, "-Xmx512m", f"{package}.entrypoint.StandaloneSessionClusterEntrypoint", *configuration]
        stack.enter_context(_started(manager, folder / "manager", {}))
        for name in ("worker-1", "worker-2"):
            worker = [*java, "-Xmx768m", f"{package}.taskexecutor.TaskManagerRunner", *configuration]
            stack.enter_context(_started(worker, folder / name, {}))
        _wait_for(lambda: _read(rest, "overview")["slots-available"] == 2)
        # The workers have all jars, and a job server sends its whole class path where it is told of none.
        flags = ("--parallelism=2", f"--files_to_stage={class_path.split(os.pathsep)[0]}")
        yield Cluster(f"{_HOST}:{rest}", flags, lambda: _finished_subtasks(rest))


def distribution(name: str) -> Path:
    """The folder with an engine's own jars, which pip gets once for this machine."""
    project = _PROJECTS[name]
    kept = cache_folder("engines") / project
    kept.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(kept.with_name(f".{project}.lock")):
        if not kept.is_dir():
            with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
                _download(project, Path(folder)).rename(kept)
    return kept


def _download(project: str, folder: Path) -> Path:
    command = ["pip", "download", "--quiet", "--no-deps", "--no-binary=:all:", f"--dest={folder}", project]
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = f"pip cannot get {project}: {done.stderr.strip()[-500:]}"
        assert not os.environ.get("CI"), reason
        pytest.skip(reason)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz") / "deps"


@contextmanager
def _started(command: Sequence[str], folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """A process that ends with the test, and with pytest where that is killed."""
    folder.mkdir(parents=True, exist_ok=True)
    java = shutil.which(command[0])
    assert java is not None
    tethered = child_command(str(folder / "tmp"), java, *command[1:])
    (folder / "tmp").mkdir()
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(tethered, stdout=log, stderr=log, env=os.environ | environment) as process,
    ):
        try:
            yield
        finally:
            process.terminate()


def _wait_for(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            if ready():
                return
        except OSError:
            pass
        assert time.monotonic() < deadline, "the cluster did not start"
        time.sleep(0.2)


def _read(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://{_HOST}:{port}/{path}", timeout=5) as answer:
        return json.load(answer)


def _finished_subtasks(port: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for job in _read(port, "jobs/overview")["jobs"]:
        for vertex in _read(port, f"jobs/{job['jid']}")["vertices"]:
            for task in _read(port, f"jobs/{job['jid']}/vertices/{vertex['id']}")["subtasks"]:
                if task["status"] == "FINISHED":
                    found[task["taskmanager-id"]] = found.get(task["taskmanager-id"], 0) + 1
    return found
