"""A folder is tried like a store, once; what the tries leave is ours, and is no damage."""

import json
from pathlib import Path

from beamrank.commit.check import find_garbage, verify_stages
from beamrank.commit.listing import PROBE, PROBING
from beamrank.commit.probe import check_store
from beamrank.storage.local_files import mount
from tests.support.outputs import finished_output

_DAY_SECONDS = 86400.0


def _remembered(folder: Path) -> list[Path]:
    return sorted(folder.glob("probe-*.json"))


def test_folder_is_tried_and_remembered(tmp_path):
    folder = tmp_path / "new"
    check_store(str(folder))
    (path,) = folder.iterdir()
    assert json.loads(path.read_bytes())["store"] == mount(str(folder))
    before = path.stat().st_ino, folder.stat().st_mtime_ns
    check_store(str(folder))
    assert (path.stat().st_ino, folder.stat().st_mtime_ns) == before


def test_folder_that_came_from_another_file_system_is_tried_again(tmp_path):
    check_store(str(tmp_path))
    (path,) = _remembered(tmp_path)
    elsewhere = path.rename(tmp_path / PROBE.name("0" * 64))
    check_store(str(tmp_path))
    assert _remembered(tmp_path) == sorted([path, elsewhere])


def test_remembered_file_that_is_cut_off_is_not_believed(tmp_path):
    check_store(str(tmp_path))
    (path,) = _remembered(tmp_path)
    path.write_bytes(b"")
    before = tmp_path.stat().st_mtime_ns
    check_store(str(tmp_path))
    assert tmp_path.stat().st_mtime_ns > before


def test_file_system_of_a_path_is_that_behind_its_links(tmp_path):
    (tmp_path / "link").symlink_to("/proc/self")
    assert mount(str(tmp_path / "link" / "none")) == mount("/proc") == ["proc", mount("/proc")[1]]
    assert mount(str(tmp_path)) != mount("/proc")


def test_gc_removes_what_a_killed_try_left_and_nothing_else(tmp_path):
    finished_output(str(tmp_path))
    check_store(str(tmp_path))
    left = tmp_path / PROBING.name("1" * 64)
    left.write_bytes(b"first")
    now = left.stat().st_mtime
    assert verify_stages(str(tmp_path)).findings == []
    garbage = find_garbage(str(tmp_path), now + 2 * _DAY_SECONDS, _DAY_SECONDS)
    assert [file.file for file in garbage if "/" not in file.file] == [left.name]
