"""Files by URL."""

import os
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.digested import file_states, file_version, remote_files
from beamrank.storage.local_files import new_folder
from beamrank.storage.stores import missing_library
from tests.support.changed_files import rewrite


@pytest.fixture(params=["local", "memory"])
def folder(request, tmp_path):
    return str(tmp_path / "a[1]") if request.param == "local" else f"memory://{tmp_path.name}/a[1]"


def test_publish_is_create_only_and_replace_is_not(folder):
    url = storage.join(folder, "sub", "b")
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


@pytest.mark.parametrize("left", [b"12", b"1x3", b"123"])
def test_publish_content_replaces_other_content_under_its_name(folder, left):
    url = storage.join(folder, "a")
    storage.replace(url, left)
    storage.publish_content(url, b"123")
    assert storage.read_bytes(url) == b"123"


def test_content_that_is_published_again_is_as_new(tmp_path):
    """So that `gc` leaves the part of a killed attempt, on which the next one counts."""
    path = tmp_path / "a"
    storage.publish_content(str(path), b"123")
    os.utime(path, (0, 0))
    storage.publish_content(str(path), b"123")
    assert time.time() - path.stat().st_mtime < 3600


def test_file_states_tell_size_and_time(folder):
    before = time.time()
    storage.publish(storage.join(folder, "a"), b"123")
    state = file_states(folder)["a"]
    assert state.size_bytes == 3
    assert before - 1 <= (state.modified_seconds or 0) <= time.time() + 1


def test_listing_of_a_missing_folder_is_empty(tmp_path):
    assert (
        storage.sizes_bytes(str(tmp_path / "nothing"))
        == file_states(str(tmp_path / "nothing"))
        == {}
    )


@pytest.mark.parametrize(
    ("folder_of", "path", "joined"),
    [
        ("/conf", "x/y", "/conf/x/y"),
        ("/conf", "./x", "/conf/x"),
        ("/conf", "../x", "/conf/../x"),
        ("/conf", "/abs", "/abs"),
        ("/conf", "gs://bucket/x", "gs://bucket/x"),
        ("gs://bucket/conf", "x.tsv", "gs://bucket/conf/x.tsv"),
    ],
)
def test_relative_path_is_below_the_folder_of_the_configuration(folder_of, path, joined):
    assert storage.join_relative(folder_of, path) == joined


def test_parent_of_a_remote_file():
    assert storage.parent("gs://bucket/conf/a.yaml") == "gs://bucket/conf"


def test_killed_replace_stream_leaves_only_a_hidden_file(tmp_path):
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


def test_new_folder_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    with suppress(ZeroDivisionError), new_folder(target) as temporary:
        (temporary / "one").write_text("1")
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    with new_folder(target) as temporary:
        (temporary / "one").write_text("1")
        assert not list(target.iterdir())
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
        "target",
        "target/one",
    ]


def test_read_files_leaves_out_files_that_do_not_exist(folder):
    for name in "ab":
        storage.replace(storage.join(folder, name), name.encode())
    assert storage.read_files(folder, ["b", "none", "a"]) == {"b": b"b", "a": b"a"}
    assert storage.read_files(folder, []) == {}
    assert remote_files(folder).keys() == {"a", "b"}


def test_protocol_that_cannot_be_used_is_named():
    with pytest.raises(PreflightError, match="gss://bucket/a"):
        storage.exists("gss://bucket/a")
    with pytest.raises(PreflightError, match=r"dropbox://a: .*install"):
        storage.exists("dropbox://a")
    assert "pip install 'beamrank[s3]'" in str(
        missing_library("s3://bucket/a", ImportError("no s3fs"))
    )


def test_file_version_changes_with_a_local_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0")
    for number in range(1, 30):
        seen = file_version(str(path))
        assert file_version(str(path)) == seen
        # The same size, at once, and the time of writing set back: only the time of the change
        # differs.
        rewrite(path, str(number % 10).encode())
        assert file_version(str(path)) != seen


def test_file_version_of_a_remote_file_follows_its_store(tmp_path):
    url = f"memory://{tmp_path.name}/file"
    storage.replace(url, b"one")
    before = file_version(url)
    assert file_version(url) == before
    storage.replace(url, b"two")
    assert file_version(url) != before
    with pytest.raises(FileNotFoundError):
        file_version(f"{url}.none")
