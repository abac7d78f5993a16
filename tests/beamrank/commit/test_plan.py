"""Shards and digests: what they depend on, and what they do not."""

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from beamrank.commit.plan import ENGINE_VERSION, OLDEST_READ_VERSION, CurrentPlan, EngineVersionError, Plan, read_plan
from beamrank.commit.receipts import Manifest
from beamrank.commit.shards import cut_shards
from beamrank.errors import PreflightError
from beamrank.records import Topic
from beamrank.storage import files as storage
from beamrank.storage.documents import checked_json, checked_values
from tests.support.outputs import retrieve_record, scoring_record

TOPICS = [Topic(f"q{number}", f"text {number}") for number in range(40)]


def make_plan(output: str, shards: int = 3, **changes: Any) -> Plan:
    stages = (retrieve_record(), scoring_record("mono", "retrieve"))
    plan = Plan("tag", output, cut_shards(TOPICS, shards), stages, {"run_tag": "tag"})
    return dataclasses.replace(plan, **changes)


def test_stage_digest_covers_only_what_decides_the_bytes() -> None:
    plan = make_plan("out")
    same = make_plan("elsewhere", run_tag="other", config={"measures": ["AP"]})
    assert plan.digest == same.digest
    assert plan.digest != make_plan("out", shards=4).digest
    deeper = dataclasses.replace(plan.stages[1], keys={"k": 6})
    assert plan.digest != make_plan("out", stages=(plan.stages[0], deeper)).digest


@pytest.mark.parametrize(("whole", "same"), [("", [True, False, True]), ("retrieve", [False] * 3)])
def test_shard_digest_follows_its_own_input_or_all(whole: str, same: list[bool]) -> None:
    plan = make_plan("out")
    stage = dataclasses.replace(plan.stages[1], whole=whole)
    table = pa.table({"x": [1]})
    folder = make_plan("memory://test-plan-digest").folder("retrieve")
    receipts = tuple(folder.commit(n, f"{n}", table.slice(0, n and 1), seconds=0, counts={}) for n in range(3))
    manifest = Manifest("retrieve", "d", receipts)
    digests = plan.shard_digests(stage, [manifest])
    changed = dataclasses.replace(receipts[1], part_sha256="0" * 64)
    others = plan.shard_digests(stage, [Manifest("retrieve", "d", (receipts[0], changed, receipts[2]))])
    assert [one == other for one, other in zip(digests, others, strict=True)] == same


def test_changed_text_redoes_one_shard() -> None:
    """What docs/guide/troubleshooting.md states."""
    topics = [Topic(f"q{number}", f"text {number}") for number in range(400)]
    before = {shard.digest for shard in cut_shards(topics, None)}
    changed = {shard.digest for shard in cut_shards([Topic("q0", "other"), *topics[1:]], None)}
    grown = {shard.digest for shard in cut_shards([*topics, *(Topic(f"n{each}", "new") for each in range(5))], None)}
    assert len(before) == 25
    assert len(before - changed) == 1
    assert len(before - grown) >= 23


def test_plan_reads_back(tmp_path: Path) -> None:
    plan = make_plan(str(tmp_path))
    plan.publish()
    assert read_plan(str(tmp_path)) == plan
    configs = (plan.config_digest, "", "other")
    assert [plan.is_named_by(CurrentPlan(plan.name, each)) for each in configs] == [True, True, False]
    assert not plan.is_named_by(CurrentPlan("plan-0123456789ab.json", plan.config_digest))
    assert [stage.name for step in ("mono", "duo") for stage in plan.of_step(step)] == ["mono"]
    plan.check_engine()
    older = dataclasses.replace(plan, engine_version=3)
    with pytest.raises(EngineVersionError, match=f"{tmp_path}/{older.name} was made by engine version 3"):
        older.check_engine()
    assert (tmp_path / f"plan-{plan.digest[:12]}.json").is_file()


def test_plan_without_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="holds no beamrank run"):
        read_plan(str(tmp_path))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("topics-*.parquet", r"cannot be read \(topics-.*\.parquet is missing\): run again to write it again"),
        ("plan-*.json", r"cannot be read \(plan-.*\.json is missing\): run again to write it again"),
    ],
)
def test_plan_with_a_missing_file_is_an_error(tmp_path: Path, broken: str, message: str) -> None:
    make_plan(str(tmp_path)).publish()
    next(tmp_path.glob(broken)).unlink()
    with pytest.raises(PreflightError, match=message):
        read_plan(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"shards_file": None}, "shards_file: Input should be a valid string"),
        ({"stages": [{"name": "mono"}]}, "stages.0.type_name: Field required"),
        ({"shards": 2}, "does not hold the topics of 2 shards"),
        ({"shards": 10**12}, "does not hold the topics of 1000000000000 shards"),
        ({"shards": 4}, "does not hold the topics of 4 shards"),
    ],
)
def test_plan_with_other_fields_is_an_error(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    name = make_plan(str(tmp_path)).publish()
    values = checked_values(storage.read_bytes(str(tmp_path / name)))
    storage.replace(str(tmp_path / name), checked_json(values | change))
    with pytest.raises(PreflightError, match=f"cannot be read .*({reason})"):
        read_plan(str(tmp_path))


def test_corrupt_plan_is_an_error(tmp_path: Path) -> None:
    name = make_plan(str(tmp_path)).publish()
    content = storage.read_bytes(str(tmp_path / name))
    storage.replace(str(tmp_path / name), content.replace(b'"run_tag": "tag"', b'"run_tag": "tug"'))
    with pytest.raises(PreflightError, match="it was changed after it was written"):
        read_plan(str(tmp_path))


@pytest.mark.parametrize("version", [OLDEST_READ_VERSION - 1, ENGINE_VERSION + 1, "4"])
def test_plan_of_an_engine_version_that_cannot_be_read_is_refused(tmp_path: Path, version: object) -> None:
    plan = make_plan(str(tmp_path))
    name = plan.publish()
    values = checked_values(storage.read_bytes(str(tmp_path / name)))
    storage.replace(str(tmp_path / name), checked_json(values | {"engine_version": version}))
    with pytest.raises(EngineVersionError, match=f"engine version {version}"):
        read_plan(str(tmp_path))
