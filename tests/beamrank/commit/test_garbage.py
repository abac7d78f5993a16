"""`gc` removes leftovers that no manifest or plan names, and nothing else."""

import os
import shutil
import time
from dataclasses import replace

import pyarrow as pa
import pytest

from beamrank.commit.check import find_garbage, remove_garbage, verify_stages
from beamrank.commit.plan import Rejected, read_plan
from beamrank.commit.receipts import StageFolder, part_bytes
from beamrank.commit.scans import ScanReport
from beamrank.commit.status import read_status
from beamrank.errors import PreflightError, ReceiptError
from beamrank.formats.rejects import Rejects
from beamrank.records import BadRow
from beamrank.storage import files as storage
from beamrank.storage.documents import checked_json, checked_values, sha256
from tests.support.outputs import (
    CORPUS,
    SHARDS,
    commit,
    files_below,
    finished_output,
    make_plan,
    seal_stage,
)
from tests.support.refusals import refuses

_HOUR = 3600.0
_OTHER_PART = "part-00000-aaaaaaaaaaaa.parquet"
# The end of a temporary file's name: its machine and its number.
_KILLED = "01234567-0123456789ab.tmp"


def _later(hours: float) -> float:
    return time.time() + hours * _HOUR


def _garbage(output: str, hours_later: float = 2) -> set[str]:
    """The garbage after so many hours, with a least age of one hour."""
    return {each.file for each in find_garbage(output, _later(hours_later), _HOUR)}


def _write(output: str, *names: str) -> set[str]:
    for name in names:
        storage.publish(storage.join(output, name), part_bytes(pa.table({"a": [1]})))
    return set(names)


def _files(output: str) -> set[str]:
    return {path.partition("/out/")[2] for path in files_below(output)}


def test_gc_of_a_sealed_run_removes_only_needed_docs(output):
    finished_output(output)
    left = _garbage(output)
    assert len(left) == 1
    assert next(iter(left)).startswith("tokenize-0a1b2c3d/needed-")


def test_gc_leaves_an_old_part_that_an_attempt_has_published_again(tmp_path):
    """An attempt was killed before its receipt; the next one publishes that after gc has looked."""
    output = str(tmp_path / "out")
    finished_output(output)
    folder = StageFolder(f"{output}/mono")
    rows, shard_digest = pa.table({"a": [7]}), "f" * 64
    left = tmp_path / "out/mono" / f"part-00000-{sha256(part_bytes(rows))[:12]}.parquet"
    left.write_bytes(part_bytes(rows))
    os.utime(left, (0, 0))
    storage.publish_content(str(left), part_bytes(rows))
    garbage = find_garbage(output, time.time(), _HOUR)
    receipt = folder.commit(0, shard_digest, rows, seconds=0.0, counts={})
    remove_garbage(output, garbage)
    assert folder.receipt(0, shard_digest) == receipt


def test_gc_removes_leftovers_of_killed_runs_and_nothing_else(output):
    finished_output(output)
    before = _files(output) - _garbage(output)
    notes = (
        "notes.txt",
        "mono/notes.txt",
        "mono/receipts/notes.txt",
        "tokenize-0a1b2c3d/scans/notes.txt",
    )
    theirs = (
        f".notes.txt.{_KILLED}",
        "plan-of-mine.json",
        *("mono/notes.tmp", "runs/.mono.trec.tmp", "rejects/.tmp", "machines/my.0.tmp"),
    )
    foreign = _write(output, *notes, *theirs, "runs/mono.trec", "runs/duo-min.trec", "index/_0.cfs")
    litter = _write(
        output,
        f"mono/{_OTHER_PART}",
        f"mono/.{_OTHER_PART}.{_KILLED}",
        "mono/receipts/00000-aaaaaaaaaaaa.json",
        f"mono/receipts/.00000-aaaaaaaaaaaa.json.{_KILLED}",
        f"mono/.manifest-aaaaaaaaaaaa.json.{_KILLED}",
        "mono/tasks-aaaaaaaaaaaa-aaaaaaaaaaaa.parquet",
        "tokenize-0a1b2c3d/scans/unit-00000-aaaaaaaaaaaa.json",
        f"tokenize-0a1b2c3d/scans/.unit-00000-aaaaaaaaaaaa.json.{_KILLED}",
        f"runs/.mono.trec.{_KILLED}",
        f"runs/mono.parquet/.0.parquet.{_KILLED}",
        "topics-aaaaaaaaaaaa.parquet",
        f".plan-aaaaaaaaaaaa.json.{_KILLED}",
        f".current-plan.json.{_KILLED}",
        f".topics-aaaaaaaaaaaa.parquet.{_KILLED}",
        f"machines/.x.{_KILLED}",
    )
    found = find_garbage(output, _later(2), _HOUR)
    assert {each.file for each in found} - litter == _garbage(output) - litter
    assert litter <= {each.file for each in found}
    assert all(
        each.size_bytes == storage.size_bytes(storage.join(output, each.file)) for each in found
    )
    assert all(each.reason for each in found)
    assert {each.file for each in found if "killed" in each.reason} == {
        each for each in litter if each.endswith("tmp")
    }
    remove_garbage(output, found)
    assert _files(output) == before | foreign
    assert verify_stages(output).findings == []


def test_gc_keeps_what_the_current_plan_resumes_from(output):
    plan = make_plan(output)
    plan.publish()
    seal_stage(plan, "retrieve")
    digests = commit(plan, "tokenize-0a1b2c3d", [2])
    assert _garbage(output) == set()
    assert set(plan.folder("tokenize-0a1b2c3d").receipts(digests)) == {2}


def test_gc_keeps_receipts_while_an_input_is_unfinished(output):
    """Without retrieve's part it is not known which receipts of later stages count; they may
    all.
    """
    plan = finished_output(output)
    for name in storage.sizes_bytes(storage.join(output, "mono")):
        if name.startswith("manifest-"):
            storage.remove(storage.join(output, "mono", name))
    receipt = plan.folder("retrieve").receipts(commit(plan, "retrieve", []))[0]
    storage.remove(plan.folder("retrieve").part_url(receipt))
    assert [stage.done for stage in read_status(plan)] == [2, 2, 2]
    assert {name for name in _garbage(output) if name.startswith("mono/")} == set()
    seal_stage(plan, "retrieve")
    assert [stage.done for stage in read_status(plan)] == [SHARDS] * 3


def test_gc_keeps_only_sealed_work_of_other_plans(output):
    sealed = finished_output(output, mono_k=5)
    abandoned = make_plan(output, mono_k=4)
    digests = commit(abandoned, "mono", [0, 1], salt=1)
    parts = {receipt.part for receipt in abandoned.folder("mono").receipts(digests).values()}
    current = finished_output(output, mono_k=3)
    expected = {f"mono/{part}" for part in parts} | {
        f"mono/receipts/{shard:05d}-{digests[shard][:12]}.json" for shard in (0, 1)
    }
    assert {name for name in _garbage(output) if name.startswith("mono/")} == expected
    remove_garbage(output, find_garbage(output, _later(2), _HOUR))
    for plan in (sealed, current):
        assert all(plan.gather(stage.name) is not None for stage in plan.stages)


def test_gc_keeps_a_part_that_another_plan_shares(output):
    """Other keys, the same bytes: one part, two receipts."""
    abandoned = make_plan(output, mono_k=4)
    current = finished_output(output, mono_k=3)
    digests = commit(abandoned, "mono", [0])
    assert _garbage(output) >= {f"mono/receipts/00000-{digests[0][:12]}.json"}
    remove_garbage(output, find_garbage(output, _later(2), _HOUR))
    assert verify_stages(output).findings == []
    assert current.gather("mono") is not None


def test_gc_keeps_young_files(tmp_path):
    output = str(tmp_path / "out")
    finished_output(output)
    _write(output, f"mono/{_OTHER_PART}", f"mono/.x.{_KILLED}")
    assert _garbage(output, hours_later=0) == set()
    os.utime(tmp_path / f"out/mono/.x.{_KILLED}", (0, 0))
    assert _garbage(output, hours_later=0) == {f"mono/.x.{_KILLED}"}


def test_gc_keeps_work_of_other_plans_while_young(tmp_path):
    """Its receipts may be hours old while its run continues; an old part without a receipt is
    garbage anyway.
    """
    output = str(tmp_path / "out")
    other = make_plan(output, mono_k=4)
    finished_output(output, mono_k=3)
    commit(other, "mono", [0, 1], salt=1)
    _write(output, f"mono/{_OTHER_PART}", "mono/tasks-aaaaaaaaaaaa-aaaaaaaaaaaa.parquet")
    for path in (tmp_path / "out").rglob("*"):
        os.utime(path, (0, 0))
    (needed,) = (name for name in _garbage(output, 0) if "needed-" in name)
    assert len(_garbage(output, 0)) == 7
    commit(other, "mono", [2], salt=1)
    assert _garbage(output, 0) == {f"mono/{_OTHER_PART}", needed}


def test_gc_keeps_scan_reports_of_a_plan(output):
    finished_output(output)
    ScanReport(1, 10, 0, ()).publish(storage.join(output, "tokenize-0a1b2c3d"), CORPUS)
    ScanReport(1, 10, 0, ()).publish(storage.join(output, "tokenize-0a1b2c3d"), "d0" * 32)
    assert {name for name in _garbage(output) if "/scans/" in name} == {
        "tokenize-0a1b2c3d/scans/unit-00001-d0d0d0d0d0d0.json"
    }


def test_gc_removes_rejected_rows_that_nothing_names(output):
    rejects, named = [Rejects(kind) for kind in ("topics", "docs", "pairs", "qrels")], []
    for each in rejects:
        each.add("file", [BadRow("file:1", "is bad")])
        named.append(each.publish(output, 0 if each.kind in ("docs", "pairs") else None))
    topics, docs, pairs, qrels = named
    replace(make_plan(output), rejects={"topics": Rejected(1, topics)}).publish()
    assert read_plan(output).rejects == {"topics": Rejected(1, topics)}
    finished = finished_output(output, mono_k=4)
    tokenized = finished.folder("tokenize-0a1b2c3d")
    ScanReport(0, 10, 1, (), rejects_file=docs).publish(tokenized.url, CORPUS)
    (digest, *_) = commit(make_plan(output), "retrieve", [])
    storage.remove(storage.join(output, "retrieve/receipts", f"00000-{digest[:12]}.json"))
    table = finished.folder("retrieve").read_part(finished.manifest("retrieve").receipts[0])
    finished.folder("retrieve").commit(
        0, digest, table, seconds=1, counts={}, bad_rows=1, rejects_file=pairs
    )
    assert {name for name in _garbage(output) if name.startswith("rejects/")} == {
        f"rejects/{qrels}"
    }
    assert verify_stages(output).findings == []
    storage.replace(storage.join(output, "rejects", docs), b"other")
    assert [each.file for each in verify_stages(output).findings] == [f"rejects/{docs}"]


def test_gc_stops_at_an_unreadable_plan_or_manifest(tmp_path):
    output = str(tmp_path / "out")
    with refuses(PreflightError, "no-output"):
        _garbage(output)
    finished_output(output)
    manifest = next((tmp_path / "out/mono").glob("manifest-*"))
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:-9])
    with pytest.raises(ReceiptError, match=manifest.name):
        _garbage(output)
    manifest.write_bytes(whole)
    (tmp_path / "out/plan-aaaaaaaaaaaa.json").write_text('{"shards_file": "t"')
    with pytest.raises(PreflightError, match=r"plan-a{12}"):
        _garbage(output)


@pytest.mark.parametrize("linked", ["mono", "mono/receipts", "rejects", "machines", "runs"])
def test_gc_leaves_a_linked_folder_and_keeps_what_is_named_behind_it(tmp_path, linked):
    """Behind the link is what gc would remove here: parts and receipts of another unfinished
    output, and files of killed runs.
    """
    output = str(tmp_path / "out")
    plan = finished_output(output)
    other = make_plan(str(tmp_path / "other"), mono_k=4)
    other.publish()
    for name in ("retrieve", "tokenize-0a1b2c3d"):
        seal_stage(other, name)
    commit(other, "mono", [0, 1], salt=1)
    for name in ("rejects", "machines", "runs", "mono", "mono/receipts"):
        _write(str(tmp_path / "other"), f"{name}/.x.{_KILLED}")
    expected = {name for name in _garbage(output) if not name.startswith(f"{linked}/")}
    own, theirs = tmp_path / "out" / linked, tmp_path / "other" / linked
    if own.exists():
        for path in [each for each in own.rglob("*") if each.is_file()]:
            path.rename(theirs / path.relative_to(own))
        shutil.rmtree(own)
    own.symlink_to(theirs)
    before = files_below(str(tmp_path / "other"))
    found = find_garbage(output, _later(2), _HOUR)
    assert {each.file for each in found} == expected
    remove_garbage(output, found)
    assert files_below(str(tmp_path / "other")) == before
    assert own.is_symlink()
    assert plan.gather("mono") is not None


def test_gc_leaves_links_to_files(tmp_path):
    output = str(tmp_path / "out")
    finished_output(output)
    expected = _garbage(output)
    (tmp_path / "elsewhere").write_bytes(b"mine")
    (tmp_path / "out/runs").mkdir()
    for name in (f"mono/{_OTHER_PART}", f"mono/.x.{_KILLED}", f"runs/.x.{_KILLED}"):
        (tmp_path / "out" / name).symlink_to(tmp_path / "elsewhere")
    assert _garbage(output) == expected


def test_gc_keeps_what_a_plan_of_another_engine_names(output):
    plan = finished_output(output)
    url = storage.join(output, plan.name)
    values = checked_values(storage.read_bytes(url))
    other = {"engine_version": 0, "files": [values["shards_file"]], "stages": [{"name": "mono"}]}
    shards = _write(output, "topics-bbbbbbbbbbbb.parquet")
    storage.replace(
        storage.join(output, "plan-aaaaaaaaaaaa.json"), checked_json(other | {"topics": [*shards]})
    )
    _write(output, f"gone/.part-00000-aaaaaaaaaaaa.parquet.{_KILLED}")
    assert (
        _garbage(output)
        & {*shards, values["shards_file"], f"gone/.part-00000-aaaaaaaaaaaa.parquet.{_KILLED}"}
        == set()
    )
