"""The cache: whole entries only, no larger than it may be, and nothing taken away that is in use."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from beamrank.errors import ConfigError
from models.checkpoints import disk_cache
from models.checkpoints.disk_cache import add_entry, cache_folder, cache_root, held_entry, limit_bytes

_HOLDER = """
import sys
from models.checkpoints.disk_cache import held_entry
print(held_entry("indexes", sys.argv[1]) is not None, flush=True)
sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path))


def _of(name: str, size_bytes: int = 100) -> Callable[[Path], str]:
    def fetch(folder: Path) -> str:
        (folder / "file").write_bytes(bytes(size_bytes))
        return name

    return fetch


def _put(name: str, size_bytes: int = 100, age_seconds: float = 0) -> None:
    """An entry that an earlier process left: not in use any more."""
    folder = add_entry("indexes", _of(name, size_bytes))
    os.close(disk_cache._in_use.pop(str(folder)))
    then = time.time() - age_seconds
    os.utime(folder / disk_cache._RECORD, (then, then))


def _names() -> list[str]:
    return sorted(path.name for path in cache_folder("indexes").iterdir())


@contextmanager
def _another_process_holds(name: str) -> Iterator[None]:
    command = [sys.executable, "-c", _HOLDER, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        yield
        process.communicate("\n", timeout=20)


def test_there_is_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_root() == tmp_path
    monkeypatch.setenv("BEAMRANK_CACHE", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_root() == tmp_path / "home" / ".cache" / "beamrank"


def test_an_entry_is_found_again() -> None:
    assert held_entry("indexes", "a") is None
    folder = add_entry("indexes", _of("a"))
    assert folder == cache_folder("indexes") / "a"
    assert held_entry("indexes", "a") == folder
    assert add_entry("indexes", _of("a")) == folder
    assert _names() == ["a"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b"cut"),
        lambda file: file.write_bytes(b"\1" * 100),
        lambda file: file.unlink(),
        lambda file: file.with_name(disk_cache._RECORD).write_text("{"),
        lambda file: file.with_name(disk_cache._RECORD).unlink(),
    ],
    ids=["cut short", "another content", "a file gone", "record cut short", "no record"],
)
def test_a_damaged_entry_is_fetched_again(damage: Callable[[Path], None]) -> None:
    folder = add_entry("indexes", _of("a"))
    damage(folder / "file")
    assert held_entry("indexes", "a") is None
    assert add_entry("indexes", _of("a")) == folder
    assert held_entry("indexes", "a") == folder
    assert (folder / "file").read_bytes() == bytes(100)


def test_a_fetch_that_fails_leaves_nothing() -> None:
    def fetch(folder: Path) -> str:
        (folder / "file").write_bytes(b"half")
        raise OSError("the network is gone")

    with pytest.raises(OSError, match="the network is gone"):
        add_entry("indexes", fetch)
    assert _names() == []


def test_what_was_not_used_for_longest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEAMRANK_CACHE_BYTES", "250")
    _put("old", age_seconds=300)
    _put("older", age_seconds=400)
    assert _names() == ["old", "older"]
    _put("new")
    assert _names() == ["new", "old"]


def test_what_is_used_counts_as_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEAMRANK_CACHE_BYTES", "250")
    _put("old", age_seconds=300)
    _put("older", age_seconds=400)
    with _another_process_holds("older"):
        pass
    _put("new")
    assert _names() == ["new", "older"]


def test_nothing_in_use_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEAMRANK_CACHE_BYTES", "150")
    _put("theirs", age_seconds=300)
    with _another_process_holds("theirs"):
        mine = add_entry("indexes", _of("mine"))
        add_entry("indexes", _of("too much", 1000))
        assert _names() == ["mine", "theirs", "too much"]
    _put("new")
    assert _names() == ["mine", "new", "too much"]
    assert held_entry("indexes", "mine") == mine


def test_what_a_killed_process_left_goes() -> None:
    program = """
import os, sys
from models.checkpoints.disk_cache import add_entry
def fetch(folder):
    (folder / "file").write_bytes(bytes(100))
    os._exit(9)
add_entry("indexes", fetch)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    assert len(_names()) == 1
    _put("new")
    assert _names() == ["new"]


def test_a_limit_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limit_bytes() == 20 << 30
    monkeypatch.setenv("BEAMRANK_CACHE_BYTES", "20GB")
    with pytest.raises(ConfigError, match="BEAMRANK_CACHE_BYTES is '20GB'"):
        limit_bytes()
