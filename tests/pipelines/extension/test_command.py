"""Commands of packages from outside, by their entry points."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
def installed(tmp_path: Path):
    """Installs a package with entry points, and returns how `beamrank` is called beside it."""

    def install(entries: str, module: str = _COMMAND):
        (tmp_path / "greeting.py").write_text(module)
        info = tmp_path / "greeting-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[beamrank.commands]\n{entries}\n")
        environ = os.environ | {"PYTHONPATH": str(tmp_path), "COLUMNS": "200"}

        def beamrank(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "pipelines.main", *arguments]
            return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=120)

        return beamrank

    return install


def test_command_of_a_plugin_is_found_described_and_run(installed):
    beamrank = installed("greet = greeting:greet\nconvert.greet = greeting:greet")
    assert "Greet somebody." in beamrank("--help").stdout
    assert "Greet somebody." in beamrank("convert", "--help").stdout
    assert "Nobody else does." in beamrank("greet", "--help").stdout
    for command in (("greet",), ("convert", "greet")):
        done = beamrank(*command, "Ada", "--loud")
        assert (done.returncode, done.stdout) == (0, "hello Ada!\n"), done.stderr
    assert "Did you mean 'greet'" in beamrank("gret").stderr


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("greet = greeting:absent", "command 'greet' of the package greeting cannot be imported"),
        ("greet = absent:greet", "command 'greet' of the package greeting cannot be imported"),
        ("greet = greeting:greet\nverify = greeting:greet", "beamrank and the package greeting both have"),
    ],
)
def test_broken_command_of_a_plugin_is_named_and_ends_nothing_else(installed, entries, message):
    beamrank = installed(entries)
    failed = beamrank("verify" if "verify" in entries else "greet", "Ada")
    assert failed.returncode == 3
    assert message in failed.stderr
    listed = beamrank("--help")
    assert (listed.returncode, "Traceback" in listed.stderr) == (0, False)
    assert "package greeting" in listed.stdout or "verify" in entries
    assert beamrank("status", "--help").returncode == 0


def test_help_imports_no_command_and_nothing_slow():
    code = (
        "import sys, pipelines.main; from typer.testing import CliRunner; from pipelines.cli import app\n"
        "for group in ([], ['convert']): assert CliRunner().invoke(app, [*group, '--help']).exit_code == 0\n"
        "print(sorted(name for name in sys.modules if name.startswith('pipelines.commands.')))\n"
        "print({'apache_beam', 'fsspec', 'numpy', 'psutil', 'rich', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\nset()\n"
