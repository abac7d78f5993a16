"""Receipts name the machine that did their shard."""

import dataclasses

from beamrank.commit import receipts as machines
from beamrank.commit.receipts import Receipt
from beamrank.machine import describe_machine
from beamrank.storage.documents import digest
from tests.support.scored_outputs import ScoredOutput


def test_receipts_name_the_machine_of_their_shards(tmp_path, monkeypatch):
    plan = ScoredOutput(tmp_path).run(1).plan
    another = dataclasses.replace(describe_machine(), processor="another")
    monkeypatch.setattr(machines, "describe_machine", lambda: another)
    ScoredOutput(tmp_path).run(2)
    found = {stage: {receipt.machine for receipt in plan.sealed(stage).receipts} for stage in ("retrieve", "mono")}
    assert [machines.read_machine(plan.output, *names) for names in found.values()] == [describe_machine(), another]


def test_machine_that_was_damaged_or_deleted_is_unknown(tmp_path):
    name = machines.record_machine(str(tmp_path))
    path = tmp_path / "machines" / f"{name}.json"
    path.write_text(path.read_text().replace(describe_machine().python, "2.7.1"))
    assert machines.read_machine(str(tmp_path), name) is None
    path.unlink()
    assert machines.read_machine(str(tmp_path), name) is None
    # What a later process does.
    machines._publish_once.cache_clear()
    assert machines.record_machine(str(tmp_path)) == name
    assert machines.read_machine(str(tmp_path), name) == describe_machine()
    assert (
        machines.arithmetic_digest(describe_machine(), "torch") == digest(describe_machine().arithmetic("torch"))[:12]
    )


def test_receipt_that_names_a_path_as_its_machine_is_invalid():
    whole = Receipt(0, "", "part-00000-0123456789ab.parquet", "", 0, 1, 0, 1.0, {}, (), "0123456789ab")
    assert Receipt.from_json(whole.to_json()) == whole
    assert Receipt.from_json(dataclasses.replace(whole, machine="../../secret").to_json()) is None
