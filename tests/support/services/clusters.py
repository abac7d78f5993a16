"""Real clusters of the job servers' own versions, on loopback or on hosts: stand-alone Spark and a
session of Flink.
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from apache_beam.utils.subprocess_server import pick_port

from beamrank.storage.disk_cache import cache_folder, exclusive
from benchmarks.hosts import Place, started
from pipelines.runners.options import Runner, server_command
from tests.support.archives import unpack
from tests.support.services.environments import wait_for

HERE = Place()
# What pip calls the engines' own jars.
_PROJECTS = {"spark": "pyspark==3.5.0", "flink": "apache-flink-libraries==1.19.0"}
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
# A lost worker is noticed after these, not after a minute or two.
_LOST_SECONDS = 12
_FLINK = {
    "heartbeat.interval": 2_000,
    "heartbeat.timeout": _LOST_SECONDS * 1_000,
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


# And Spark's.
_SPARK_OPENED = (
    "lang",
    "lang.invoke",
    "lang.reflect",
    "io",
    "net",
    "nio",
    "util",
    "util.concurrent",
)


@dataclass(frozen=True)
class Cluster:
    """A cluster with two workers.

    Attributes:
        address: its master's.
        flags: Beam's flags that a job needs beside it.
        done: for each worker that it used, how much it did.
        join: starts the worker of a place once more.
    """

    address: str
    flags: tuple[str, ...]
    done: Callable[[], dict[str, int]]
    join: Callable[[Place], None]


@contextmanager
def spark_cluster(
    folder: Path,
    manager: Place = HERE,
    workers: Sequence[Place] = (HERE, HERE),
    jars: str = "",
    memory: str = "1g",
) -> Iterator[Cluster]:
    """A master and its workers; `done` counts the applications that had an executor on a worker
    beside the launcher.

    Args:
        folder: their own.
        manager: where the master runs.
        workers: where the workers run, each with one core.
        jars: the class path of executors, of which a job then sends none.
        memory: of each worker.
    """
    home = distribution("spark")
    java = ["java", "-Xmx512m", f"-Dspark.worker.timeout={_LOST_SECONDS}", "-cp", f"{home}/jars/*"]
    port, page = pick_port(None, None)
    master = f"spark://{manager.address}:{port}"
    folders = (folder / f"worker-{number}" for number in count(1))
    used: list[Path] = []
    package = "org.apache.spark.deploy"

    def environment(place: Place) -> dict[str, str]:
        return {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": place.address,
            "SPARK_SCALA_VERSION": "2.12",
        }

    with ExitStack() as stack:

        def join(place: Place) -> None:
            used.append(next(folders))
            size = [
                "--cores",
                "1",
                "--memory",
                memory,
                "--work-dir",
                str(used[-1]),
                "--webui-port",
                "0",
            ]
            command = [*java, f"{package}.worker.Worker", "--host", place.address, *size, master]
            stack.enter_context(started(command, used[-1], environment(place), place))

        address = ["--host", manager.address, "--port", str(port), "--webui-port", str(page)]
        command = [*java, f"{package}.master.Master", *address]
        stack.enter_context(started(command, folder / "master", environment(manager), manager))
        wait_for(lambda: _read(manager, page, "json/")["status"] == "ALIVE")
        for worker in workers:
            join(worker)
        wait_for(lambda: _read(manager, page, "json/")["aliveworkers"] == len(workers))
        settings = {"driver.host": manager.address, "executor.memory": memory}
        files = [f"--files_to_stage={jars.partition(':')[0]}"] if jars else []
        if jars:
            settings["executor.extraClassPath"] = jars
        properties = (f"-Dspark.{name}={value}" for name, value in settings.items())
        yield Cluster(
            master,
            (*(f"--job_server_jvm_properties={one}" for one in properties), *files),
            lambda: {worker.name: len(list(worker.glob("app-*"))) for worker in used},
            join,
        )


@contextmanager
def flink_cluster(
    folder: Path, class_path: str, manager: Place = HERE, workers: Sequence[Place] = (HERE, HERE)
) -> Iterator[Cluster]:
    """A job manager and task managers of one slot; `done` counts the subtasks that each one
    finished.
    """
    home = distribution("flink")
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED]
    exported = [
        "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
        "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    ]
    java = ["java", *opened, *exported, "-cp", f"{home}/lib/*:{class_path}"]
    rpc, rest = pick_port(None, None)
    addresses = {"jobmanager.rpc.address": manager.address, "rest.address": manager.address}
    settings = {**_FLINK, **addresses, "jobmanager.rpc.port": rpc, "rest.port": rest}
    package, names = "org.apache.flink.runtime", (f"worker-{number}" for number in count(1))
    with ExitStack() as stack:

        def start(place: Place, name: str, own: Sequence[str], *command: str) -> None:
            own_settings = {**settings, **dict.fromkeys(own, place.address)}
            text = "".join(f"{key}: {value}\n" for key, value in own_settings.items())
            place.write(folder / name / "conf" / "flink-conf.yaml", text)
            words = [*java, *command, "--configDir", str(folder / name / "conf")]
            stack.enter_context(started(words, folder / name, {}, place))

        def join(place: Place) -> None:
            own = ("taskmanager.host", "taskmanager.bind-host")
            start(place, next(names), own, "-Xmx768m", f"{package}.taskexecutor.TaskManagerRunner")

        # Beside its own address, the manager reaches itself at localhost.
        settings["jobmanager.bind-host"] = manager.address if manager == HERE else "0.0.0.0"
        start(
            manager,
            "manager",
            ("rest.bind-address",),
            "-Xmx512m",
            f"{package}.entrypoint.StandaloneSessionClusterEntrypoint",
        )
        for worker in workers:
            join(worker)
        wait_for(lambda: _read(manager, rest, "overview")["slots-available"] == len(workers))
        # The workers have all jars, and a job server sends its whole class path where it is told of
        # none.
        flags = ("--parallelism=2", f"--files_to_stage={class_path.split(os.pathsep)[0]}")
        yield Cluster(
            f"{manager.address}:{rest}", flags, lambda: _finished_subtasks(manager, rest), join
        )


def class_path(engine: str) -> str:
    """The job server's."""
    command = server_command(Runner(engine), [])
    assert command is not None
    words = command(0, "")
    return words[words.index("-cp") + 1]


def spark_sql(folder: Path, statements: str) -> list[list[str]]:
    """The columns of each row that Spark SQL, in a process of its own, prints for some
    statements.
    """
    submit = [
        "-cp",
        f"{distribution('spark')}/jars/*",
        "org.apache.spark.deploy.SparkSubmit",
        "--master=local[1]",
    ]
    driver = ["--class", "org.apache.spark.sql.hive.thriftserver.SparkSQLCLIDriver"]
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _SPARK_OPENED]
    opened.append("--add-opens=java.base/sun.nio.ch=ALL-UNNAMED")
    settings = [
        "--conf",
        "spark.ui.enabled=false",
        "--conf",
        "spark.sql.catalogImplementation=in-memory",
    ]
    command = [
        "java",
        "-Xmx1g",
        *opened,
        *submit,
        *driver,
        *settings,
        "spark-internal",
        "-e",
        statements,
    ]
    environment = os.environ | {"SPARK_LOCAL_IP": HERE.address, "SPARK_SCALA_VERSION": "2.12"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


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
    command = [
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary=:all:",
        f"--dest={folder}",
        project,
    ]
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        reason = f"pip cannot get {project}: {done.stderr.strip()[-500:]}"
        assert not os.environ.get("CI"), reason
        pytest.skip(reason)
    (archive,) = folder.glob("*.tar.gz")
    unpack(archive, folder)
    return folder / archive.name.removesuffix(".tar.gz") / "deps"


def _read(place: Place, port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://{place.address}:{port}/{path}", timeout=5) as answer:
        return json.load(answer)


def _finished_subtasks(place: Place, port: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for job in _read(place, port, "jobs/overview")["jobs"]:
        for vertex in _read(place, port, f"jobs/{job['jid']}")["vertices"]:
            for task in _read(place, port, f"jobs/{job['jid']}/vertices/{vertex['id']}")[
                "subtasks"
            ]:
                if task["status"] == "FINISHED":
                    found[task["taskmanager-id"]] = found.get(task["taskmanager-id"], 0) + 1
    return found
