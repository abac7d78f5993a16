"""Job servers of Prism, Spark and Flink: finds or gets their programs, and runs them as child
processes.

Beam's own runners start a new job server for every job, and set signal handlers, which only a main
thread may do. A program is looked for where a Beam flag points, in the folder BEAMRANK_JARS, and in
the user's cache. Otherwise Go builds Prism, and Maven downloads a job server of Beam's own version
or, where it has none, the jars that were tested.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import JobServerOptions, PipelineOptions, PortableOptions
from apache_beam.utils.subprocess_server import pick_port

from beamrank.errors import PreflightError, TemporaryError, WorkerLostError
from beamrank.notes import Progress
from beamrank.storage.disk_cache import cache_folder, exclusive, owned
from models.lucene.jvm import NO_OWN_FILES
from pipelines.runners.workers import child_command

# The command of a job server, given its port and a folder for its temporary files.
Command = Callable[[int, str], list[str]]

_START_SECONDS = 120.0
_ANSWER_SECONDS = 10.0
# Also in a URL; [local] and local[*] are no addresses.
_ADDRESS = re.compile(r"([\w.-]+|\[[0-9a-fA-F:]+\]):(\d+)")
_DYING_SECONDS = 2.0
_TAIL_BYTES = 2000
_PRISM_PACKAGE = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{beam.__version__}"
_MAVEN_DEPENDENCY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_PROJECT = (
    "<project "
    'xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>beamrank</groupId>'
    "<artifactId>engine</artifactId><version>1</version><dependencies>{}</dependencies></project>"
)
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)
# The packages that Spark and Flink access by reflection; Java 17 closes them.
_OPENED = ("java.lang", "java.lang.invoke", "java.nio", "java.util", "sun.nio.ch")
# Error messages quote the end of a job server's log, which should hold warnings only.
_QUIET = ("-Dspark.ui.enabled=false", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_LOGGER = "org.slf4j:slf4j-simple:1.7.30"


class _JavaEngine(NamedTuple):
    """Beam's runner on Maven Central, whose job server is `-job-server`, one jar with all in it;
    and how to start it.

    `master` is the Beam option with the address of a cluster, `tested` are the coordinates of the
    jars to take where there is no job server of Beam's own version.
    """

    artifact: str
    main_class: str
    master: str
    tested: tuple[str, ...]


_JAVA_ENGINES = {
    "spark": _JavaEngine(
        "beam-runners-spark-3",
        "org.apache.beam.runners.spark.SparkJobServerDriver",
        "spark_master_url",
        (
            "org.apache.beam:beam-runners-spark-3:2.62.0",
            *(f"org.apache.spark:spark-{name}_2.12:3.5.0" for name in ("core", "sql", "streaming")),
            _LOGGER,
        ),
    ),
    "flink": _JavaEngine(
        "beam-runners-flink-1.19",
        "org.apache.beam.runners.flink.FlinkJobServerDriver",
        "flink_master",
        ("org.apache.beam:beam-runners-flink-1.19:2.62.0", _LOGGER),
    ),
}


class JobServer:
    """A job server that accepts connections; PreflightError if it does not start, WorkerLostError
    if it is killed.
    """

    def __init__(self, name: str, command: Command) -> None:
        (port,) = pick_port(None)
        folder = tempfile.mkdtemp(prefix=f"beamrank-{name}-")
        # Has no name, so it never has to be removed.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._name, self.endpoint = name, f"localhost:{port}"
        self.process = subprocess.Popen(
            child_command(folder, *command(port, folder)),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            # A terminal sends Ctrl-C to the whole process group; the launcher ends its children
            # itself.
            start_new_session=True,
        )
        deadline = time.monotonic() + _START_SECONDS
        with grpc.insecure_channel(self.endpoint) as channel:
            ready = grpc.channel_ready_future(channel)
            while time.monotonic() < deadline and self.process.poll() is None:
                with contextlib.suppress(grpc.FutureTimeoutError):
                    ready.result(timeout=0.2)
                    return
            ready.cancel()
        # Ended by a signal, as by a lack of memory, it may start at the next attempt.
        if self.process.poll() not in (None, *range(128)):
            self.check()
        self.process.terminate()
        raise PreflightError(f"the job server of {name} did not start{self._log_tail()}")

    def check(self) -> None:
        """Raises WorkerLostError if the server has ended."""
        if self.process.poll() is not None:
            raise WorkerLostError(
                f"the job server of {self._name} died with code "
                f"{self.process.returncode}{self._log_tail()}"
            )

    def _log_tail(self) -> str:
        """The end of the server's output, as part of a sentence."""
        log = self._log.fileno()
        tail = (
            os.pread(log, _TAIL_BYTES, max(0, os.fstat(log).st_size - _TAIL_BYTES))
            .decode(errors="replace")
            .strip()
        )
        return f"; its last output: {tail}" if tail else ""


_servers: dict[str, JobServer] = {}


def job_endpoint(name: str, command: Command) -> str:
    """The address of an engine's job server. Jobs share it, because a Java server takes seconds to
    start.
    """
    server = _servers.get(name)
    if server is None or server.process.poll() is not None:
        server = _servers[name] = JobServer(name, command)
    return server.endpoint


def check_job_server(endpoint: str | None, error: BaseException | None = None) -> None:
    """Raises WorkerLostError if the job server at an address was started here and has died.

    After the `error` of a job it waits a moment: a connection breaks before its process has ended.
    """
    server = next((server for server in _servers.values() if server.endpoint == endpoint), None)
    deadline = time.monotonic() + (_DYING_SECONDS if isinstance(error, grpc.RpcError) else 0.0)
    while server is not None:
        server.check()
        if time.monotonic() >= deadline:
            return
        time.sleep(0.05)


def check_answers(name: str, options: PipelineOptions) -> None:
    """Raises TemporaryError where nobody answers at the address of a job server, a cluster, or a
    pool that this machine's engine uses: Beam's and the engines' clients would wait for ever.
    """
    values, portable = options.get_all_options(), options.view_as(PortableOptions)
    if portable.job_endpoint not in (None, "embed"):
        with grpc.insecure_channel(portable.job_endpoint) as channel:
            try:
                grpc.channel_ready_future(channel).result(_ANSWER_SECONDS)
            except grpc.FutureTimeoutError as error:
                raise _unanswered("job_endpoint", portable.job_endpoint) from error
        return
    engine = _JAVA_ENGINES.get(name)
    if engine is not None and _ADDRESS.search(values[engine.master]):
        _check_listens(engine.master, values[engine.master])
    elif portable.environment_type == "EXTERNAL":
        pool = portable.lookup_environment_option("external_service_address")
        _check_listens("environment_config", portable.environment_config or pool or "")


def _check_listens(flag: str, value: str) -> None:
    """Tries the addresses in a flag's value, one after the other."""
    reason = None
    for host, port in _ADDRESS.findall(value):
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
            return
        except OSError as error:
            reason = error
    if reason is not None:
        raise _unanswered(flag, value) from reason


def _unanswered(flag: str, value: str) -> TemporaryError:
    return TemporaryError(
        f"no server answers at {value} (--{flag}), so no worker would ever start: start it, or "
        "correct the address"
    )


def prism_command(options: PipelineOptions, progress: Progress) -> Command:
    """The command that starts Prism."""
    program = _find("prism", "prism_location", options) or _build_prism(progress)
    return lambda port, _: [
        str(program),
        f"--job_port={port}",
        "--serve_http=false",
        "--log_level=warn",
    ]


def java_command(name: str, options: PipelineOptions, progress: Progress) -> Command:
    """The command that starts the job server of Spark or Flink."""
    engine, servers = _JAVA_ENGINES[name], options.view_as(JobServerOptions)
    java = shutil.which(servers.job_server_java_launcher)
    if java is None:
        raise PreflightError(
            f"--runner {name} needs Java 11 or 17, and {servers.job_server_java_launcher!r} was "
            "not found: install one, or name it with --job_server_java_launcher after `--`"
        )
    flag, jar = f"{name}_job_server_jar", f"{engine.artifact}-job-server-{beam.__version__}.jar"
    class_path = str(_find(jar, flag, options) or _download(engine, jar, flag, progress))
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    master = f"--{engine.master.replace('_', '-')}={options.get_all_options()[engine.master]}"
    return lambda port, folder: [
        *(
            java,
            *opened,
            *_QUIET,
            *NO_OWN_FILES,
            *servers.job_server_jvm_properties,
            f"-Djava.io.tmpdir={folder}",
        ),
        *("-cp", class_path, engine.main_class, f"--artifacts-dir={folder}", f"--job-port={port}"),
        *("--artifact-port=0", "--expansion-port=0", master),
    ]


def _find(name: str, flag: str, options: PipelineOptions) -> Path | None:
    """A program that exists: the file that a flag names, or a file in one of two folders."""
    named = options.get_all_options()[flag]
    if named is not None:
        path = Path(named).expanduser().absolute()
        if not path.is_file():
            raise PreflightError(f"--{flag} names {named}, and no such file exists")
        return path
    jars = os.environ.get("BEAMRANK_JARS")
    files = [*([Path(jars, name)] if jars else []), owned(_cache() / name)]
    return next(filter(Path.is_file, files), None)


def _cache() -> Path:
    return owned(cache_folder("engines") / beam.__version__)


def _missing(name: str, flag: str, program: str, advice: str) -> PreflightError:
    jars = os.environ.get("BEAMRANK_JARS")
    places = (
        f"in {jars} (BEAMRANK_JARS) and {_cache()}"
        if jars
        else f"in {_cache()} (BEAMRANK_JARS is not set)"
    )
    return PreflightError(
        f"{name} was not found: --{flag} is not given, there is no such file {places}, and "
        f"{program} is not installed. {advice}"
    )


def _build_prism(progress: Progress) -> Path:
    folder, go = _cache(), shutil.which("go")
    by_hand = f"GOBIN={folder} go install {_PRISM_PACKAGE}"
    if go is None:
        raise _missing("prism", "prism_location", "Go", f"Install Go and run `{by_hand}`")
    with exclusive(folder / ".prism.lock"):
        if not (folder / "prism").is_file():
            progress.note(
                f"building Prism {beam.__version__} with {go}, once for this machine: takes some "
                "minutes"
            )
            _run(
                [go, "install", _PRISM_PACKAGE], f"cannot build Prism: {by_hand}", GOBIN=str(folder)
            )
    return folder / "prism"


def _download(engine: _JavaEngine, jar: str, flag: str, progress: Progress) -> str:
    """The class path of a job server that Maven downloads, once for this machine."""
    folder, mvn = _cache(), shutil.which("mvn")
    artifact = f"org.apache.beam:{engine.artifact}-job-server:{beam.__version__}"
    copy = [f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
    if mvn is None:
        by_hand = f"Run `mvn dependency:copy {' '.join(copy)}` on a machine that has Maven"
        raise _missing(jar, flag, "Maven", f"{by_hand}, and give the jar with --{flag} after `--`")
    listed = owned(folder / f"{engine.artifact}.classpath")
    with exclusive(listed.with_suffix(".lock")), tempfile.TemporaryDirectory() as work:
        stored = listed.read_text().strip() if listed.is_file() else ""
        if stored and all(map(os.path.isfile, stored.split(os.pathsep))):
            return stored
        progress.note(f"downloading {jar} with {mvn}, once for this machine")
        try:
            _run([mvn, "-B", "-q", *copy, f"{_MAVEN_DEPENDENCY}:copy"], f"Maven has no {artifact}")
            return str(folder / jar)
        except PreflightError as error:
            project, classpath = Path(work, "pom.xml"), Path(work, "classpath")
            project.write_text(
                _PROJECT.format(
                    "".join(_DEPENDENCY.format(*tested.split(":")) for tested in engine.tested)
                )
            )
            resolve = [
                "-f",
                str(project),
                f"-Dmdep.outputFile={classpath}",
                f"{_MAVEN_DEPENDENCY}:build-classpath",
            ]
            advice = (
                f"{error}. Maven has no {engine.tested[0]} either: give a job server with "
                f"--{flag} after `--`"
            )
            _run([mvn, "-B", "-q", *resolve], advice)
            progress.note(f"Maven has no {artifact}: using {engine.tested[0]}")
            listed.write_text(classpath.read_text())
            return listed.read_text().strip()


def _run(command: Sequence[str], failure: str, **environment: str) -> None:
    environ = {**os.environ, **environment}
    nowhere = subprocess.DEVNULL
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, stdin=nowhere, check=False
    )
    if done.returncode:
        output = re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr).strip().splitlines() or [
            "no output"
        ]
        raise PreflightError(f"{failure} ({os.path.basename(command[0])}: {output[0].strip()})")
