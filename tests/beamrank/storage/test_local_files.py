"""Local writes, and pipes, devices and sockets as inputs: read if one pass is enough, else
refused.
"""

import ctypes
import errno
import fcntl
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.errors import PreflightError
from beamrank.evaluation.evaluate import evaluate_run_files
from beamrank.formats.corpora import CorpusConfig, digest_corpus, list_units
from beamrank.formats.qrels import read_qrels
from beamrank.formats.run_units import digest_run
from beamrank.formats.runs import read_run
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.join.doc_hashes import NeededDocs
from beamrank.machine import machine_id
from beamrank.storage import files as storage
from beamrank.storage.documents import hashes64
from beamrank.storage.local_files import (
    check_regular,
    is_special,
    map_array,
    map_numbers,
    new_folder,
    own_temporary_files,
    remove_leftovers,
    temporary_name,
)
from tests.support.corpora import COMPRESSORS
from tests.support.outputs import list_docs
from tests.support.refusals import refuses

pytestmark = pytest.mark.timeout(20)

RUN = b"q Q0 a 1 2 t\nq Q0 b 2 1 t\n"
READERS: dict[str, Callable[[str], object]] = {
    "topics": lambda path: read_topics(TopicsConfig(path=path, format="tsv")),
    "corpus": lambda path: list_units(CorpusConfig(path=path, format="jsonl")),
    "Parquet corpus": lambda path: list_units(CorpusConfig(path=path, format="parquet")),
    "TREC CAR": lambda path: list_units(CorpusConfig(path=path, format="car")),
    "digest": lambda path: digest_corpus(CorpusConfig(path=path, format="jsonl")).digest,
    "given run": digest_run,
}
ONCE: dict[str, Callable[[str], object]] = {"run": read_run, "qrels": read_qrels}


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Callable[[str, bytes], str]]:
    """Makes a named pipe that gives some bytes to its first reader."""
    threads = []

    def start(name: str, content: bytes) -> str:
        path = tmp_path / name
        os.mkfifo(path)
        threads.append(threading.Thread(target=path.write_bytes, args=(content,), daemon=True))
        threads[-1].start()
        return str(path)

    yield start
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def test_runs_and_qrels_can_be_pipes(feed):
    runs = [feed("run", RUN), feed("baseline", b"q Q0 b 1 1 t\n")]
    found = evaluate_run_files(runs, feed("qrels", b"q 0 b 1\n"), ["RR"])
    assert [each.evaluation.means for each in found] == [{"RR": 0.5}, {"RR": 1}]
    long = b"".join(b"q Q0 d%d 1 %d t\n" % (i, -i) for i in range(50_000))
    assert len(read_run(feed("long", long)).order["q"]) == 50_000
    for ending, pack in COMPRESSORS.items():
        assert read_run(feed(f"run{ending}", pack(RUN))).order == {"q": ["a", "b"]}


@pytest.mark.parametrize("reader", READERS)
def test_pipe_is_refused_as_an_input_of_a_job(tmp_path, reader):
    """It has no writer: opening it would block."""
    os.mkfifo(tmp_path / "pipe")
    with refuses(PreflightError, "not-regular", file="pipe"):
        READERS[reader](str(tmp_path / "pipe"))


def test_pipe_in_the_folder_of_a_corpus_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "1", "contents": "x"}\n')
    os.mkfifo(tmp_path / "b.jsonl")
    with refuses(PreflightError, "not-regular", file="b.jsonl"):
        list_units(CorpusConfig(path=str(tmp_path), format="jsonl"))


@pytest.mark.parametrize("reader", [*READERS, *ONCE])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/dev/null", "/dev/null is a device: give a regular file"),
        ("/dev/zero", "/dev/zero is a device: give a regular file"),
        ("socket", "socket is a socket: give a regular file"),
        ("a\0b", r"the path '.*a\\x00b' contains a NUL character"),
        *(
            (name, "cannot use the path")
            for name in ("loop", "x" * 300, "a/" * 5000, "x" * 100_000)
        ),
    ],
    ids=lambda each: each[:9],
)
def test_path_that_no_regular_file_has_is_refused(tmp_path, monkeypatch, reader, name, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        with pytest.raises(PreflightError) as refusal:
            (READERS | ONCE)[reader](name if name.startswith("/") else str(tmp_path / name))
    if message != "cannot use the path" or reader in ONCE:
        assert re.search(message, str(refusal.value))
        assert len(str(refusal.value)) < 500


def test_regular_files_folders_and_links_are_accepted(tmp_path):
    pq.write_table(pa.table({"id": ["1"], "text": ["x"]}), tmp_path / "c.parquet")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "c.parquet")
    for path in (tmp_path, tmp_path / "c.parquet", tmp_path / "link.parquet", tmp_path / "none"):
        check_regular(str(path))
    assert len(list_units(CorpusConfig(path=str(tmp_path / "link.parquet"), format="parquet"))) == 1


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


def test_link_that_the_user_names_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    for target in ("elsewhere/old", "elsewhere/new"):
        link = tmp_path / f"link-{Path(target).name}"
        link.symlink_to(target)
        storage.replace_stream(str(link), [b"one"], through_link=True)
        storage.replace_stream(str(link), [b"two"], through_link=True)
        assert (os.readlink(link), (tmp_path / target).read_bytes()) == (target, b"two")
    assert sorted(os.listdir(tmp_path / "elsewhere")) == ["new", "old"]
    (tmp_path / "folder").symlink_to("elsewhere/converted")
    with new_folder(tmp_path / "folder") as folder:
        (folder / "file").touch()
    assert (tmp_path / "folder").is_symlink()
    assert os.listdir(tmp_path / "elsewhere/converted") == ["file"]


@pytest.mark.parametrize("target", ["file", "folder", "gone", "/dev/null", "link"])
@pytest.mark.parametrize("streams", [True, False])
def test_link_is_replaced_and_its_target_stays(tmp_path, target, streams):
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder/canary"):
        (tmp_path / name).write_bytes(b"mine")
    link = tmp_path / "link"
    link.symlink_to(target)
    if streams:
        storage.replace_stream(str(link), [b"ours"])
    else:
        storage.replace(str(link), b"ours")
    assert (link.is_symlink(), link.read_bytes()) == (False, b"ours")
    assert {path.read_bytes() for path in (tmp_path / "file", tmp_path / "folder/canary")} == {
        b"mine"
    }
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "link"]


def test_leftovers_behind_a_link_stay(tmp_path):
    name = _name("file")  # without a lock: its writer has ended
    for folder in ("out/mono", "elsewhere/receipts"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).touch()
    (tmp_path / "out/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "link").symlink_to(tmp_path / "out")
    for path in ("linked/receipts", "linked", "mono", ""):
        storage.remove_leftovers(str(tmp_path / "link"), path)
    assert os.listdir(tmp_path / "out/mono") == []
    assert os.listdir(tmp_path / "elsewhere/receipts") == [name]


def test_own_folder_is_no_link(tmp_path, capsys):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/canary").touch()
    for target in ("elsewhere", "gone"):
        (tmp_path / "link").symlink_to(target)
        assert storage.own_folder(str(tmp_path), "link", "below") == str(tmp_path / "link/below")
        assert not (tmp_path / "link").is_symlink()
        assert f"link to {target}" in capsys.readouterr().err
    assert storage.own_folder(str(tmp_path), "elsewhere") == str(tmp_path / "elsewhere")
    assert (os.listdir(tmp_path / "elsewhere"), capsys.readouterr().err) == (["canary"], "")


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
        storage.replace_stream(f"/dev/fd/{file.fileno()}", [b"second"], through_link=True)
    assert log.read_bytes() == b"first second"
    with pytest.raises(OSError, match="/dev/full"):
        storage.replace("/dev/full", b"one")
    assert [is_special(path) for path in ("/dev/stdout", "/dev/null", str(log))] == [
        True,
        True,
        False,
    ]
    with pytest.raises(PreflightError, match="/dev/null"):
        storage.check_folder("/dev/null")


def test_temporary_files_of_a_command_end_with_it_or_with_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / temporary_name("beamrank") / "job").mkdir(parents=True)
    with own_temporary_files():
        (own,) = os.listdir(tmp_path)
        assert tempfile.mkdtemp().startswith(f"{tmp_path}/{own}/")
        assert stat.S_IMODE((tmp_path / own).stat().st_mode) == 0o700
    assert os.listdir(tmp_path) == []
    assert tempfile.gettempdir() == str(tmp_path)


def test_missing_temporary_folder_is_an_error_that_names_the_variable(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    with pytest.raises(PreflightError, match="TMPDIR"), own_temporary_files():
        pass


def _name(base: str, machine: str = "") -> str:
    return temporary_name(base).replace(machine_id(), machine or machine_id())


def test_leftovers_are_those_of_writers_that_ended(tmp_path):
    elsewhere = "0" * 8 if machine_id() != "0" * 8 else "1" * 8
    gone = [_name("file"), _name("old\nelsewhere", elsewhere)]
    kept = [
        _name("young elsewhere", elsewhere),
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


def test_files_of_a_running_writer_stay_whatever_the_clock_says(tmp_path, monkeypatch):
    """A process that writes a file and fills a folder, seen by one whose clock was set."""
    program = """
import sys
from beamrank.storage import files as storage
from beamrank.storage.local_files import new_folder, own_temporary_files
def chunks():
    with new_folder(sys.argv[1] + "/folder"), own_temporary_files():
        print(flush=True)
        yield bytes(len(input()))
storage.replace_stream(sys.argv[1] + "/file", chunks())
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        written = sorted(os.listdir(tmp_path))
        seconds, booted = time.time, psutil._pslinux.boot_time
        for step in (-7200, 5, 7200):
            monkeypatch.setattr(time, "time", lambda step=step: seconds() + step)
            monkeypatch.setattr(psutil._pslinux, "boot_time", lambda step=step: booted() + step)
            remove_leftovers(str(tmp_path))
            assert sorted(os.listdir(tmp_path)) == written
        process.communicate(b"end\n")
    assert (process.returncode, sorted(os.listdir(tmp_path))) == (0, ["file", "folder"])


def test_leftovers_without_locks_are_old_ones(tmp_path, monkeypatch):
    """On a file system that has no locks."""

    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    young, old = _name("young"), _name("old")
    for name in (young, old):
        (tmp_path / name).touch()
    os.utime(tmp_path / old, (0, time.time() - 7200))
    remove_leftovers(str(tmp_path))
    assert os.listdir(tmp_path) == [young]
    storage.replace(str(tmp_path / "file"), b"one")
    assert storage.read_bytes(str(tmp_path / "file")) == b"one"


def test_file_that_is_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    """Another process takes it for one that a killed process left."""
    flock, removed = fcntl.flock, list[bool]()

    def remove_first(descriptor: int, operation: int) -> None:
        if not removed:
            removed.append(True)
            remove_leftovers(str(tmp_path))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    assert storage.publish(str(tmp_path / "file"), b"one")
    assert storage.read_bytes(str(tmp_path / "file")) == b"one"
    assert removed


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
storage.replace_stream(sys.argv[1], chunks(), through_link=True)
"""
    (tmp_path / "links").mkdir()
    (tmp_path / "links/run").symlink_to("../run.trec")
    paths = [str(tmp_path / "links/run"), str(tmp_path / "folder")]
    subprocess.run([sys.executable, "-c", program, *paths], check=False)
    assert len(os.listdir(tmp_path)) == 3
    storage.replace_stream(paths[0], [b"whole"], through_link=True)
    with new_folder(paths[1]):
        pass
    assert sorted(os.listdir(tmp_path)) == ["folder", "links", "run.trec"]


@pytest.mark.parametrize(
    "name", ["a::b [1]*?.trec", " a\nb ", os.fsdecode(b"\xff.trec"), "x" * 240]
)
def test_names_that_are_odd_are_written(tmp_path, name):
    path = str(tmp_path / name / name)
    storage.replace_stream(path, [b"one"])
    assert not storage.publish(path, b"two")
    assert os.listdir(tmp_path / name) == [name]


@pytest.fixture(params=["mapped", "read"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    """A mount that maps files, and one that does not."""

    def mmap(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    if request.param == "read":
        monkeypatch.setattr("mmap.mmap", mmap)
    return np.memmap if request.param == "mapped" else np.ndarray


def test_arrays_are_mapped_where_that_can_be_done(tmp_path, kind):
    np.save(tmp_path / "a.npy", np.arange(6).reshape(2, 3))
    np.arange(4, dtype="<u4").tofile(tmp_path / "a.bin")
    (tmp_path / "empty.bin").touch()
    array, numbers = map_array(tmp_path / "a.npy"), map_numbers(tmp_path / "a.bin", "<u4")
    assert (type(array), type(numbers)) == (kind, kind)
    assert (array.tolist(), numbers.tolist()) == ([[0, 1, 2], [3, 4, 5]], [0, 1, 2, 3])
    assert len(map_numbers(tmp_path / "empty.bin", "<u4")) == 0
    (url,) = list_docs([(7, ["a", "b"])], str(tmp_path)).urls
    assert NeededDocs.open(url).hashes.tolist() == sorted(hashes64(["a", "b"]).tolist())
    for read in (map_array, lambda path: map_numbers(path, "<u4")):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "none")
