"""`beamrank.run` in a program: what it leaves of the process, and runs in several threads."""

import io
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import beamrank
from beamrank.plugins import PACKAGES
from tests.support.small_collection import small_cascade

_LOGGERS = [logging.getLogger(name) for name in (None, "apache_beam", *PACKAGES)]
_RUN = """
import logging, sys
import beamrank
beamrank.run(sys.argv[1], stage="retrieve")
print("apache_beam" in sys.modules, logging.getLogger().handlers)
"""

_FEW_THREADS = """
import os, resource, threading
from beamrank.errors import BeamrankError
from pipelines import execute
before = threading.active_count()
resource.setrlimit(resource.RLIMIT_NPROC, (8, 8))
os.setuid(2**31 - 7)
try:
    execute._check_threads(11)
except BeamrankError as error:
    print(type(error).__name__, error)
print(threading.active_count() == before)
"""


def _state():
    signals = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    handlers = [handler for logger in _LOGGERS for handler in logger.handlers]
    return {
        "environment": dict(os.environ),
        "streams": (sys.stdout, sys.stderr),
        "hooks": (threading.excepthook, sys.excepthook, sys.unraisablehook),
        "levels": [logger.level for logger in _LOGGERS],
        "handlers": [(handler, tuple(handler.filters)) for handler in handlers],
        "signals": [signal.getsignal(number) for number in signals],
        "folders": (os.getcwd(), tempfile.gettempdir()),
    }


@pytest.fixture
def config(tmp_path):
    return small_cascade(tmp_path).path


@pytest.fixture
def shown():
    """What a handler of the caller's root logger shows."""
    handler = logging.StreamHandler(io.StringIO())
    logging.getLogger().addHandler(handler)
    yield handler.stream
    logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize("stage", [None, "none"], ids=["done", "refused"])
def test_run_leaves_the_process_as_it_was(config, monkeypatch, stage):
    for name in ("PYTHONSAFEPATH", "OMP_WAIT_POLICY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setattr(logging.getLogger("models"), "level", logging.DEBUG)
    before = _state()
    try:
        beamrank.run(config, stage=stage)
    except beamrank.ConfigError:
        assert stage == "none"
    assert _state() == before


@pytest.mark.parametrize(("level", "least"), [(logging.WARNING, 0), (logging.INFO, 1)])
def test_run_shows_on_the_callers_handlers_what_their_level_asks_for(config, shown, level, least):
    root = logging.getLogger()
    before = root.level
    root.setLevel(level)
    try:
        beamrank.run(config, stage="retrieve")
    finally:
        root.setLevel(before)
    assert min(shown.getvalue().count("stage started"), 1) == least


def test_runs_in_threads_take_turns_and_have_their_own_logs(config, tmp_path, capfd):
    before, outputs = _state(), [tmp_path / name for name in ("a", "b", "c")]
    with ThreadPoolExecutor(len(outputs)) as pool:
        run = partial(beamrank.run, config, stage="retrieve", quiet=False)
        list(pool.map(lambda output: run(output=output), outputs))
    assert _state() == before
    assert capfd.readouterr().err.count("retrieve: 4 shards done") == len(outputs)
    for output in outputs:
        (log,) = Path(output, "logs").iterdir()
        text = log.read_text()
        assert text.count("runs plan") == text.count(f"into {output}\n") == 1
        assert text.count("retrieve: 4 shards done") == 1


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become a user with few threads")
def test_run_without_room_for_its_threads_names_the_limit():
    """Of a limited number of threads, in a process of a user of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _FEW_THREADS], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("PreflightError a run in this process needs 11 threads"), done
    assert "ulimit -u" in done.stdout
    assert done.stdout.splitlines()[-1] == "True"


@pytest.mark.slow
def test_import_of_a_library_that_logs_gives_the_root_logger_no_handler(tmp_path, config):
    """Beam, which a run imports, logs a warning where Google's libraries are missing."""
    (tmp_path / "apitools").mkdir()
    (tmp_path / "apitools" / "__init__.py").write_text("raise ImportError")
    places = os.pathsep.join([str(tmp_path), os.getcwd()])
    environment = {**os.environ, "PYTHONPATH": places}
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(config)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "True []\n", done.stderr
    assert "apitools" not in done.stderr
