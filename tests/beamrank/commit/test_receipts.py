"""The commit protocol: the first attempt wins, incomplete shards are never valid."""

import dataclasses
import json
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.commit import receipts as machines
from beamrank.commit.listing import RECEIPT, RECEIPTS, list_ranges, manifest_name
from beamrank.commit.receipts import Receipt, ShardDigests, StageFolder, part_bytes
from beamrank.errors import ReceiptError
from beamrank.machine import describe_machine
from beamrank.storage import files as storage
from beamrank.storage.documents import digest
from beamrank.storage.local_files import temporary_name
from tests.support.refusals import refuses
from tests.support.scored_outputs import ScoredOutput

DIGESTS = ("aa" * 32, "bb" * 32)


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> StageFolder:
    return StageFolder(
        str(tmp_path / "mono") if request.param == "local" else f"memory://{tmp_path.name}/mono"
    )


def commit(folder: StageFolder, shard: int, values: list[int]) -> Receipt:
    table = pa.table({"value": values})
    return folder.commit(shard, DIGESTS[shard], table, seconds=1.23456, counts={"tokens": 7})


def receipt_url(folder: StageFolder, shard: int) -> str:
    return storage.join(folder.url, RECEIPTS, RECEIPT.name(DIGESTS[shard], shard))


def test_committed_shard_reads_back(folder):
    receipt = commit(folder, 0, [1, 2, 3])
    assert folder.receipts(DIGESTS) == {0: receipt}
    assert folder.receipt(0, DIGESTS[0]) == receipt
    assert folder.read_part(receipt).to_pydict() == {"value": [1, 2, 3]}
    assert receipt.part == f"part-00000-{receipt.part_sha256[:12]}.parquet"
    assert folder.done(DIGESTS) == {0}
    told = {"bad_rows": 7, "examples": list("abcdefg"), "rejects_file": "docs-0123456789ab.parquet"}
    receipt = folder.commit(
        1, DIGESTS[1], pa.table({"value": [4, 5]}), seconds=1.23456, counts={"a": 1}, **told
    )
    values = {
        "shard": 1,
        "digest": DIGESTS[1],
        "rows": 2,
        "bad_rows": 7,
        "seconds": 1.235,
        "counts": {"a": 1},
    }
    values |= {"examples": tuple("abcde"), "rejects_file": told["rejects_file"]}
    assert {name: getattr(receipt, name) for name in values} == values
    assert receipt.part_bytes == storage.size_bytes(folder.part_url(receipt))


def test_sweep_removes_what_the_jobs_of_a_sealed_stage_leave(tmp_path):
    own, other, folder = digest(DIGESTS)[:12], "0" * 12, StageFolder(str(tmp_path))
    killed = temporary_name("x")
    kept = {
        f"tasks-{other}-{own}.parquet",
        f"needed-{other}-{other}-00000-{other}.bin",
        f".tasks-{own}-{own}.0.tmp",
    }
    swept = {f"tasks-{own}-{other}.parquet", f"needed-{own}-{other}-00000-{other}.bin", killed}
    for name in (*kept, *swept, f"scans/{killed}", f"{RECEIPTS}/{killed}"):
        storage.publish(storage.join(folder.url, name), b"x")
    folder.sweep(DIGESTS)
    (needed,) = tmp_path.glob("needed-*")
    assert list_ranges(folder.url, f"needed-{other}-{other}-") == {0: (str(needed), 1)}
    assert {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()
    } == kept


def test_first_commit_of_a_shard_wins(folder):
    first = commit(folder, 0, [1])
    assert commit(folder, 0, [2]) == first
    assert folder.receipts(DIGESTS) == {0: first}


def test_concurrent_commits_leave_one_result(tmp_path):
    folder = StageFolder(str(tmp_path))
    results: list[Receipt] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(commit(folder, 0, [n])))
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 16
    assert {result.part for result in results} == {folder.receipts(DIGESTS)[0].part}


def test_seal_needs_every_shard_and_is_idempotent(folder):
    commit(folder, 0, [1])
    assert folder.seal("mono", DIGESTS) is None
    commit(folder, 1, [2])
    sealed = folder.seal("mono", DIGESTS)
    assert sealed is not None
    assert sealed.total("tokens") == 14
    assert folder.seal("mono", DIGESTS) == sealed == folder.manifest(DIGESTS)
    assert folder.manifest(DIGESTS[::-1]) is None


def test_truncated_receipt_is_invalid_and_replaced(folder):
    receipt = commit(folder, 0, [1])
    storage.replace(receipt_url(folder, 0), receipt.to_json()[:40])
    assert folder.receipts(DIGESTS) == {}
    assert commit(folder, 0, [1]).part == receipt.part
    assert 0 in folder.receipts(DIGESTS)


def test_receipt_of_another_configuration_is_invalid(folder):
    receipt = commit(folder, 0, [1])
    other = json.loads(receipt.to_json()) | {"digest": DIGESTS[1]}
    storage.replace(receipt_url(folder, 0), json.dumps(other).encode())
    assert folder.receipts(DIGESTS) == {}
    assert folder.receipt(0, DIGESTS[0]) is None


@pytest.mark.parametrize("sealed_before", [False, True])
def test_receipt_or_manifest_without_its_part_is_invalid(folder, sealed_before):
    receipt = commit(folder, 0, [1])
    commit(folder, 1, [2])
    if sealed_before:
        assert folder.seal("mono", DIGESTS) is not None
    storage.remove(folder.part_url(receipt))
    assert set(folder.receipts(DIGESTS)) == {1}
    assert folder.seal("mono", DIGESTS) is None
    commit(folder, 0, [1])
    resealed = folder.seal("mono", DIGESTS)
    assert resealed is not None
    assert folder.read_part(resealed.receipts[0]).to_pydict() == {"value": [1]}


def test_read_part_finds_a_corrupt_or_missing_part(folder):
    receipt = commit(folder, 0, [1])
    content = bytearray(storage.read_bytes(folder.part_url(receipt)))
    content[len(content) // 2] ^= 1
    storage.replace(folder.part_url(receipt), bytes(content))
    with refuses(ReceiptError, "changed", file=receipt.part):
        folder.read_part(receipt)
    storage.remove(folder.part_url(receipt))
    with refuses(ReceiptError, "no-file", file=receipt.part):
        folder.read_part(receipt)


def test_equal_tables_have_equal_bytes():
    tables = [pa.table({"a": [1.5, float("nan")], "b": ["x", "y"]}) for _ in range(2)]
    assert part_bytes(tables[0]) == part_bytes(tables[1])


class _Between(StageFolder):
    """Lets another run commit a shard while this one looks at the folder."""

    def _read(self, shard_digests: ShardDigests) -> tuple[dict[int, Receipt], dict[str, str]]:
        found = super()._read(shard_digests)
        commit(StageFolder(self.url), 1, [2])
        return found


def test_discarded_receipt_is_logged_with_its_reason(folder, caplog):
    receipt = commit(folder, 0, [1])
    storage.remove(folder.part_url(receipt))
    commit(folder, 1, [2])
    storage.replace(receipt_url(folder, 1), b"{}")
    assert folder.valid_receipts(DIGESTS) == {}
    assert f"{receipt.part} is missing" in caplog.text
    assert "truncated or damaged" in caplog.text


def test_discard_broken_keeps_a_concurrent_commit(folder):
    receipt = commit(folder, 0, [1])
    storage.replace(receipt_url(folder, 0), receipt.to_json()[:40])
    _Between(folder.url).valid_receipts(DIGESTS)
    assert not storage.exists(receipt_url(folder, 0))
    assert set(folder.receipts(DIGESTS)) == {1}


@pytest.mark.parametrize("truncated", [True, False])
def test_corrupt_part_is_written_again(folder, truncated):
    """Of the right size it is found only without its receipt, when its name alone vouches for
    it.
    """
    receipt = commit(folder, 0, [1])
    storage.replace(folder.part_url(receipt), b"x" * (4 if truncated else receipt.part_bytes))
    if truncated:
        assert folder.receipts(DIGESTS) == {}
    else:
        storage.remove(receipt_url(folder, 0))
    assert folder.read_part(commit(folder, 0, [1])).to_pydict() == {"value": [1]}


def test_changed_manifest_is_sealed_again(folder):
    commit(folder, 0, [1])
    commit(folder, 1, [2])
    sealed = folder.seal("mono", DIGESTS)
    assert sealed is not None
    url = storage.join(folder.url, manifest_name(DIGESTS))
    storage.replace(
        url, storage.read_bytes(url).replace(sealed.receipts[0].part_sha256.encode(), b"0" * 64)
    )
    assert folder.manifest(DIGESTS) is None
    assert folder.seal("mono", DIGESTS) == sealed
    assert storage.read_bytes(url) == sealed.to_json()


def test_receipt_without_a_check_is_valid(folder):
    receipt = commit(folder, 0, [1])
    values = json.loads(receipt.to_json())
    del values["check"]
    storage.replace(receipt_url(folder, 0), json.dumps(values).encode())
    assert folder.receipts(DIGESTS) == {0: receipt}
    storage.replace(receipt_url(folder, 0), receipt.to_json().replace(b'"rows": 1', b'"rows": 3'))
    assert folder.receipts(DIGESTS) == {}


def test_receipts_name_the_machine_of_their_shards(tmp_path, monkeypatch):
    plan = ScoredOutput(tmp_path).run(1).plan
    another = dataclasses.replace(describe_machine(), processor="another")
    monkeypatch.setattr(machines, "describe_machine", lambda: another)
    ScoredOutput(tmp_path).run(2)
    found = {
        stage: {receipt.machine for receipt in plan.seal(stage).receipts}
        for stage in ("retrieve", "mono")
    }
    assert [machines.read_machine(plan.output, *names) for names in found.values()] == [
        describe_machine(),
        another,
    ]


def test_large_part_is_written_in_row_groups(monkeypatch):
    """As a part of texts may be; a row is never cut."""
    table = pa.table({"text": pa.array(["a" * 100, "b" * 100, "c" * 350], pa.large_string())})
    whole = pq.ParquetFile(pa.BufferReader(part_bytes(table)))
    monkeypatch.setattr(machines, "GROUP_BYTES", 300)
    cut = pq.ParquetFile(pa.BufferReader(part_bytes(table)))
    assert (whole.num_row_groups, cut.num_row_groups) == (1, 3)
    assert whole.read().equals(table)
    assert cut.read().equals(table)


def test_machine_that_was_damaged_or_deleted_is_unknown(tmp_path):
    name = machines.record_machine(str(tmp_path))
    path = tmp_path / "machines" / f"{name}.json"
    path.write_text(path.read_text().replace(describe_machine().python, "2.7.1"))
    assert machines.read_machine(str(tmp_path), name) is None
    path.unlink()
    assert machines.read_machine(str(tmp_path), name) is None
    # What a later process does.
    machines._publish_in_process.cache_clear()
    assert machines.record_machine(str(tmp_path)) == name
    assert machines.read_machine(str(tmp_path), name) == describe_machine()
    assert (
        machines.arithmetic_digest(describe_machine(), "torch")
        == digest(describe_machine().arithmetic("torch"))[:12]
    )


def test_receipt_that_names_a_path_as_its_machine_is_invalid():
    whole = Receipt(
        0, "", "part-00000-0123456789ab.parquet", "", 0, 1, 0, 1.0, {}, (), "0123456789ab"
    )
    assert Receipt.from_json(whole.to_json()) == whole
    assert Receipt.from_json(dataclasses.replace(whole, machine="../../secret").to_json()) is None
