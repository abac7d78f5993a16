"""Job servers: where their programs are looked for, that they start, and that their death is
noticed.
"""

import contextlib
import os
import shutil
import socket
import sys
from pathlib import Path

import apache_beam as beam
import psutil
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beamrank.errors import ConfigError, PreflightError, TemporaryError, WorkerLostError
from pipelines.runners import job_server
from pipelines.runners.job_server import JobServer, check_answers, job_endpoint
from pipelines.runners.options import Runner, beam_options, server_command
from pipelines.runners.watchdog import run_watched
from pipelines.runners.workers import prepare_environment
from tests.support.processes import beamrank_here, with_argument
from tests.support.progress import RecordedProgress
from tests.support.refusals import refuses
from tests.support.waiting import WaitFn, endless

_VERSION = beam.__version__
_REAL_PATH = os.environ["PATH"]
_PROGRAMS = [
    ("prism", "prism_location", "prism"),
    ("spark", "spark_job_server_jar", f"beam-runners-spark-3-job-server-{_VERSION}.jar"),
    ("flink", "flink_job_server_jar", f"beam-runners-flink-1.19-job-server-{_VERSION}.jar"),
]
# Beam's own job server, in a process.
_LOCAL = """
import sys, time
from apache_beam.runners.portability.local_job_service import LocalJobServicer
server = LocalJobServicer()
server.start_grpc_server(int(sys.argv[1]))
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def java(tmp_path, monkeypatch):
    """A machine with Java, without Go and Maven, and with an empty cache."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/java").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("BEAMRANK_JARS", raising=False)


def _command(runner, *flags, progress=None):
    command = server_command(Runner(runner), flags, progress or RecordedProgress())
    assert command is not None
    return command(1234, "folder")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to have files of two users")
def test_program_of_a_different_user_is_refused_where_everyone_can_write(tmp_path):
    folder = tmp_path / "cache/engines" / _VERSION
    folder.mkdir(parents=True)
    (folder / "prism").touch(mode=0o755)
    assert _command("prism")[0] == str(folder / "prism")
    os.chown(folder / "prism", 54321, -1)
    folder.chmod(0o777)
    with refuses(PreflightError, "other-user", file="prism"):
        _command("prism")


@pytest.mark.parametrize(
    "flags", [["embed"], *([name, "--job_endpoint=h:1"] for name, *_ in _PROGRAMS)]
)
def test_job_server_is_not_started_where_none_is_needed(flags):
    assert server_command(Runner(flags[0]), flags[1:]) is None


@pytest.fixture
def addresses():
    """Of a port at which somebody listens, and of one at which nobody does."""
    with socket.create_server(("127.0.0.1", 0)) as open_, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield [f"127.0.0.1:{each.getsockname()[1]}" for each in (open_, closed)]


@pytest.mark.parametrize(
    ("runner", "flags"),
    [
        ("flink", ["--flink_master={}"]),
        ("flink", ["--flink_master=http://{}"]),
        ("spark", ["--spark_master_url=spark://{}"]),
        ("flink", ["--environment_type=EXTERNAL", "--environment_config={}"]),
        (
            "prism",
            ["--environment_type=EXTERNAL", "--environment_options=external_service_address={}"],
        ),
        # The pool of a cluster's machine is not this machine's.
        (
            "spark",
            [
                "--spark_master_url=spark://{}",
                "--environment_type=EXTERNAL",
                "--environment_config=localhost:1",
            ],
        ),
    ],
)
def test_address_at_which_nobody_listens_is_named(runner, flags, addresses):
    answers, silent = addresses
    check_answers(runner, beam_options(Runner(runner), [each.format(answers) for each in flags]))
    with pytest.raises(TemporaryError, match=silent):
        check_answers(runner, beam_options(Runner(runner), [each.format(silent) for each in flags]))


def test_one_of_several_masters_is_enough(addresses):
    flags = [f"--spark_master_url=spark://{addresses[1]},{addresses[0]}"]
    check_answers("spark", beam_options(Runner.SPARK, flags))


@pytest.mark.parametrize(
    ("runner", "flags"),
    [
        ("embed", []),
        ("flink", []),
        ("spark", []),
        ("spark", ["--spark_master_url=local-cluster[2,1,1024]"]),
    ],
)
def test_engine_of_this_machine_has_no_address(runner, flags):
    check_answers(runner, beam_options(Runner(runner), flags))


def test_job_endpoint_at_which_nobody_listens_is_named(addresses, monkeypatch):
    monkeypatch.setattr(job_server, "_ANSWER_SECONDS", 0.2)
    flags = [f"--job_endpoint={addresses[1]}"]
    with pytest.raises(TemporaryError, match=addresses[1]):
        check_answers("flink", beam_options(Runner.FLINK, flags))


@pytest.mark.parametrize(("runner", "flag", "name"), _PROGRAMS)
def test_lookup_takes_flag_then_jars_folder_then_cache(runner, flag, name, tmp_path, monkeypatch):
    given, jars, kept = (
        tmp_path / "given",
        tmp_path / "jars" / name,
        tmp_path / "cache" / "engines" / _VERSION / name,
    )
    for path in (given, jars, kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert str(kept) in _command(runner)
    monkeypatch.setenv("BEAMRANK_JARS", str(jars.parent))
    assert str(jars) in _command(runner)
    assert str(given) in _command(runner, f"--{flag}={given}")
    with pytest.raises(PreflightError, match=rf"--{flag} .*{tmp_path}/no"):
        _command(runner, f"--{flag}={tmp_path}/no")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["prism"], rf"BEAMRANK_JARS.*`GOBIN=.*/engines/{_VERSION} go install github"),
        (["spark"], "mvn dependency:copy -Dartifact=org.apache.beam:beam-runners-spark-3-job"),
        (["flink"], r"beam-runners-flink.*--flink_job_server_jar "),
        (["flink", "--job_server_java_launcher=/opt/java8"], "'/opt/java8'"),
    ],
)
def test_lookup_error_names_the_command_to_run(flags, message):
    with pytest.raises(PreflightError, match=message):
        _command(*flags)


@pytest.mark.go
@pytest.mark.skipif(shutil.which("go") is None, reason="there is no Go")
def test_prism_build_that_fails_is_an_error(tmp_path, monkeypatch):
    for name, value in {"PATH": _REAL_PATH, "GOPROXY": "off", "GOMODCACHE": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    progress = RecordedProgress()
    with pytest.raises(PreflightError, match="GOPROXY=off"):
        _command("prism", progress=progress)
    assert progress.notes[0].startswith(f"building Prism {_VERSION}")


@pytest.mark.slow
@pytest.mark.maven
@pytest.mark.skipif(shutil.which("mvn") is None, reason="there is no Maven")
def test_maven_downloads_a_missing_jar_again(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", _REAL_PATH)
    progress = RecordedProgress()
    first = _command("flink", progress=progress)
    assert _command("flink", progress=progress) == first
    assert sum("once for this machine" in note for note in progress.notes) == 1
    class_path = first[first.index("-cp") + 1]
    assert all(Path(jar).is_file() for jar in class_path.split(os.pathsep))
    for listed in (tmp_path / "cache/engines" / _VERSION).glob("*.classpath"):
        listed.write_text("/nowhere/gone.jar")
    assert _command("flink") == first


def test_masters_and_properties_reach_the_job_server(tmp_path):
    jar = tmp_path / "given.jar"
    jar.touch()
    spark = _command("spark", f"--spark_job_server_jar={jar}", "--job_server_jvm_properties=-Xmx2g")
    assert "--spark-master-url=local[*]" in spark
    assert spark.index("-Xmx2g") < spark.index("-cp") < spark.index("--job-port=1234")
    flags = [f"--flink_job_server_jar={jar}", "--flink_master=http://localhost:8081"]
    assert "--flink-master=http://localhost:8081" in _command("flink", *flags)


def test_wrong_flag_is_found_before_the_lookup():
    with pytest.raises(ConfigError):
        _command("prism", "--prism_locatoin=x")


def test_missing_engine_ends_the_command_before_anything_starts(config_path, tmp_path):
    done = beamrank_here("run", config_path, "--runner", "prism", "--output", tmp_path / "out")
    assert done.returncode == 3
    assert done.stderr.startswith("error: prism was not found: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        ("raise SystemExit('no such master')", PreflightError, "no such master"),
        ("import os; os.kill(os.getpid(), 9)", WorkerLostError, "137"),
    ],
)
def test_job_server_that_does_not_start_is_told(code, kind, said):
    with pytest.raises(kind, match=f" test .*{said}"):
        JobServer("test", lambda port, folder: [sys.executable, "-S", "-c", code])


def _pipeline(endpoint, seconds):
    flags = ["--runner=PortableRunner", f"--job_endpoint={endpoint}", "--environment_type=LOOPBACK"]
    pipeline = beam.Pipeline(options=PipelineOptions(flags))
    _ = pipeline | beam.Create([seconds]) | beam.Reshuffle() | beam.ParDo(WaitFn())
    return pipeline


def _server_processes():
    return with_argument(psutil.Process().children(recursive=True), "LocalJobServicer")


@pytest.mark.slow
def test_job_server_is_reused_and_restarted_after_it_died():
    prepare_environment()

    def command(port, _):
        return [sys.executable, "-c", _LOCAL, str(port)]

    first = job_endpoint("test", command)
    assert job_endpoint("test", command) == first
    steps = iter(range(100_000))

    def kill_it():
        step = next(steps)
        if step == 8:
            _server_processes()[-1].kill()
        return step

    with (
        endless() as seconds,
        pytest.raises(WorkerLostError, match=r" test .*137"),
    ):
        run_watched(_pipeline(first, seconds), kill_it, 60)
    assert not _server_processes()
    assert job_endpoint("test", command) != first
    for process in _server_processes():
        # The program ends with the process that ran it, which is the one before it.
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
