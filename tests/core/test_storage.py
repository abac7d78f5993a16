"""Files by URL."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from beamrank.errors import PreflightError
from beamrank.storage import files as storage


@pytest.mark.parametrize("root", ["local", "memory"])
def test_publish_is_create_only_and_replace_is_not(root: str, tmp_path: Path) -> None:
    url = str(tmp_path / "a" / "b") if root == "local" else f"memory://{tmp_path.name}/a/b"
    assert storage.publish(url, b"1")
    assert not storage.publish(url, b"2")
    assert storage.read_bytes(url) == b"1"
    storage.replace(url, b"3")
    assert storage.read_bytes(url) == b"3"
    assert storage.size_bytes(url) == 1
    assert storage.sizes_bytes(storage.parent(url)) == {"b": 1}
    storage.remove(url)
    storage.remove(url)
    assert not storage.exists(url)


def test_a_file_whose_temporary_is_swept_is_published_all_the_same(tmp_path: Path) -> None:
    """Another run that seals its stage in the same folder removes temporary files, whoever is writing them."""
    done = threading.Event()

    def sweep() -> None:
        swept = 0
        while not done.is_set() and swept < 50:
            for path in tmp_path.glob(".*.tmp"):
                path.unlink(missing_ok=True)
                swept += 1

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        for number in range(100):
            assert storage.publish(str(tmp_path / str(number)), b"x" * 10_000)
    finally:
        done.set()
        sweeper.join()
    assert storage.sizes_bytes(str(tmp_path)) == {str(number): 10_000 for number in range(100)}


@pytest.mark.parametrize("root", ["local", "memory"])
def test_content_replaces_what_has_its_name_by_mistake(root: str, tmp_path: Path) -> None:
    url = str(tmp_path / "a") if root == "local" else f"memory://{tmp_path.name}/content/a"
    for left in (b"12", b"1x3", b"123"):
        storage.replace(url, left)
        storage.publish_content(url, b"123")
        assert storage.read_bytes(url) == b"123"


@pytest.mark.parametrize("root", ["local", "memory"])
def test_files_know_when_they_were_written(root: str, tmp_path: Path) -> None:
    url = str(tmp_path / "a") if root == "local" else f"memory://{tmp_path.name}/times/a"
    before = time.time()
    storage.publish(url, b"123")
    state = storage.file_states(storage.parent(url))["a"]
    assert state.size_bytes == 3
    assert state.modified_seconds is not None
    assert before - 1 <= state.modified_seconds <= time.time() + 1
    assert storage.file_states(str(tmp_path / "nothing")) == {}


def test_sizes_of_no_folder_is_empty(tmp_path: Path) -> None:
    assert storage.sizes_bytes(str(tmp_path / "nothing")) == {}


def test_find_takes_a_file_a_folder_or_a_glob(tmp_path: Path) -> None:
    for name in ("b.tsv", "a.tsv", "sub/c.tsv"):
        storage.publish(str(tmp_path / name), b"")
    assert storage.find(str(tmp_path / "a.tsv")) == [str(tmp_path / "a.tsv")]
    assert storage.find(str(tmp_path)) == [str(tmp_path / name) for name in ("a.tsv", "b.tsv", "sub/c.tsv")]
    assert storage.find(str(tmp_path / "*.tsv")) == [str(tmp_path / name) for name in ("a.tsv", "b.tsv")]
    assert storage.find(str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("path", "joined"),
    [
        ("x/y", "/conf/x/y"),
        ("./x", "/conf/x"),
        ("../x", "/conf/../x"),
        ("/abs", "/abs"),
        ("gs://bucket/x", "gs://bucket/x"),
    ],
)
def test_relative_paths_are_anchored(path: str, joined: str) -> None:
    assert storage.join_relative("/conf", path) == joined


def test_a_relative_path_beside_a_remote_configuration() -> None:
    assert storage.join_relative("gs://bucket/conf", "x.tsv") == "gs://bucket/conf/x.tsv"
    assert storage.parent("gs://bucket/conf/a.yaml") == "gs://bucket/conf"


def test_a_stream_cut_by_a_kill_leaves_a_hidden_file_alone(tmp_path: Path) -> None:
    program = """
import os, sys
from beamrank.storage import files as storage
def chunks():
    yield b"half"
    os._exit(9)
storage.replace_stream(sys.argv[1], chunks())
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "bm25.trec")], check=False)
    assert done.returncode == 9
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".bm25.trec.")
    assert left.name.endswith(".tmp")


@pytest.mark.parametrize("root", ["local", "memory"])
def test_files_are_read_by_name(root: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "a[1]") if root == "local" else f"memory://{tmp_path.name}/a[1]"
    for name in "ab":
        storage.replace(storage.join(folder, name), name.encode())
    assert storage.read_files(folder, ["b", "none", "a"]) == {"b": b"b", "a": b"a"}
    assert storage.read_files(folder, []) == {}
    assert storage.stored_files(folder).keys() == {"a", "b"}


def test_a_library_that_is_not_installed_is_named() -> None:
    with pytest.raises(PreflightError, match=r"cannot read or write dropbox://a: .*install"):
        storage.exists("dropbox://a")
    assert "pip install 'beamrank[s3]'" in storage._missing_library("s3://bucket/a", ImportError("no s3fs"))


def test_version_changes_with_every_change_of_a_local_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0")
    for number in range(1, 30):
        before, seen = path.stat(), storage.version(str(path))
        assert storage.version(str(path)) == seen
        # The same size, at once, and the time of writing set back: what is left is the time of the change.
        path.write_bytes(str(number % 10).encode())
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert storage.version(str(path)) != seen


def test_version_of_a_remote_file_follows_its_store(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}/file"
    storage.replace(url, b"one")
    before = storage.version(url)
    assert storage.version(url) == before
    storage.replace(url, b"two")
    assert storage.version(url) != before
    with pytest.raises(FileNotFoundError):
        storage.version(f"{url}.none")
