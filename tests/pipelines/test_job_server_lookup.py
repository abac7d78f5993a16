"""Where the programs of Prism, Spark and Flink are looked for, and what is said where they are not."""

import os
import shutil
import stat
from pathlib import Path

import apache_beam as beam
import pytest

from beamrank.errors import ConfigError, PreflightError
from pipelines.runners.names import Runner
from pipelines.runners.options import server_command
from tests.support.cascades import beamrank_here

_VERSION = beam.__version__
_SERVER = f"job-server-{_VERSION}.jar"


@pytest.fixture
def real_path() -> str:
    """PATH as it is on this machine; asked for before `tools` changes it."""
    return os.environ["PATH"]


@pytest.fixture(autouse=True)
def tools(real_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing but Java: no Go, no Maven, an empty cache."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("BEAMRANK_JARS", raising=False)
    java = folder / "java"
    java.touch()
    java.chmod(java.stat().st_mode | stat.S_IEXEC)
    return folder


def _command(runner: str, *flags: str) -> list[str]:
    command = server_command(Runner(runner), flags)
    assert command is not None
    return command(1234, "folder")


def test_runners_inside_the_launcher_need_no_program() -> None:
    assert server_command(Runner.LOCAL, []) is None
    assert server_command(Runner.EMBED, []) is None


@pytest.mark.parametrize("runner", ["prism", "spark", "flink"])
def test_a_job_server_that_runs_already_is_not_started(runner: str) -> None:
    assert server_command(Runner(runner), ["--job_endpoint=localhost:8099"]) is None


@pytest.mark.parametrize(
    ("runner", "flag", "name"),
    [
        ("prism", "prism_location", "prism"),
        ("spark", "spark_job_server_jar", f"beam-runners-spark-3-{_SERVER}"),
        ("flink", "flink_job_server_jar", f"beam-runners-flink-1.19-{_SERVER}"),
    ],
)
def test_flag_then_folder_then_cache(
    runner: str, flag: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, jars, kept = tmp_path / "given", tmp_path / "jars" / name, tmp_path / "cache" / "engines" / _VERSION / name
    for path in (given, jars, kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert str(kept) in _command(runner)
    monkeypatch.setenv("BEAMRANK_JARS", str(jars.parent))
    assert str(jars) in _command(runner)
    assert str(given) in _command(runner, f"--{flag}={given}")
    with pytest.raises(PreflightError, match=rf"--{flag} names {tmp_path}/no, and there is no such file"):
        server_command(Runner(runner), [f"--{flag}={tmp_path}/no"])


@pytest.mark.parametrize(
    ("runner", "message"),
    [
        (
            "prism",
            rf"no Prism.*\(BEAMRANK_JARS is not set\).*`GOBIN=.*/engines/{_VERSION} go install github.com/apache",
        ),
        (
            "spark",
            r"no job server of spark.*Run `mvn dependency:copy -Dartifact=org.apache.beam:beam-runners-spark-3-job",
        ),
        ("flink", r"no job server of flink.*give the jar with --flink_job_server_jar after `--`"),
    ],
)
def test_what_is_nowhere_is_said_with_the_command_to_run(runner: str, message: str) -> None:
    with pytest.raises(PreflightError, match=message):
        server_command(Runner(runner), [])


def test_no_java_is_said(tools: Path) -> None:
    (tools / "java").unlink()
    with pytest.raises(PreflightError, match="--runner spark needs Java 11 or 17, and there is no 'java'"):
        server_command(Runner.SPARK, [])
    with pytest.raises(PreflightError, match="there is no '/opt/java8'"):
        server_command(Runner.FLINK, ["--job_server_java_launcher=/opt/java8"])


@pytest.mark.go
def test_a_build_that_fails_is_said(real_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("go", path=real_path) is None:
        pytest.skip("there is no Go")
    for name, value in {"PATH": real_path, "GOPROXY": "off", "GOMODCACHE": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    said: list[str] = []
    with pytest.raises(PreflightError, match=r"Prism cannot be built: GOBIN=.* \(go says: .*GOPROXY=off\)"):
        server_command(Runner.PRISM, [], said.append)
    assert said[0].startswith(f"building Prism {_VERSION}")


@pytest.mark.slow
@pytest.mark.maven
def test_maven_is_asked_once_and_again_when_a_jar_is_gone(
    real_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("mvn", path=real_path) is None:
        pytest.skip("there is no Maven")
    monkeypatch.setenv("PATH", real_path)
    said: list[str] = []
    first, second = (server_command(Runner.FLINK, [], said.append) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first(1, "folder") == second(1, "folder")
    assert sum("once for this machine" in line for line in said) == 1
    (listed,) = (tmp_path / "cache" / "engines" / _VERSION).glob("*.classpath")
    assert all(Path(jar).is_file() for jar in listed.read_text().split(os.pathsep))
    listed.write_text("/nowhere/gone.jar")
    third = server_command(Runner.FLINK, [], said.append)
    assert third is not None
    assert third(1, "folder") == first(1, "folder")


def test_masters_and_properties_reach_the_job_server(tmp_path: Path) -> None:
    jar = tmp_path / "given.jar"
    jar.touch()
    spark = _command("spark", f"--spark_job_server_jar={jar}", "--job_server_jvm_properties=-Xmx2g")
    assert "--spark-master-url=local[*]" in spark
    assert spark.index("-Xmx2g") < spark.index("-cp") < spark.index("--job-port=1234")
    flags = [f"--flink_job_server_jar={jar}", "--flink_master=http://localhost:8081"]
    assert "--flink-master=http://localhost:8081" in _command("flink", *flags)


def test_a_wrong_flag_is_found_before_a_program_is_looked_for() -> None:
    with pytest.raises(ConfigError):
        server_command(Runner.PRISM, ["--prism_locatoin=x"])


def test_a_missing_engine_ends_the_command_before_anything_starts(config_path: Path, tmp_path: Path) -> None:
    done = beamrank_here("run", config_path, "--runner", "prism", "--output", tmp_path / "out")
    assert done.returncode == 3
    assert done.stderr.startswith("error: no Prism: ")
    assert not os.path.exists(tmp_path / "out")
