"""The content that is read from a file must be the content that was digested."""

import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from beamrank.errors import DataError, PreflightError
from beamrank.formats import id_places
from beamrank.formats.id_places import IdPlaces, missing_ids, repeated_rows
from beamrank.formats.topic_table import TopicTable
from beamrank.storage import files as storage
from beamrank.storage.digested import RewrittenError, digest_file, reread
from beamrank.storage.documents import sha256
from tests.support.changed_files import rewrite
from tests.support.refusals import refuses


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.tsv"
    path.write_bytes(b"d1\ttext\n")
    return path


def _write_elsewhere(path: Path) -> None:
    """As copying a corpus to another machine does."""
    shutil.copy(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").rename(path)


def _change_and_set_the_time_back(path: Path) -> None:
    rewrite(path, b"d1\tTEXT\n")


def test_unchanged_file_is_hashed_once(path, hashed):
    file = digest_file(str(path))
    assert file.content == sha256(path.read_bytes())
    for _ in range(3):
        with file.unchanged():
            path.read_bytes()
    assert digest_file(str(path)) == file
    assert hashed == [str(path)]


@pytest.mark.parametrize("change", [Path.touch, _write_elsewhere], ids=["touched", "copied"])
def test_new_version_of_same_content_is_hashed_again(path, hashed, change):
    file = digest_file(str(path))
    change(path)
    for _ in range(3):
        with file.unchanged():
            path.read_bytes()
    assert len(hashed) == 2


@pytest.mark.parametrize(
    "change", [_change_and_set_the_time_back, Path.unlink], ids=["changed", "removed"]
)
def test_change_before_reading_is_an_error(path, change):
    file = digest_file(str(path))
    change(path)
    with (
        refuses(DataError, "changed", file="corpus.tsv"),
        file.unchanged(),
    ):
        pytest.fail("nothing may be read")


def _read_what_is_cut(path: Path, change: Callable[[Path], object]) -> None:
    change(path)
    raise DataError("it is cut short")


def test_change_while_reading_replaces_the_error_of_reading(path):
    file = digest_file(str(path))
    with pytest.raises(DataError, match="cut short"), file.unchanged():
        _read_what_is_cut(path, Path.read_bytes)
    with refuses(DataError, "changed"), file.unchanged():
        _read_what_is_cut(path, _change_and_set_the_time_back)


def test_file_without_a_known_version_is_compared_by_hash(path):
    file = replace(digest_file(str(path)), version="")
    with file.unchanged():
        path.read_bytes()
    path.write_bytes(b"d2\ttext\n")
    with pytest.raises(DataError), file.unchanged():
        pytest.fail("nothing may be read")


def test_remote_file_is_compared_without_reading(tmp_path, hashed):
    url = f"memory://{tmp_path.name}/corpus.tsv"
    storage.replace(url, b"d1\ttext\n")
    file = digest_file(url, read=False)
    with file.unchanged():
        pass
    storage.replace(url, b"d2\ttext\n")
    with pytest.raises(DataError), file.unchanged():
        pytest.fail("nothing may be read")
    assert hashed == []


def test_file_that_is_being_written_is_refused(path, monkeypatch):
    original = storage.sha256

    def written_meanwhile(url: str) -> str:
        found = original(url)
        path.write_bytes(path.read_bytes() + b"d2\ttext\n")
        return found

    monkeypatch.setattr(storage, "sha256", written_meanwhile)
    with pytest.raises(PreflightError, match="written"):
        digest_file(str(path))


def _change_mode(path: Path) -> None:
    path.chmod(path.stat().st_mode ^ stat.S_IXUSR)


def _link(path: Path) -> None:
    path.with_name(f"{path.name}.link").hardlink_to(path)


@pytest.mark.parametrize(
    ("change", "rewritten"),
    [
        (_change_mode, False),
        (_link, False),
        (Path.touch, True),
        (_write_elsewhere, True),
        (_change_and_set_the_time_back, True),
    ],
)
def test_file_with_another_mode_or_link_is_not_rewritten(path, change, rewritten):
    file = digest_file(str(path))
    change(path)
    assert file.is_rewritten() == rewritten


def test_digest_is_taken_of_a_file_that_gets_another_mode(path, monkeypatch):
    original = storage.sha256

    def changed_meanwhile(url: str) -> str:
        found = original(url)
        _change_mode(path)
        return found

    monkeypatch.setattr(storage, "sha256", changed_meanwhile)
    assert digest_file(str(path)).sha256 == original(str(path))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ([Path.touch], None),
        ([_write_elsewhere, Path.touch], None),
        ([_change_and_set_the_time_back], DataError),
        ([Path.unlink], DataError),
        ([Path.touch, Path.touch, Path.touch], RewrittenError),
    ],
    ids=["touched", "twice", "changed", "removed", "each time"],
)
def test_file_of_the_same_content_is_read_again(path, changes, error):
    file, left = digest_file(str(path)), list(changes)

    def read() -> bytes:
        with file.unchanged():
            content = path.read_bytes()
            if left:
                left.pop(0)(path)
        return content

    if error is None:
        assert reread(read) == b"d1\ttext\n"
    else:
        with refuses(error, "changed") as found:
            reread(read)
        assert found.type is error
    assert left == []


IDS = [f"q{number}" for number in range(200)]


@pytest.fixture(params=[False, True], ids=["distinct hashes", "equal hashes"])
def _hashes(request, monkeypatch):
    """64-bit hashes of real ids do not collide: here those of all ids are one of three."""
    if request.param:
        monkeypatch.setattr(id_places, "hash64", lambda text: len(text))
        monkeypatch.setattr(
            id_places, "hashes64", lambda texts: np.array([len(each) for each in texts], np.uint64)
        )


@pytest.mark.usefixtures("_hashes")
def test_ids_are_found_in_any_chunks():
    for column in (pa.array(IDS), pa.chunked_array([IDS[:7], [], IDS[7:]])):
        places = IdPlaces(column)
        assert [places.find(each) for each in ("q0", "q7", "q199", "q200", "", "é")] == [
            0,
            7,
            199,
            None,
            None,
            None,
        ]
    assert IdPlaces(pa.array([], pa.string())).find("q") is None
    assert missing_ids(pa.array(IDS[:4]), {"q1", "q3", "q9"}) == ["q0", "q2"]


def test_rows_with_earlier_values_are_found():
    keys = pa.chunked_array([["a", "b", "a"], ["c", "b", "a"]])
    assert repeated_rows(keys) == [(2, 0), (4, 1), (5, 0)]
    assert repeated_rows(pa.chunked_array([[0, 0, 1, 1, 0, 0]]), keys) == [(4, 1), (5, 0)]
    # Python's hash of -1 is that of -2.
    assert repeated_rows(pa.array([-1, -2, -1])) == [(2, 0)]
    assert repeated_rows(keys.slice(0, 2)) == repeated_rows(keys.slice(0, 0)) == []


def test_tables_of_topics_are_compared_by_id_and_text():
    old = TopicTable.of([("a", "x"), ("b", "y"), ("c", "z")])
    new = TopicTable.of([("c", "z"), ("d", "x"), ("b", "other")])
    both, unchanged = new.in_both(old)
    assert (both.tolist(), unchanged.tolist()) == ([0, 2], [0])
    assert dict(new.texts) == {"c": "z", "d": "x", "b": "other"}
    assert new.texts.get("a") is None
