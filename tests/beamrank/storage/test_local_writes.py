"""Local writes: where hard links or syncs are missing, in the place of links and devices, and after a kill."""

import ctypes
import errno
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from beamrank.errors import PreflightError
from beamrank.machine import is_running, machine_id, start_seconds
from beamrank.storage import files as storage
from beamrank.storage.local_files import is_special, new_folder, remove_leftovers, temporary_name


def _fail(monkeypatch: pytest.MonkeyPatch, function: str, number: int) -> None:
    """Makes a call of the system answer as a mount does that lacks it."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, function, fail)


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
@pytest.mark.parametrize("renames", [True, False])
def test_publish_is_create_only_without_hard_links(tmp_path, monkeypatch, number, renames):
    _fail(monkeypatch, "link", number)
    if not renames:
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    path = str(tmp_path / "folder [1]" / "file")
    assert storage.publish(path, b"one")
    assert not storage.publish(path, b"two")
    assert storage.read_bytes(path) == b"one"
    assert os.listdir(tmp_path / "folder [1]") == ["file"]
    results: list[bool] = []

    def race(content: bytes) -> None:
        results.append(storage.publish(str(tmp_path / "race"), content))

    threads = [threading.Thread(target=race, args=(bytes([number]) * 100,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False] * 7 + [True]
    assert len(set(storage.read_bytes(str(tmp_path / "race")))) == 1


def test_other_errors_of_links_and_syncs_are_raised(tmp_path, monkeypatch):
    _fail(monkeypatch, "link", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        storage.publish(str(tmp_path / "file"), b"one")
    _fail(monkeypatch, "fsync", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        storage.replace(str(tmp_path / "file"), b"one")
    assert list(tmp_path.iterdir()) == []


def test_errors_name_the_file_and_not_the_temporary_one():
    """No file can be made below /proc."""
    for write in (storage.publish, storage.replace):
        with pytest.raises(FileNotFoundError) as raised:
            write("/proc/file", b"one")
        assert raised.value.filename == "/proc/file"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_files_are_written_where_nothing_can_be_synced(tmp_path, monkeypatch, number):
    _fail(monkeypatch, "fsync", number)
    assert storage.publish(str(tmp_path / "a"), b"one")
    storage.replace(str(tmp_path / "b"), b"two")
    assert storage.sizes_bytes(str(tmp_path)) == {"a": 3, "b": 3}


def test_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    for target in ("elsewhere/old", "elsewhere/new"):
        link = tmp_path / f"link-{Path(target).name}"
        link.symlink_to(target)
        storage.replace(str(link), b"one")
        storage.replace_stream(str(link), [b"two"])
        assert (os.readlink(link), (tmp_path / target).read_bytes()) == (target, b"two")
    assert sorted(os.listdir(tmp_path / "elsewhere")) == ["new", "old"]
    (tmp_path / "folder").symlink_to("elsewhere/converted")
    with new_folder(tmp_path / "folder") as folder:
        (folder / "file").touch()
    assert (tmp_path / "folder").is_symlink()
    assert os.listdir(tmp_path / "elsewhere/converted") == ["file"]


@pytest.mark.timeout(20)
def test_pipe_device_and_open_file_are_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    storage.replace(str(tmp_path / "pipe"), b"one")
    reader.join()
    assert read == [b"one"]
    storage.replace_stream("/dev/null", [b"one"])
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    log = tmp_path / "log"
    log.write_bytes(b"first ")
    with open(log, "ab") as file:
        storage.replace(f"/dev/fd/{file.fileno()}", b"second")
    assert log.read_bytes() == b"first second"
    with pytest.raises(OSError, match="/dev/full"):
        storage.replace("/dev/full", b"one")
    assert [is_special(path) for path in ("/dev/stdout", "/dev/null", str(log))] == [True, True, False]
    with pytest.raises(PreflightError, match="/dev/null is not a folder"):
        storage.check_folder("/dev/null")


def test_leftovers_are_those_of_writers_that_ended(tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    started = int(start_seconds())
    elsewhere = "0" * 8 if machine_id() != "0" * 8 else "1" * 8
    gone = [
        f".file.{machine_id()}-{ended.pid}-{started}-0123abcd.tmp",
        f".pid of another.{machine_id()}-{os.getpid()}-{started - 1000}-0123abcd.tmp",
        f".old\nelsewhere.{elsewhere}-{os.getpid()}-{started}-0123abcd.tmp",
    ]
    kept = [
        temporary_name("file"),
        f".young elsewhere.{elsewhere}-{ended.pid}-{started}-0123abcd.tmp",
        f".old of another program.{'0' * 32}.tmp",
        ".mine.tmp",
        "mine.tmp",
    ]
    for name in [*gone, *kept]:
        (tmp_path / name).touch()
        if name.startswith(".old"):
            os.utime(tmp_path / name, (0, time.time() - 7200))
    remove_leftovers(str(tmp_path), "other")
    assert len(os.listdir(tmp_path)) == len(gone) + len(kept)
    remove_leftovers(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == sorted(kept)
    remove_leftovers(str(tmp_path / "none"))


def test_killed_write_leaves_nothing_once_it_is_done_again(tmp_path):
    program = """
import os, sys
from beamrank.storage import files as storage
from beamrank.storage.local_files import new_folder
def chunks():
    yield b"half"
    with new_folder(sys.argv[2]) as folder:
        (folder / "file").touch()
        os._exit(9)
storage.replace_stream(sys.argv[1], chunks())
"""
    (tmp_path / "links").mkdir()
    (tmp_path / "links/run").symlink_to("../run.trec")
    paths = [str(tmp_path / "links/run"), str(tmp_path / "folder")]
    subprocess.run([sys.executable, "-c", program, *paths], check=False)
    assert len(os.listdir(tmp_path)) == 3
    storage.replace_stream(paths[0], [b"whole"])
    with new_folder(paths[1]):
        pass
    assert sorted(os.listdir(tmp_path)) == ["folder", "links", "run.trec"]


def test_process_is_running_until_it_ended():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        import psutil

        started = psutil.Process(process.pid).create_time()
        assert is_running(process.pid, started)
        assert not is_running(process.pid, started - 1000)
        process.kill()
        # Not yet waited for.
        while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        assert not is_running(process.pid, started)
    assert not is_running(process.pid, started)


@pytest.mark.parametrize("name", ["a::b [1]*?.trec", " a\nb ", os.fsdecode(b"\xff.trec"), "x" * 240])
def test_names_that_are_odd_are_written(tmp_path, name):
    path = str(tmp_path / name / name)
    storage.replace_stream(path, [b"one"])
    assert not storage.publish(path, b"two")
    assert os.listdir(tmp_path / name) == [name]
