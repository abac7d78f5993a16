"""Finds, downloads or builds the programs of Prism, Spark and Flink, and makes the commands that start them.

They are looked for where a Beam flag points, in the folder BEAMRANK_JARS, and in the user's cache. Otherwise Go builds
Prism, and Maven downloads a job server of Beam's own version or, where it has none, the jars of the last version with
which beamrank was tested.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import JobServerOptions, PipelineOptions

from beamrank.errors import PreflightError
from beamrank.progress import Progress
from models.checkpoints.disk_cache import cache_folder, exclusive
from pipelines.runners.job_server import Command

JARS = "BEAMRANK_JARS"
_PRISM_PACKAGE = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{beam.__version__}"
_MAVEN_DEPENDENCY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
# What Spark and Flink access by reflection; Java 17 closes it.
_OPENED = ("java.lang", "java.lang.invoke", "java.nio", "java.util", "sun.nio.ch")
# Error messages quote the end of a job server's log, which should hold warnings only.
_QUIET = ("-Dspark.ui.enabled=false", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_LOGGER = "org.slf4j:slf4j-simple:1.7.30"


@dataclass(frozen=True)
class JavaEngine:
    """An engine whose job server is Java.

    Attributes:
        name: as in `--runner`.
        artifact: Beam's runner on Maven Central; its job server is this with `-job-server`, one jar with all in it.
        main_class: the job server.
        master: the Beam option with the address of a cluster.
        tested: Maven coordinates of the jars to take where there is no job server of Beam's own version.
    """

    name: str
    artifact: str
    main_class: str
    master: str
    tested: tuple[str, ...]


SPARK = JavaEngine(
    "spark",
    "beam-runners-spark-3",
    "org.apache.beam.runners.spark.SparkJobServerDriver",
    "spark_master_url",
    (
        "org.apache.beam:beam-runners-spark-3:2.62.0",
        *(f"org.apache.spark:spark-{name}_2.12:3.5.0" for name in ("core", "sql", "streaming")),
        _LOGGER,
    ),
)
FLINK = JavaEngine(
    "flink",
    "beam-runners-flink-1.19",
    "org.apache.beam.runners.flink.FlinkJobServerDriver",
    "flink_master",
    ("org.apache.beam:beam-runners-flink-1.19:2.62.0", _LOGGER),
)


def prism_command(options: PipelineOptions, progress: Progress) -> Command:
    """The command that starts Prism.

    Raises:
        PreflightError: Prism was not found, and cannot be built.
    """
    program = _find("prism", "prism_location", options) or _build_prism(progress)
    return lambda port, _: [str(program), f"--job_port={port}", "--serve_http=false", "--log_level=warn"]


def java_command(engine: JavaEngine, options: PipelineOptions, progress: Progress) -> Command:
    """The command that starts a Java job server.

    Raises:
        PreflightError: Java or the job server was not found, and the job server cannot be downloaded.
    """
    servers = options.view_as(JobServerOptions)
    java = shutil.which(servers.job_server_java_launcher)
    if java is None:
        raise PreflightError(
            f"--runner {engine.name} needs Java 11 or 17, and {servers.job_server_java_launcher!r} was not found: "
            "install one, or name it with --job_server_java_launcher after `--`"
        )
    flag, jar = f"{engine.name}_job_server_jar", f"{engine.artifact}-job-server-{beam.__version__}.jar"
    class_path = str(_find(jar, flag, options) or _download(engine, jar, flag, progress))
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    master = f"--{engine.master.replace('_', '-')}={options.get_all_options()[engine.master]}"

    def command(port: int, folder: str) -> list[str]:
        return [
            *(java, *opened, *_QUIET, *servers.job_server_jvm_properties, f"-Djava.io.tmpdir={folder}"),
            *("-cp", class_path, engine.main_class, f"--artifacts-dir={folder}", f"--job-port={port}"),
            *("--artifact-port=0", "--expansion-port=0", master),
        ]

    return command


def _cache() -> Path:
    return cache_folder("engines") / beam.__version__


def _find(name: str, flag: str, options: PipelineOptions) -> Path | None:
    """A program that exists: the file that a flag names, or a file in one of two folders."""
    named = options.get_all_options()[flag]
    if named is not None:
        path = Path(named).expanduser().absolute()
        if not path.is_file():
            raise PreflightError(f"--{flag} names {named}, and no such file exists")
        return path
    folders = [Path(given) for given in (os.environ.get(JARS), _cache()) if given]
    return next((found for folder in folders if (found := folder / name).is_file()), None)


def _searched() -> str:
    given = os.environ.get(JARS)
    return f"in {given} ({JARS}) and {_cache()}" if given else f"in {_cache()} ({JARS} is not set)"


def _build_prism(progress: Progress) -> Path:
    folder, go = _cache(), shutil.which("go")
    by_hand = f"GOBIN={folder} go install {_PRISM_PACKAGE}"
    if go is None:
        raise PreflightError(
            f"Prism was not found: --prism_location is not given, there is no file `prism` {_searched()}, and Go to "
            f"build it is not installed. Install Go and run `{by_hand}`"
        )
    with exclusive(folder / ".prism.lock"):
        if not (folder / "prism").is_file():
            progress.note(f"building Prism {beam.__version__} with {go}, once for this machine: takes some minutes")
            _run([go, "install", _PRISM_PACKAGE], f"cannot build Prism: {by_hand}", {"GOBIN": str(folder)})
    return folder / "prism"


def _download(engine: JavaEngine, jar: str, flag: str, progress: Progress) -> str:
    """The class path of a job server that Maven downloads, once for this machine."""
    folder, mvn = _cache(), shutil.which("mvn")
    own = f"org.apache.beam:{engine.artifact}-job-server:{beam.__version__}"
    if mvn is None:
        raise PreflightError(
            f"the job server of {engine.name} was not found: --{flag} is not given, there is no {jar} {_searched()}, "
            f"and Maven to download it is not installed. Run `mvn dependency:copy -Dartifact={own} "
            f"-DoutputDirectory={folder}` on a machine that has Maven, and give the jar with --{flag} after `--`"
        )
    listed = folder / f"{engine.artifact}.classpath"
    with exclusive(listed.with_suffix(".lock")):
        known = _read_class_path(listed)
        if known:
            return known
        progress.note(f"downloading the job server of {engine.name} with {mvn}, once for this machine")
        maven, failure = [mvn, "-B", "-q"], f"Maven has no {own}"
        try:
            copy = [f"{_MAVEN_DEPENDENCY}:copy", f"-Dartifact={own}", f"-DoutputDirectory={folder}"]
            _run([*maven, *copy], failure)
            return str(folder / jar)
        except PreflightError as error:
            with tempfile.TemporaryDirectory() as work:
                project = Path(work, "pom.xml")
                project.write_text(_project(engine.tested))
                part = listed.with_suffix(".part")
                resolve = ["-f", str(project), f"-Dmdep.outputFile={part}", f"{_MAVEN_DEPENDENCY}:build-classpath"]
                advice = f"{error}. Maven has no {engine.tested[0]} either: give a job server with --{flag} after `--`"
                _run([*maven, *resolve], advice)
            part.replace(listed)
            progress.note(f"{failure}: using {engine.tested[0]}")
            return _read_class_path(listed)


def _project(coordinates: Sequence[str]) -> str:
    """A Maven project that depends on some jars."""
    keys = ("groupId", "artifactId", "version")
    dependencies = "".join(
        f"<dependency>{''.join(f'<{key}>{word}</{key}>' for key, word in zip(keys, each.split(':'), strict=True))}"
        "</dependency>"
        for each in coordinates
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>beamrank'
        f"</groupId><artifactId>engine</artifactId><version>1</version><dependencies>{dependencies}</dependencies>"
        "</project>"
    )


def _read_class_path(path: Path) -> str:
    """The class path of an earlier download; empty where one of its jars no longer exists."""
    class_path = path.read_text().strip() if path.is_file() else ""
    return class_path if all(os.path.isfile(jar) for jar in class_path.split(os.pathsep)) else ""


def _run(command: Sequence[str], failure: str, environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        output = re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr).strip().splitlines() or ["no output"]
        raise PreflightError(f"{failure} ({os.path.basename(command[0])}: {output[0].strip()})")
