"""Control characters are shown on a terminal and never obeyed there; programs get what is stored,
to the letter.
"""

import io
import json
import logging
import re
import subprocess
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import pytest
from rich.table import Table

from beamrank.errors import BeamrankError
from beamrank.storage.urls import printable
from pipelines import cli, main
from pipelines.console.progress import ConsoleProgress, PrintableConsole
from pipelines.console.terminal import write_error, write_line
from tests.support.processes import BEAMRANK, PATIENCE_SECONDS
from tests.support.small_collection import small_cascade
from tests.support.tiers import slow_but

_HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u2066\r\x7f\x08"
_ESCAPED = "\\u001b[2J\\u001b]0;owned\\u0007\\u009b31m\\u202e\\u2066\\u000d\\u007f\\u0008"
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class _Terminal(io.StringIO):
    def isatty(self):
        return True


class _Gone(io.StringIO):
    def write(self, _):
        raise BrokenPipeError


@contextmanager
def _on_a_terminal():
    """One terminal as standard output and standard error."""
    screen = _Terminal()
    with redirect_stdout(screen), redirect_stderr(screen):
        yield screen


@pytest.fixture(autouse=True)
def _plain(monkeypatch, tmp_path):
    """Rich writes no codes of its own."""
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(monkeypatch):
    """The command line less the end of its process: the exit code, and what the terminal shows."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["beamrank", *map(str, arguments)])
        with _on_a_terminal() as screen:
            return main._run(), screen.getvalue()

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", _HOSTILE),
        ("verify", _HOSTILE),
        ("gc", _HOSTILE),
        ("eval", _HOSTILE, "--qrels", _HOSTILE),
        ("eval", "r", "--qrels", "q", "--measures", _HOSTILE),
        ("run", _HOSTILE),
        ("run", "c.yaml", "--set", f"{_HOSTILE}=1"),
        ("run", "c.yaml", "--set", f"mono.k={_HOSTILE}"),
        ("run", "c.yaml", "--stage", _HOSTILE),
        ("run", "c.yaml", f"--{_HOSTILE}"),
        ("run", "c.yaml", "--", _HOSTILE),
        ("run", "key.yaml"),
        ("run", "value.yaml"),
        ("status", "out", _HOSTILE),
        (_HOSTILE,),
    ],
    ids=lambda each: each[0][:6],
)
def test_terminal_shows_control_characters_of_errors(run, tmp_path, arguments):
    base = (
        "corpus: {path: c, format: tsv}\ntopics: {path: t, format: tsv}\ncandidates: {run: "
        "r}\noutput: o\n"
    )
    (tmp_path / "c.yaml").write_text(base)
    (tmp_path / "key.yaml").write_text(f"{base}{json.dumps(_HOSTILE)}: 1\n")
    (tmp_path / "value.yaml").write_text(f"{base}qrels: {json.dumps(_HOSTILE)}\n")
    code, shown = run(*arguments)
    assert code in (1, 2, 3)
    assert shown
    assert not _OBEYED.search(shown)


def test_terminal_shows_control_characters_of_a_traceback(run, monkeypatch):
    def fail():
        raise RuntimeError(_HOSTILE)

    monkeypatch.setattr(cli, "app", fail)
    code, shown = run("status", "out")
    assert code == 1
    assert shown.endswith(f"RuntimeError: {_ESCAPED}\n\n")


def _evaluated(folder, query_id):
    run, qrels = folder / f"r{_HOSTILE}", folder / "q"
    run.write_text(f"{query_id} Q0 d1 1 1.0 x\n")
    qrels.write_text(f"{query_id} 0 d1 1\n")
    return run, qrels


def test_terminal_shows_control_characters_of_tables(run, tmp_path):
    path, qrels = _evaluated(tmp_path, "\u202eq1")
    code, shown = run("eval", path, "--qrels", qrels, "--against", path, "--per-query")
    assert code == 0
    assert "\\u202eq1" in shown
    assert f"r{_ESCAPED}" in shown.replace("\n", "")
    assert not _OBEYED.search(shown)


def test_terminal_shows_control_characters_of_json(run, tmp_path):
    path, qrels = _evaluated(tmp_path, "\u202eq1")
    code, shown = run("eval", path, "--qrels", qrels, "--per-query", "--json")
    assert code == 0
    assert not _OBEYED.search(shown)
    assert json.loads(shown)["per_query"].keys() == {"\u202eq1"}
    assert json.loads(shown)["run"] == str(path)


def test_pipe_gets_ids_verbatim(tmp_path, capsys, monkeypatch):
    path, qrels = _evaluated(tmp_path, "\u202eq1")
    monkeypatch.setattr(
        sys,
        "argv",
        ["beamrank", "eval", str(path), "--qrels", str(qrels), "--per-query", "--measures", "AP"],
    )
    assert main._run() == 0
    assert capsys.readouterr().out == "\u202eq1\tAP\t1.0\nAP\t1.0\n"
    write_line(f"a{_HOSTILE}", 1)
    assert capsys.readouterr().out == f"a{_HOSTILE}\t1\n"


def test_progress_shows_control_characters():
    with _on_a_terminal() as terminal:
        console = ConsoleProgress()
        console.note(f"a {_HOSTILE}")
        console.warn(f"b [/red] {_HOSTILE}")
        write_line(f"c {_HOSTILE}", "d")
        table = Table("[/red]")
        table.add_row(f"e {_HOSTILE}")
        PrintableConsole(terminal).print(table)
        with console.bar(f"f {_HOSTILE}") as bar:
            bar.update(1, 2, _HOSTILE)
    lines = terminal.getvalue().splitlines()
    assert lines[:3] == [f"a {_ESCAPED}", f"warning: b [/red] {_ESCAPED}", f"c {_ESCAPED}\td"]
    assert "[/red]" in lines[4]
    assert not _OBEYED.search(terminal.getvalue())


def test_library_log_shows_control_characters():
    error = OSError("lost")
    record = logging.LogRecord(
        "library", logging.ERROR, "", 0, "failed: %s", (_HOSTILE,), (OSError, error, None)
    )
    assert (
        main._Formatter("%(name)s: %(message)s").format(record)
        == f"library: failed: {_ESCAPED}\n{error!r}"
    )


def test_printable_keeps_lines_tabs_and_letters():
    assert printable("a\tb\nc é 東京 \U0001f4a9") == "a\tb\nc é 東京 \U0001f4a9"
    assert printable("\udcff") == "\\udcff"


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    """An evaluation whose output is larger than a pipe."""
    folder = tmp_path_factory.mktemp("eval")
    (folder / "r").write_text("".join(f"q{number:05d} Q0 d1 1 1.0 x\n" for number in range(6000)))
    (folder / "q").write_text("".join(f"q{number:05d} 0 d1 1\n" for number in range(6000)))
    return f"{BEAMRANK} eval {folder}/r --qrels {folder}/q --measures AP --per-query"


@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    slow_but(
        2,
        [
            (">/dev/full", 1, "error: [Errno 28] No space left on device\n"),
            ("| head -n 1", 141, ""),
            (">&- 2>&- <&-", 0, ""),
            ("2>/dev/full", 0, ""),
        ],
    ),
)
def test_standard_streams_closed_full_or_broken_pipe(evaluation, redirection, code, said):
    script = f"{evaluation} {redirection}; echo code ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert done.stdout.splitlines()[-1] == f"code {code}"
    assert done.stderr == said


def test_broken_pipe_of_a_help_text_has_its_exit_code():
    script = f"{BEAMRANK} eval --help | true; echo code ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert (done.stdout, done.stderr) == ("code 141\n", "")


@pytest.mark.parametrize(
    ("arguments", "redirection", "code"),
    slow_but(
        1,
        [
            ("status none", "2> >(true)", 3),
            ("verify OUT", "2>/dev/full", 0),
            ("none", "2>/dev/full", 2),
            ("status OUT/none", ">&- 2>&-", 3),
        ],
    ),
)
def test_messages_that_cannot_be_written_change_nothing(arguments, redirection, code, tmp_path):
    small_cascade(tmp_path).plan().plan.publish()
    script = f"{BEAMRANK} {arguments.replace('OUT', str(tmp_path / 'out'))} {redirection}"
    assert (
        subprocess.run(["bash", "-c", script], timeout=PATIENCE_SECONDS, check=False).returncode
        == code
    )


def test_broken_pipe_of_standard_error_is_ignored():
    gone = _Gone()
    with redirect_stderr(gone):
        console = ConsoleProgress()
        console.note("a")
        console.warn("b")
        write_error("c")
    with pytest.raises(BrokenPipeError), redirect_stdout(gone):
        PrintableConsole(gone).print("d")


def test_broken_pipe_of_a_connection_is_an_error(monkeypatch):
    def fail(_):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("pipelines.commands.output.read_plan", fail)
    with pytest.raises(BeamrankError, match=r"Broken pipe\. .*again"):
        cli.app(["status", "out"])


@pytest.mark.parametrize(
    "error", [RuntimeError("can't start new thread"), BlockingIOError(11, "unavailable")]
)
def test_command_without_threads_names_the_limit(monkeypatch, capsys, error):
    def app():
        raise error

    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr(main, "prepare_environment", lambda: None)
    assert main._run() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "ulimit -u" in line


def test_command_without_memory_ends_with_an_error(monkeypatch, capsys):
    def app():
        raise MemoryError

    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr(main, "prepare_environment", lambda: None)
    assert main._run() == 1
    assert capsys.readouterr().err.startswith("error: MemoryError")
