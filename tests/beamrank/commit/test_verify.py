"""`verify` finds every file that changed after it was written, and names it."""

import random
import re

import pyarrow as pa
import pytest

from beamrank.commit.check import Verification, verify_stages
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import part_bytes
from beamrank.commit.scans import ScanReport
from beamrank.errors import ConfigError, PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import checked_json, checked_values
from tests.support.outputs import (
    CORPUS,
    commit,
    files_below,
    finished_output,
    make_plan,
    seal_stage,
    shard_table,
)
from tests.support.progress import RecordedProgress
from tests.support.refusals import refuses


def verify(output: str) -> Verification:
    return verify_stages(output)


def _files(output: str) -> list[str]:
    return sorted(path.partition("/out/")[2] for path in files_below(output))


def _changed(found: Verification) -> set[str]:
    return {finding.file for finding in found.findings}


def test_verify_accepts_a_finished_run(output):
    finished_output(output)
    progress = RecordedProgress()
    found = verify_stages(output, progress)
    assert (found.findings, found.notes, found.stray) == ([], [], 0)
    assert found.files == len(_files(output)) == 3 + 3 * 7 + 2 + 1
    assert found.bytes == sum(
        storage.size_bytes(storage.join(output, name)) for name in _files(output)
    )
    assert progress.updates == [(done, 9, "parts") for done in range(1, 10)]


def test_verify_accepts_an_interrupted_run(output):
    plan = make_plan(output)
    plan.publish()
    seal_stage(plan, "retrieve")
    commit(plan, "tokenize-0a1b2c3d", [1])
    assert verify(output).findings == []


def test_verify_finds_corrupt_files(tmp_path):
    output = tmp_path / "out"
    finished_output(str(output))
    drawn = random.Random(11)
    for name in _files(str(output)):
        whole = (output / name).read_bytes()
        places = [drawn.randrange(len(whole)) for _ in range(2)]
        # The name of the digest that JSON carries of its own values.
        places += [whole.index(b'"check"') + 1] if name.endswith(".json") else []
        for place in places:
            broken = bytearray(whole)
            broken[place] ^= 1 << drawn.randrange(8)
            (output / name).write_bytes(broken)
            found = verify(str(output))
            assert name in _changed(found), (name, bytes(broken))
            assert all(finding.problem and finding.remedy for finding in found.findings)
        (output / name).write_bytes(whole)
    assert verify(str(output)).findings == []


@pytest.mark.parametrize("kind", ["part", "receipt"])
def test_verify_finds_a_missing_file(output, kind):
    plan = finished_output(output)
    receipt = plan.folder("mono").receipts(commit(plan, "mono", []))[1]
    name = receipt.part if kind == "part" else f"receipts/00001-{receipt.digest[:12]}.json"
    storage.remove(storage.join(output, "mono", name))
    (finding,) = verify(output).findings
    assert finding.file == f"mono/{name}"
    assert "is missing" in finding.problem
    assert finding.remedy.endswith("run again, which redoes only this shard")


@pytest.mark.parametrize(
    "change", [{"name": "query"}, {"type": pa.large_string()}, {"nullable": True}]
)
def test_verify_finds_a_part_with_other_columns(output, change):
    """Bytes that match their digest are still read."""
    plan = make_plan(output)
    plan.publish()
    digests = commit(plan, "retrieve", [])
    field = pa.field(**{"name": "query_id", "type": pa.string(), "nullable": False} | change)
    table = shard_table(plan, "retrieve", 0)
    table = table.set_column(0, field, table["query_id"].cast(field.type))
    plan.folder("retrieve").commit(0, digests[0], table, seconds=0, counts={})
    (finding,) = verify(output).findings
    assert finding.problem == "unexpected columns for stage retrieve"


def test_verify_accepts_a_shard_that_was_redone_after_sealing(output):
    """Its receipt has another time, and the seal still the first one."""
    plan = finished_output(output)
    digests = commit(plan, "mono", [])
    receipt = plan.folder("mono").receipts(digests)[0]
    storage.remove(plan.folder("mono").part_url(receipt))
    plan.folder("mono").valid_receipts(digests)
    again = plan.folder("mono").commit(
        0, digests[0], shard_table(plan, "mono", 0), seconds=9, counts={}
    )
    sealed = plan.seal("mono")
    assert sealed is not None
    assert (again.part, again.seconds) == (receipt.part, 9)
    assert sealed.receipts[0].seconds == 1.5
    assert verify(output).findings == []


def test_verify_counts_stray_files(output):
    plan = finished_output(output)
    storage.publish(
        storage.join(output, "mono", "part-00000-aaaaaaaaaaaa.parquet"),
        part_bytes(pa.table({"a": [1]})),
    )
    killed = ".part-00000-aaaaaaaaaaaa.parquet.01234567-0123456789ab.tmp"
    storage.publish(storage.join(output, "mono", killed), b"PAR")
    found = verify(output)
    assert (found.findings, found.stray) == ([], 2)
    assert plan.gather("mono") is not None


def test_verify_checks_all_plans_of_an_output(output):
    first = finished_output(output, mono_k=5)
    second = finished_output(output, mono_k=4)
    assert first.digest != second.digest
    assert verify(output).findings == []
    receipt = first.folder("mono").receipts(commit(first, "mono", []))[0]
    storage.replace(first.folder("mono").part_url(receipt), b"PAR1")
    assert _changed(verify(output)) == {f"mono/{receipt.part}"}
    storage.remove(first.folder("mono").part_url(receipt))
    # No run of the current plan writes it again.
    while findings := verify(output).findings:
        assert {finding.file for finding in findings} == {f"mono/{receipt.part}"}
        for name in re.findall(r"\S+\.json", findings[0].remedy):
            storage.remove(storage.join(output, "mono", name))


def test_verify_finds_a_report_of_another_corpus(output):
    finished_output(output)
    folder = storage.join(output, "tokenize-0a1b2c3d")
    names = [f"unit-00000-{digest[:12]}.json" for digest in (CORPUS, "d0" * 32)]
    ScanReport(0, 10, 0, ()).publish(folder, "d0" * 32)
    other, own = (storage.join(folder, "scans", name) for name in reversed(names))
    storage.replace(own, storage.read_bytes(other))
    assert _changed(verify(output)) == {f"tokenize-0a1b2c3d/scans/{names[0]}"}


def _another_engine(plan: Plan) -> None:
    url = storage.join(plan.output, f"plan-{plan.digest[:12]}.json")
    storage.replace(
        url, checked_json(checked_values(storage.read_bytes(url)) | {"engine_version": 0})
    )


def _no_current_plan(plan: Plan) -> None:
    storage.replace(
        storage.join(plan.output, "current-plan.json"), b'{"plan": "plan-000000000000.json"}'
    )


@pytest.mark.parametrize(
    ("change", "changed", "notes"),
    [(_another_engine, set(), 1), (_no_current_plan, {"current-plan.json"}, 0)],
)
def test_verify_reports_plans_that_cannot_be_checked(output, change, changed, notes):
    change(finished_output(output))
    found = verify(output)
    assert (_changed(found), len(found.notes)) == (changed, notes)


def test_verify_refuses_a_wrong_folder_or_a_password(tmp_path):
    with refuses(PreflightError, "no-output"):
        verify(str(tmp_path))
    with pytest.raises(ConfigError) as raised:
        verify("https://user:hidden@host/out")
    assert "hidden" not in str(raised.value)
