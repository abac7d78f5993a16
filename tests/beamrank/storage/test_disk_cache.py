"""The cache: whole entries only."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from beamrank.errors import DataError, PreflightError
from beamrank.join.doc_hashes import NeededDocs
from beamrank.storage import disk_cache
from beamrank.storage import files as storage
from beamrank.storage.disk_cache import (
    cache_folder,
    cache_root,
    discard,
    exclusive,
    fetched,
    local_copy,
)
from beamrank.storage.documents import hashes64
from tests.support.outputs import list_docs
from tests.support.refusals import refuses


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path))


def _fetch(folder):
    (folder / "file").write_bytes(bytes(100))


def _refuse(folder):
    raise AssertionError


def _names():
    return sorted(path.name for path in cache_folder("indexes").iterdir())


def test_cache_root_is_one_folder(tmp_path, monkeypatch):
    assert cache_root() == tmp_path
    monkeypatch.setenv("BEAMRANK_CACHE", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_root() == tmp_path / "home" / ".cache" / "beamrank"


def test_cache_entry_is_found_again_until_it_is_discarded():
    folder = fetched("indexes", "a", _fetch)
    assert folder == cache_folder("indexes") / "a"
    assert fetched("indexes", "a", _refuse) == folder
    assert _names() == [".a.lock", "a"]
    discard(folder)
    with pytest.raises(AssertionError):
        fetched("indexes", "a", _refuse)


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
def test_corrupt_stale_cache_entry_is_fetched_again(damage):
    damage(fetched("indexes", "a", _fetch) / "file")
    folder = fetched("indexes", "a", _fetch)
    assert (folder / "file").read_bytes() == bytes(100)
    assert fetched("indexes", "a", _refuse) == folder


def test_failed_fetch_leaves_nothing():
    def fetch(folder: Path) -> None:
        (folder / "file").write_bytes(b"half")
        raise OSError("the network is gone")

    with pytest.raises(OSError, match="the network is gone"):
        fetched("indexes", "a", fetch)
    assert _names() == [".a.lock"]


def test_cache_leftovers_of_a_killed_process_are_removed():
    program = """
import os, sys
from beamrank.storage.disk_cache import fetched
def fetch(folder):
    (folder / "file").write_bytes(bytes(100))
    os._exit(9)
fetched("indexes", "a", fetch)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    assert _names() == [".a.lock", ".fetching-a"]
    fetched("indexes", "a", _fetch)
    assert _names() == [".a.lock", "a"]


def test_lock_keeps_others_out_where_the_file_system_has_no_locks(tmp_path, monkeypatch):
    """A thread that takes the lock of another folder's file is not kept out; one of the same is."""
    real, locked = fcntl.lockf, []

    def lockf(file: Any, *flags: int) -> None:
        name = os.fsdecode(file.name)
        if name.startswith(str(tmp_path / "mount")):
            raise OSError(errno.ENOLCK, "No locks available")
        locked.append(name)
        real(file, *flags)

    monkeypatch.setattr(fcntl, "lockf", lockf)
    with exclusive(tmp_path / "mount/a.lock"), exclusive(tmp_path / "mount/b.lock"):
        assert len(set(locked)) == 2
        for name in locked:
            assert (
                subprocess.run([sys.executable, "-c", _TRY_LOCK, name], check=False).returncode == 1
            )
    assert subprocess.run([sys.executable, "-c", _TRY_LOCK, locked[0]], check=False).returncode == 0


_TRY_LOCK = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


@pytest.fixture
def stored(tmp_path: Path) -> str:
    """A file at a store that is named by its content."""
    folder = f"memory://{tmp_path.name}"
    return list_docs([(0, ["a", "b"])], folder).urls[0]


def test_file_of_a_store_is_copied_once(stored, tmp_path, monkeypatch):
    copies: list[str] = []
    download = storage.download

    def noted(url: str, path: str) -> None:
        copies.append(url)
        download(url, path)

    monkeypatch.setattr(storage, "download", noted)
    path = local_copy("lists", stored)
    assert NeededDocs.open(path).hashes.tolist() == sorted(hashes64(["a", "b"]).tolist())
    assert local_copy("lists", stored) == path
    assert copies == [stored]
    assert local_copy("lists", str(tmp_path / "here.bin")) == str(tmp_path / "here.bin")


def test_file_of_a_store_that_changed_is_not_copied(stored):
    storage.replace(stored, bytes(24))
    with pytest.raises(DataError, match="changed"):
        local_copy("lists", stored)
    assert not [path for path in cache_folder("lists").iterdir() if path.is_dir()]


def test_copy_that_is_a_day_old_is_removed_when_another_is_made(stored):
    old = Path(local_copy("lists", stored)).parent
    os.utime(old, (0, 0))
    assert local_copy("lists", stored) == str(old / old.name)
    folder = stored.rpartition("/")[0]
    (other,) = list_docs([(0, ["c"])], folder).urls
    new = Path(local_copy("lists", other)).parent
    assert [path.name for path in cache_folder("lists").iterdir() if path.is_dir()] == [new.name]


def _give_away(path: Path) -> None:
    """Makes a path that of a different user."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to have folders of two users")
    os.chown(path, 54321, -1)


@pytest.mark.parametrize("given", ["kind", "entry"])
def test_entry_of_a_different_user_is_refused_where_everyone_can_write(tmp_path, given):
    folder = fetched("indexes", "a", _fetch)
    made = folder if given == "entry" else folder.parent
    _give_away(made)
    # A cache that is shared on purpose, in which only its users can write.
    assert fetched("indexes", "a", _refuse) == folder
    made.parent.chmod(0o777)
    with refuses(PreflightError, "other-user", file=made):
        fetched("indexes", "a", _refuse)


def test_cache_at_a_place_where_everyone_can_write_belongs_to_its_user(tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setenv("BEAMRANK_CACHE", str(shared / "mine"))
    folder = fetched("indexes", "a", _fetch)
    assert fetched("indexes", "a", _refuse) == folder
    _give_away(shared / "mine")
    with refuses(PreflightError, "other-user"):
        fetched("indexes", "b", _fetch)


@pytest.mark.parametrize("linked", [False, True])
def test_folder_far_above_the_cache_belongs_to_its_user(tmp_path, monkeypatch, linked):
    shared = tmp_path / "shared"
    made = shared / "made"
    (made / "a/b").mkdir(parents=True)
    shared.chmod(0o1777)
    root = tmp_path / "link" if linked else made / "a/b"
    if linked:
        root.symlink_to(made / "a/b")
    monkeypatch.setenv("BEAMRANK_CACHE", str(root))
    cache_folder("engines")
    _give_away(made)
    with refuses(PreflightError, "other-user", file=made):
        cache_folder("engines")
    made.parent.chmod(0o755)
    cache_folder("engines")


def test_home_of_the_user_is_trusted_wherever_it_is(tmp_path, monkeypatch):
    made = tmp_path / "shared/made"
    home = made / "home"
    home.mkdir(parents=True)
    made.parent.chmod(0o1777)
    _give_away(made)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("BEAMRANK_CACHE", raising=False)
    assert cache_folder("engines") == home / ".cache/beamrank/engines"
    _give_away(home)
    with refuses(PreflightError, "other-user"):
        cache_folder("engines")


def test_lock_of_a_different_user_is_an_error_and_no_wait(tmp_path):
    lock = tmp_path / "locks" / ".a.lock"
    lock.parent.mkdir()
    lock.mkdir()
    with pytest.raises(PreflightError, match="locks"), exclusive(lock):
        pass
