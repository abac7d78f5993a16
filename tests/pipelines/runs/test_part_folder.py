"""Folders of parts: whole where `_SUCCESS` is, whatever was there before."""

import os

import pytest

from beamrank.errors import BeamrankError
from pipelines.runs.run_file import SUCCESS, PartFolder
from tests.support.outputs import files_below


@pytest.fixture(params=["local", "memory"])
def folder(request, tmp_path):
    url = str(tmp_path) if request.param == "local" else f"memory://{tmp_path}"
    return PartFolder(f"{url}/runs/mono.parquet", "parquet", 2)


def _names(folder: PartFolder) -> list[str]:
    return [each.rpartition("/runs/mono.parquet/")[2] for each in files_below(folder.url)]


def _write(folder: PartFolder) -> None:
    for shard in range(folder.shards):
        folder.write(shard, b"%d" % shard)


def test_folder_is_marked_once_all_parts_are_there(folder):
    folder.begin()
    folder.write(1, b"1")
    assert folder.missing() == [0]
    with pytest.raises(BeamrankError, match=r"mono\.parquet lacks part-00000\.parquet"):
        folder.seal()
    assert SUCCESS not in _names(folder)
    folder.write(0, b"0")
    folder.seal()
    assert _names(folder) == sorted(folder.names) == [SUCCESS, "part-00000.parquet", "part-00001.parquet"]


def test_what_another_plan_or_a_lost_attempt_left_is_removed(folder):
    larger = PartFolder(folder.url, "parquet", 5)
    _write(larger)
    larger.seal()
    folder.begin()
    assert _names(folder) == []
    _write(folder)
    # Attempts of another job that ends late.
    larger.write(4, b"4")
    PartFolder(f"{folder.url}/below", "parquet", 1).write(0, b"")
    PartFolder(folder.url, "parquet.tmp", 1).write(0, b"")
    folder.seal()
    assert _names(folder) == sorted(folder.names)


def test_file_under_the_name_is_replaced(tmp_path):
    (tmp_path / "mono.parquet").write_bytes(b"one file")
    folder = PartFolder(str(tmp_path / "mono.parquet"), "parquet", 1)
    folder.begin()
    _write(folder)
    folder.seal()
    assert sorted(os.listdir(folder.url)) == sorted(folder.names)
