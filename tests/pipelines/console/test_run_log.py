"""The log of a run: what is in it, from which processes, and where it is."""

import logging
import re
import sys
import threading
from contextlib import nullcontext
from functools import partial

import grpc
import pytest
from typer.testing import CliRunner

from beamrank import logs
from beamrank.commit.receipts import StageFolder
from beamrank.errors import BeamrankError
from beamrank.logs import run_log
from beamrank.plugins import PACKAGES
from pipelines import main
from pipelines.cli import app
from pipelines.console.progress import ConsoleProgress
from tests.support.services.faulty_store import snapshot
from tests.support.small_collection import small_cascade

_EVENT = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (?P<level>INFO|WARNING|ERROR) (?P<stage>\S+) "
    r"(?P<shard>\S+) (?P<pid>\d+) "
    r"(?P<logger>\S+) (?P<message>.*)"
)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return small_cascade(tmp_path_factory.mktemp("small")).path


def _run(config, output, *arguments, code=0):
    result = CliRunner().invoke(
        app, ["run", str(config), "--output", str(output), *map(str, arguments)]
    )
    assert result.exit_code == code, result.output
    return result


def _events(text):
    """(level, stage, shard, pid, logger, message) of each event; a traceback's lines are left
    out.
    """
    lines = [line for line in text.splitlines() if not line.startswith("    ")]
    return [_EVENT.fullmatch(line).groups() for line in lines]


def _log(output):
    (path,) = (output / "logs").iterdir()
    return path.read_text()


def test_log_has_each_stage_and_shard(small, tmp_path):
    _run(small, tmp_path)
    events = _events(_log(tmp_path))
    # Threads that other tests left in this process may warn meanwhile.
    ours = [
        (level, message)
        for level, *_, logger, message in events
        if logger.partition(".")[0] in PACKAGES
    ]
    expected = ("reads only the beginning of", "embedding table 1,000 rows")
    assert [
        text
        for level, text in ours
        if level != "INFO" and not any(part in text for part in expected)
    ] == []
    assert next(message for level, *_, message in events if level == "INFO").startswith("beamrank ")
    done = [
        (stage.split("-")[0], shard)
        for _, stage, shard, *_, message in events
        if message.startswith("done in ")
    ]
    stages = ("retrieve", "tokenize", "mono", "duo")
    assert tuple(dict.fromkeys(stage for stage, _ in done)) == stages
    # The launcher commits several shards of a small given run at a time.
    assert sorted(done) == sorted((stage, str(shard)) for stage in stages for shard in range(4))
    assert any(
        stage == "mono" and "inferences 12, tokens 756" in message
        for _, stage, *_, message in events
    )
    assert any(message == "stage started: 4 of 4 shards to do" for *_, message in events)


def test_log_of_a_resumed_run_is_a_new_file(small, tmp_path):
    _run(small, tmp_path, "--stage", "retrieve")
    first = set((tmp_path / "logs").iterdir())
    _run(small, tmp_path, "--stage", "retrieve")
    # Two logs of one process in one second are one file.
    texts = "".join(path.read_text() for path in (tmp_path / "logs").iterdir())
    assert first <= set((tmp_path / "logs").iterdir())
    assert "retrieve: all 4 shards are already complete" in texts


@pytest.mark.slow
def test_log_has_events_of_worker_processes(small, tmp_path):
    flags = ["--", "--direct_running_mode=multi_processing", "--direct_num_workers=1"]
    _run(small, tmp_path, "--stage", "retrieve")
    (tmp_path / "logs").rename(tmp_path / "before")
    _run(small, tmp_path, "--stage", "tokenize", *flags)
    events = _events(_log(tmp_path))
    workers = {pid for *_, pid, logger, _ in events if logger == "models.stages.attempt"}
    assert workers
    assert not workers & {pid for *_, pid, logger, _ in events if logger == "pipelines.launcher"}


def test_log_has_the_traceback_and_the_terminal_its_name(small, tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise ZeroDivisionError("no such luck")

    monkeypatch.setattr(StageFolder, "receipt", fail)
    monkeypatch.setattr(sys, "argv", ["beamrank", "run", str(small), "--output", str(tmp_path)])
    assert main._run() == 1
    (path,) = (tmp_path / "logs").iterdir()
    error = capsys.readouterr().err
    assert error.endswith(f"\nlog file: {path}\n")
    assert "Traceback" not in error
    assert 'raise ZeroDivisionError("no such luck")' in path.read_text()
    assert _events(path.read_text())[-1][:3] == ("ERROR", "-", "-")


def test_lost_connection_of_a_thread_is_only_logged(monkeypatch, capsys, caplog):
    monkeypatch.setattr(threading, "excepthook", main._log_lost_connection)
    with grpc.insecure_channel("localhost:1") as channel:
        for function in (partial(channel.unary_unary("/Control"), b""), partial(int, "no number")):
            thread = threading.Thread(target=function)
            thread.start()
            thread.join()
    printed = capsys.readouterr().err
    assert "ValueError" in printed
    assert "grpc" not in printed
    assert "UNAVAILABLE" in caplog.text


def test_log_has_no_file_before_the_start(small, tmp_path):
    assert isinstance(
        _run(small, tmp_path / "out", "--set", "duo.checkpoint=none", code=1).exception,
        BeamrankError,
    )
    assert not (tmp_path / "out/logs").exists()


def test_log_in_an_object_store_is_complete(small):
    output = "faulty://logs/out"
    _run(small, output)
    (log,) = [
        content.decode() for name, content in snapshot(output).items() if name.startswith("logs/")
    ]
    assert any(
        "wrote faulty://logs/out/runs/duo-sum.trec" in message for *_, message in _events(log)[-4:]
    )


def test_log_that_cannot_be_created_ends_no_run(small, tmp_path):
    (tmp_path / "logs").write_text("a file")
    assert "no log" in _run(small, tmp_path, "--stage", "retrieve").stderr


def test_log_on_a_full_disk_raises_nothing(monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", True)
    with run_log(nullcontext()) as log:
        log.open("/dev/full")
        logging.getLogger("models").info("lost")


def test_log_hides_credentials_and_control_characters(tmp_path):
    hostile = "\x1b[2J\x07 https://user:secret@host/x?token=abc\nsecond line"
    with run_log(ConsoleProgress(quiet=True).events()):
        logs.open_in_output(str(tmp_path))
        print(hostile, file=logs.LoggedStderr())
        logging.getLogger("models").error("%s", hostile)
    text = _log(tmp_path)
    assert "\\u001b[2J\\u0007" in text
    assert "secret" not in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    assert [event[-1] for event in _events(text)][1] == "second line"
    assert len(_events(text)) == 3


@pytest.mark.slow
def test_logs_are_no_garbage_and_no_finding(small, tmp_path):
    _run(small, tmp_path)
    runner = CliRunner()
    assert (
        "files to remove: 0"
        in runner.invoke(app, ["gc", str(tmp_path), "--min-age-hours", "0", "--dry-run"]).stderr
    )
    verified = runner.invoke(app, ["verify", str(tmp_path)])
    assert (verified.exit_code, verified.stdout) == (0, "")
    assert "gc" not in verified.stderr


@pytest.mark.parametrize(
    ("flags", "has_notes", "has_events"), [((), 1, 0), (("-q",), 0, 0), (("-v",), 1, 1)]
)
def test_verbosity_decides_what_standard_error_shows(small, tmp_path, flags, has_notes, has_events):
    shown = _run(small, tmp_path, "--stage", "retrieve", *flags).stderr
    assert ("stage started" in shown) == bool(has_events)
    assert shown.count("4 shards done") == has_notes


def test_verbose_and_quiet_exclude_each_other(small, tmp_path):
    assert "not both" in str(_run(small, tmp_path, "-v", "-q", code=1).exception)


def test_logging_is_as_before_after_a_run(tmp_path):
    before = logging.getLogger().handlers[:], logging.getLogger("models").level
    with run_log(nullcontext()):
        logs.open_in_output(str(tmp_path))
    assert (logging.getLogger().handlers, logging.getLogger("models").level) == before
    assert logs.place() is None
