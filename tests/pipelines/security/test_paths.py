"""Names in documents never lead out of the folder that they belong to."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from beamrank.commit.check import verify_stages
from beamrank.commit.plan import Plan, load_plan
from beamrank.commit.receipts import Receipt
from beamrank.commit.scans import ScanReport
from beamrank.errors import PreflightError
from beamrank.storage.documents import checked_json, checked_values
from models.checkpoints.checkpoint import resolve_checkpoint
from tests.support.checkpoints import save_tiny
from tests.support.outputs import make_plan, retrieve_record

_LEADING_OUT = ("../../escaped", "/etc/passwd", "..", "a/../../b", ".hidden/x", "")


@pytest.mark.parametrize("name", _LEADING_OUT)
def test_plan_that_names_a_different_folder_is_refused(tmp_path, name):
    made = make_plan(str(tmp_path / "out"))
    plan = Plan("tag", made.output, made.shards, (replace(retrieve_record(), name=name),), {})
    plan.publish()
    with pytest.raises(ValueError, match=r"stages\.0\.name"):
        load_plan(plan.output, plan.name)
    assert any("stages.0.name" in each.problem for each in verify_stages(plan.output).findings)


@pytest.mark.parametrize("name", _LEADING_OUT)
def test_plan_that_names_a_file_elsewhere_is_refused(tmp_path, name):
    plan = make_plan(str(tmp_path / "out"))
    plan.publish()
    path = tmp_path / "out" / plan.name
    path.write_bytes(checked_json(checked_values(path.read_bytes()) | {"shards_file": name}))
    with pytest.raises(ValueError, match="shards_file"):
        load_plan(plan.output, plan.name)


@pytest.mark.parametrize("name", _LEADING_OUT)
def test_receipt_and_report_that_name_a_file_elsewhere_do_not_count(name):
    receipt = Receipt(0, "", "part-00000-0123456789ab.parquet", "", 0, 1, 0, 1.0)
    assert Receipt.from_json(receipt.to_json()) == receipt
    assert Receipt.from_json(replace(receipt, part=name).to_json()) is None
    if name:  # Without rows that were rejected there is no file.
        assert Receipt.from_json(replace(receipt, rejects_file=name).to_json()) is None
        assert ScanReport.from_json(ScanReport(0, 1, 0, (), rejects_file=name).to_json()) is None


@pytest.mark.parametrize("name", _LEADING_OUT[:-1])
@pytest.mark.parametrize("file", ["modules.json", "model.safetensors.index.json"])
def test_checkpoint_that_names_a_file_elsewhere_is_refused(tmp_path, file, name):
    folder = Path(save_tiny(tmp_path / "tiny"))
    if file == "modules.json":
        content: object = [{"type": "Transformer", "path": ""}, {"type": "Dense", "path": name}]
    else:
        content = {"weight_map": {"classifier.weight": name}}
        (folder / "model.safetensors").unlink()
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(PreflightError, match="pattern"):
        resolve_checkpoint(str(folder), "mono")
