"""Shards and digests: what they depend on, and what they do not."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from beamrank.commit.plan import (
    ENGINE_VERSION,
    OLDEST_READ_VERSION,
    CurrentPlan,
    EngineVersionError,
    Plan,
    read_plan,
)
from beamrank.commit.receipts import Manifest
from beamrank.commit.shards import cut_rows, cut_shards
from beamrank.errors import PreflightError
from beamrank.formats.files import hash_files
from beamrank.records import Topic
from beamrank.storage import files as storage
from beamrank.storage.digested import DigestedFile
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


@pytest.mark.parametrize(
    ("waits_for", "same"), [("", [True, False, True]), ("retrieve", [False] * 3)]
)
def test_shard_digest_follows_its_own_input_or_all(waits_for: str, same: list[bool]) -> None:
    plan = make_plan("out")
    stage = dataclasses.replace(plan.stages[1], waits_for=waits_for)
    table = pa.table({"x": [1]})
    folder = make_plan("memory://test-plan-digest").folder("retrieve")
    receipts = tuple(
        folder.commit(n, f"{n}", table.slice(0, n and 1), seconds=0, counts={}) for n in range(3)
    )
    manifest = Manifest("retrieve", "d", receipts)
    digests = plan.shard_digests(stage, [manifest])
    changed = dataclasses.replace(receipts[1], part_sha256="0" * 64)
    others = plan.shard_digests(
        stage, [Manifest("retrieve", "d", (receipts[0], changed, receipts[2]))]
    )
    assert [one == other for one, other in zip(digests, others, strict=True)] == same


def test_changed_text_redoes_one_shard() -> None:
    """What docs/guide/troubleshooting.md states."""
    topics = [Topic(f"q{number}", f"text {number}") for number in range(400)]
    before = {shard.digest for shard in cut_shards(topics, None)}
    changed = {shard.digest for shard in cut_shards([Topic("q0", "other"), *topics[1:]], None)}
    grown = {
        shard.digest
        for shard in cut_shards([*topics, *(Topic(f"n{each}", "new") for each in range(5))], None)
    }
    assert len(before) == 25
    assert len(before - changed) == 1
    assert len(before - grown) >= 23


def test_plan_reads_back(tmp_path: Path) -> None:
    plan = make_plan(str(tmp_path))
    plan.publish()
    assert read_plan(str(tmp_path)) == plan
    assert plan.is_named_by(CurrentPlan(plan.name, plan.config_digest))
    assert not plan.is_named_by(CurrentPlan(plan.name, "other"))
    assert not plan.is_named_by(CurrentPlan("plan-0123456789ab.json", plan.config_digest))
    assert [stage.name for step in ("mono", "duo") for stage in plan.of_step(step)] == ["mono"]
    plan.check_engine()
    older = dataclasses.replace(plan, engine_version=3)
    with pytest.raises(EngineVersionError, match=rf"{tmp_path}/{older.name} .* 3 "):
        older.check_engine()
    assert (tmp_path / f"plan-{plan.digest[:12]}.json").is_file()


def test_plan_of_a_copied_output_names_the_files_beside_it(tmp_path: Path) -> None:
    """Also where shards are rows of files; what decides its parts stays."""
    output, copy = tmp_path / "a/out", tmp_path / "b/out"
    pairs = f"{tmp_path}/a/pairs.parquet"
    stage = dataclasses.replace(retrieve_record(), settings={"urls": [pairs, "/other/x", "x"]})
    plan = make_plan(
        str(output),
        shards=1,
        stages=(stage,),
        config={"output": str(output), "pairs": [pairs], "columns": {"doc": "passage"}},
    )
    plan = dataclasses.replace(plan, shards=cut_rows([(DigestedFile(pairs, "v", "s"), 9)], 5))
    plan.publish()
    assert read_plan(str(output)) == plan
    shutil.copytree(output, copy)
    found, moved = read_plan(str(copy)), f"{tmp_path}/b/pairs.parquet"
    assert found.config == {**plan.config, "output": str(copy), "pairs": [moved]}
    assert found.stages[0].settings == {"urls": [moved, "/other/x", "x"]}
    assert {row.rows.file.url for row in found.shards if row.rows} == {moved}
    assert (found.name, found.config_digest) == (plan.name, plan.config_digest)


def test_plan_tells_which_judgments_changed(tmp_path: Path) -> None:
    """Of a glob also what was added or removed; nothing before there are measures."""
    folder, output = tmp_path / "qrels", tmp_path / "out"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.txt").write_text(name)
    config = {"qrels": {"path": f"{folder}/*.txt"}}
    plan = make_plan(str(output), config=config, qrels=hash_files(f"{folder}/*.txt"))
    (folder / "a.txt").write_text("other")
    (folder / "b.txt").unlink()
    (folder / "d.txt").write_text("d")
    assert plan.changed_qrels() == []
    storage.publish(f"{output}/runs/measures.json", b"{}")
    told = [line.split()[2] for line in plan.changed_qrels()]
    assert told == [f"{folder}/{name}.txt" for name in ("a", "b", "d")]
    assert dataclasses.replace(plan, qrels={}).changed_qrels() == []
    shutil.rmtree(folder)
    assert plan.changed_qrels() == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("topics-*.parquet", r"\(topics-\w+\.parquet "),
        ("plan-*.json", r"\(plan-\w+\.json "),
        ({"shards_file": None}, "shards_file: "),
        ({"stages": [{"name": "mono"}]}, r"stages.0.type_name: "),
        *(({"shards": many}, f"{many} shards") for many in (2, 4, 10**12)),
        *(
            ({"engine_version": each}, f"version {each}")
            for each in (OLDEST_READ_VERSION - 1, ENGINE_VERSION + 1, "4")
        ),
        ({"run_tag": "tug", "check": "0" * 64}, "changed"),
    ],
)
def test_plan_that_cannot_be_read_is_an_error(tmp_path: Path, change: Any, reason: str) -> None:
    path = tmp_path / make_plan(str(tmp_path)).publish()
    if isinstance(change, str):
        next(tmp_path.glob(change)).unlink()
    else:
        values = checked_values(path.read_bytes()) | change
        path.write_bytes(json.dumps(values).encode() if "check" in change else checked_json(values))
    with pytest.raises(
        EngineVersionError if "engine_version" in change else PreflightError, match=reason
    ) as raised:
        read_plan(str(tmp_path))
    assert str(path) in str(raised.value)
