"""The engines that are programs of their own: where Prism, Spark and Flink are looked for, got, and how they start."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    JobServerOptions,
    PipelineOptions,
    PrismRunnerOptions,
    SparkRunnerOptions,
)

from beamrank.errors import PreflightError
from models.checkpoints.disk_cache import cache_folder, exclusive
from pipelines.runners.job_server import Command

JARS = "BEAMRANK_JARS"
_PRISM_PACKAGE = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{beam.__version__}"
_CLASS_PATH_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
# What Spark and Flink reach into; Java 17 keeps it closed.
_OPENED = ("java.lang", "java.lang.invoke", "java.nio", "java.util", "sun.nio.ch")
# Warnings are a job server's last words.
_QUIET = ("-Dspark.ui.enabled=false", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_LOGGER = "org.slf4j:slf4j-simple:1.7.30"

Say = Callable[[str], None]


@dataclass(frozen=True)
class JavaEngine:
    """An engine whose job server is Java.

    Attributes:
        name: our word.
        artifact: Beam's runner on Maven Central; its job server is this with `-job-server`, one jar with all in it.
        main_class: the job server.
        nearest: the version of `artifact` to take where there is no job server of Beam's own version. It was tried.
        provided: what that jar expects to find, as Maven coordinates.
    """

    name: str
    artifact: str
    main_class: str
    nearest: str
    provided: tuple[str, ...] = ()

    @property
    def jar(self) -> str:
        """The job server's file."""
        return f"{self.artifact}-job-server-{beam.__version__}.jar"


SPARK = JavaEngine(
    "spark",
    "beam-runners-spark-3",
    "org.apache.beam.runners.spark.SparkJobServerDriver",
    "2.62.0",
    (*(f"org.apache.spark:spark-{name}_2.12:3.5.0" for name in ("core", "sql", "streaming")), _LOGGER),
)
FLINK = JavaEngine(
    "flink",
    "beam-runners-flink-1.19",
    "org.apache.beam.runners.flink.FlinkJobServerDriver",
    "2.62.0",
    (_LOGGER,),
)


def prism_command(options: PipelineOptions, say: Say) -> Command:
    """How Prism starts.

    Raises:
        PreflightError: there is no Prism, and none can be built.
    """
    program = str(_prism(options.view_as(PrismRunnerOptions).prism_location, say))
    return lambda port, _: [program, f"--job_port={port}", "--serve_http=false", "--log_level=warn"]


def java_command(engine: JavaEngine, options: PipelineOptions, say: Say) -> Command:
    """How a Java job server starts.

    Raises:
        PreflightError: there is no Java or no job server, and none can be got.
    """
    servers = options.view_as(JobServerOptions)
    java = shutil.which(servers.job_server_java_launcher)
    if java is None:
        raise PreflightError(
            f"--runner {engine.name} needs Java 11 or 17, and there is no {servers.job_server_java_launcher!r}: "
            "install one, or name it with --job_server_java_launcher after `--`"
        )
    flag = f"{engine.name}_job_server_jar"
    class_path = _class_path(engine, flag, options.get_all_options()[flag], say)
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    properties = [*opened, *_QUIET, *servers.job_server_jvm_properties]
    master = {
        "spark": f"--spark-master-url={options.view_as(SparkRunnerOptions).spark_master_url}",
        "flink": f"--flink-master={options.view_as(FlinkRunnerOptions).flink_master}",
    }[engine.name]

    def command(port: int, folder: str) -> list[str]:
        place = [f"-Djava.io.tmpdir={folder}", "-cp", class_path, engine.main_class, f"--artifacts-dir={folder}"]
        return [java, *properties, *place, f"--job-port={port}", "--artifact-port=0", "--expansion-port=0", master]

    return command


def _prism(location: str | None, say: Say) -> Path:
    if location is not None:
        return _existing(location, "--prism_location")
    kept = cache_folder("engines") / beam.__version__
    found = _look_in_folders("prism", kept)
    if found is not None:
        return found
    by_hand = f"GOBIN={kept} go install {_PRISM_PACKAGE}"
    go = shutil.which("go")
    if go is None:
        raise PreflightError(
            f"no Prism: none was named by --prism_location, there is no file `prism` in {_folders(kept)}, and no Go to "
            f"build it. Install Go and run `{by_hand}`"
        )
    with exclusive(kept / ".prism.lock"):
        if not (kept / "prism").is_file():
            say(f"building Prism {beam.__version__} with {go}, once for this machine: this takes some minutes")
            _install([go, "install", _PRISM_PACKAGE], {"GOBIN": str(kept)}, f"Prism cannot be built: {by_hand}")
    return kept / "prism"


def _class_path(engine: JavaEngine, flag: str, jar: str | None, say: Say) -> str:
    if jar is not None:
        return str(_existing(jar, f"--{flag}"))
    kept = cache_folder("engines") / beam.__version__
    found = _look_in_folders(engine.jar, kept)
    if found is not None:
        return str(found)
    listed = kept / f"{engine.artifact}.classpath"
    with exclusive(listed.with_suffix(".lock")):
        return _listed(listed) or _resolve(engine, flag, listed, say)


def _resolve(engine: JavaEngine, flag: str, listed: Path, say: Say) -> str:
    """Asks Maven for the job server of Beam's own version, then for the jars of the nearest one that was tried."""
    mvn = shutil.which("mvn")
    if mvn is None:
        raise PreflightError(
            f"no job server of {engine.name}: none was named by --{flag}, there is no {engine.jar} in "
            f"{_folders(listed.parent)}, and no mvn to get it. Run `mvn dependency:copy -Dartifact=org.apache.beam:"
            f"{engine.artifact}-job-server:{beam.__version__} -DoutputDirectory={listed.parent}` on a machine that has "
            f"Maven, and give the jar with --{flag} after `--`"
        )
    say(f"getting the job server of {engine.name} with {mvn}, once for this machine")
    own = f"org.apache.beam:{engine.artifact}-job-server:{beam.__version__}"
    nearest = f"org.apache.beam:{engine.artifact}:{engine.nearest}"
    try:
        _ask_maven(mvn, (own,), listed, f"Maven has no {own}")
    except PreflightError as error:
        try:
            _ask_maven(mvn, (nearest, *engine.provided), listed, f"Maven has no {nearest}")
        except PreflightError as second:
            raise PreflightError(f"{error}. {second}. Give a job server with --{flag} after `--`") from second
        say(f"Maven has no {own}: taking {nearest}")
    return _listed(listed)


def _ask_maven(mvn: str, coordinates: Sequence[str], listed: Path, failure: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        project, lines = Path(folder) / "pom.xml", Path(folder) / "classpath"
        project.write_text(_project(coordinates))
        _install([mvn, "-B", "-q", "-f", str(project), f"-Dmdep.outputFile={lines}", _CLASS_PATH_GOAL], {}, failure)
        part = listed.with_suffix(".part")
        part.write_text(lines.read_text())
        part.replace(listed)


def _project(coordinates: Sequence[str]) -> str:
    """A Maven project that depends on jars; a job server holds all that it needs, so what it names is left out."""
    dependencies = []
    for each in coordinates:
        group, artifact, version = (escape(word) for word in each.split(":"))
        alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        dependencies.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
            f"{alone if artifact.endswith('-job-server') else ''}</dependency>"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>beamrank</groupId><artifactId>engine</artifactId><version>1</version>"
        f"<dependencies>{''.join(dependencies)}</dependencies></project>"
    )


def _listed(path: Path) -> str:
    """The class path that Maven gave last time; empty where one of its jars is gone."""
    if not path.is_file():
        return ""
    class_path = path.read_text().strip()
    return class_path if all(os.path.isfile(jar) for jar in class_path.split(os.pathsep)) else ""


def _install(command: Sequence[str], environment: Mapping[str, str], failure: str) -> None:
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        said = re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr).strip().splitlines() or ["nothing"]
        raise PreflightError(f"{failure} ({os.path.basename(command[0])} says: {said[0].strip()})")


def _look_in_folders(name: str, kept: Path) -> Path | None:
    folders = [Path(given) for given in (os.environ.get(JARS),) if given]
    return next((folder / name for folder in [*folders, kept] if (folder / name).is_file()), None)


def _folders(kept: Path) -> str:
    given = os.environ.get(JARS)
    return f"{given} ({JARS}) or {kept}" if given else f"{kept} ({JARS} is not set)"


def _existing(path: str, flag: str) -> Path:
    file = Path(path).expanduser().absolute()
    if not file.is_file():
        raise PreflightError(f"{flag} names {path}, and there is no such file")
    return file
