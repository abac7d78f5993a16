"""Commands of packages from outside, by their entry points."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.plugins import install
from tests.support.tiers import slow_but

_COMMAND = '''
"""A command from outside."""
import sys


def greet(name: str, loud: bool = False) -> None:
    """Greet somebody.

    Nobody else does.
    """
    print(f"hello {name}" + "!" * loud)
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a package with commands."""
    (tmp_path / "greeting.py").write_text(_COMMAND)
    return lambda **entries: install(tmp_path, monkeypatch, "beamrank.commands", **entries)


def beamrank(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pipelines.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_command_of_a_plugin_is_found_described_and_run(installed, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    installed(**{"greet": "greeting:greet", "convert.greet": "greeting:greet"})
    assert "Greet somebody." in beamrank("--help").stdout
    assert "Greet somebody." in beamrank("convert", "--help").stdout
    assert "Nobody else does." in beamrank("greet", "--help").stdout
    for command in (("greet",), ("convert", "greet")):
        done = beamrank(*command, "Ada", "--loud")
        assert (done.returncode, done.stdout) == (0, "hello Ada!\n"), done.stderr
    assert "Did you mean 'greet'" in beamrank("gret").stderr


def test_help_groups_commands_and_a_module_names_the_group_of_its_own(
    installed, tmp_path, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "judging.py").write_text(f'{_COMMAND}\nHELP_PANEL = "Evaluate"\n')
    installed(judge="judging:greet", greet="greeting:greet")
    panel, panel_of = "", {}
    for line in beamrank("--help").stdout.splitlines():
        if line[:1].strip():
            panel = line
        elif line.startswith("  "):
            panel_of[line.split()[0]] = panel
    wanted = {
        "run": "Run:",
        "status": "Look:",
        "fuse": "Evaluate:",
        "judge": "Evaluate:",
        "convert": "Data and models:",
        "doctor": "Tools:",
        "greet": "Others:",
    }
    assert {name: panel_of[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("entries", "message"),
    slow_but(
        1,
        [
            (
                {"greet": "absent:greet"},
                "command 'greet' of the package outside cannot be imported",
            ),
            (
                {"greet": "greeting:absent"},
                "command 'greet' of the package outside cannot be imported",
            ),
            (
                {"greet": "greeting:greet", "verify": "greeting:greet"},
                "beamrank and the package outside both have",
            ),
        ],
    ),
)
def test_broken_command_of_a_plugin_is_named_and_ends_nothing_else(installed, entries, message):
    installed(**entries)
    failed = beamrank("verify" if "verify" in entries else "greet", "Ada")
    assert failed.returncode == 3
    assert message in failed.stderr
    listed = beamrank("--help")
    assert (listed.returncode, "Traceback" in listed.stderr) == (0, False)
    assert "package outside" in listed.stdout or "verify" in entries
    assert beamrank("status", "--help").returncode == 0


def test_help_imports_no_command_and_nothing_slow():
    code = (
        "import sys, pipelines.main; from typer.testing import CliRunner; from pipelines.cli "
        "import app\nfor group in ([], ['convert']): assert CliRunner().invoke(app, [*group, "
        "'--help']).exit_code == 0\nprint(sorted(name for name in sys.modules if "
        "name.startswith('pipelines.commands.')))\nprint({'apache_beam', 'fsspec', 'numpy', "
        "'psutil', 'rich', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\nset()\n"
