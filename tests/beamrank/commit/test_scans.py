"""Reports of scanned units: counted once however often a unit is read."""

from pathlib import Path

import pytest

from beamrank.commit.scans import ScanReport, read_scans, watch_scans
from beamrank.storage import files as storage


@pytest.fixture(params=["local", "memory"])
def stage_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "local" else f"memory://{tmp_path.name}"


def _examples(unit: int, count: int) -> tuple[str, ...]:
    return tuple(f"unit {unit} row {row}: bad" for row in range(count))


def test_read_scans_of_no_scan_is_empty(stage_url):
    assert read_scans(stage_url, "a" * 64) == ScanReport(0, 0, 0, ())
    assert watch_scans(stage_url)() == 0


def test_scan_reports_are_summed_in_unit_order(stage_url):
    for unit in (11, 2, 0):
        ScanReport(unit, 10, 3, _examples(unit, 3)).publish(stage_url, "a" * 64)
    expected = ScanReport(3, 30, 9, (*_examples(0, 3), *_examples(2, 2)))
    assert read_scans(stage_url, "a" * 64) == expected
    ScanReport(2, 10, 3, _examples(2, 3)).publish(stage_url, "a" * 64)
    assert read_scans(stage_url, "a" * 64) == expected


def test_scan_reports_of_other_corpora_are_ignored(stage_url):
    ScanReport(0, 10, 3, _examples(0, 3)).publish(stage_url, "a" * 64)
    ScanReport(0, 5, 0, ()).publish(stage_url, "b" * 64)
    assert read_scans(stage_url, "b" * 64) == ScanReport(1, 5, 0, ())
    assert read_scans(stage_url, "a" * 64).bad_rows == 3


def test_scan_watch_counts_a_unit_that_is_read_again(stage_url):
    report = ScanReport(0, 10, 0, ())
    report.publish(stage_url, "a" * 64)
    watch = watch_scans(stage_url)
    assert watch() == 0
    report.publish(stage_url, "a" * 64)
    ScanReport(1, 10, 0, ()).publish(stage_url, "a" * 64)
    assert watch() == 2


def test_truncated_scan_report_is_counted_after_rereading(stage_url):
    ScanReport(0, 10, 3, _examples(0, 3)).publish(stage_url, "a" * 64)
    report = ScanReport(1, 10, 2, _examples(1, 2))
    report.publish(stage_url, "a" * 64)
    url = storage.join(stage_url, "scans", f"unit-00001-{'a' * 12}.json")
    whole = storage.read_bytes(url)
    for broken in (whole[:30], whole.replace(b'"bad_rows": 2', b'"bad_rows": 3'), b""):
        storage.replace(url, broken)
        assert read_scans(stage_url, "a" * 64).bad_rows == 3
    report.publish(stage_url, "a" * 64)
    assert read_scans(stage_url, "a" * 64).bad_rows == 5
