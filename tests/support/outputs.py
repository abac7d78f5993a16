"""An output folder with a plan and its stages, as a run leaves them, without models."""

from collections.abc import Sequence

import pyarrow as pa

from beamrank.records import Topic
from beamrank.stages.listing import needed_prefix
from beamrank.stages.plan import Plan, StageSpec, cut_shards
from beamrank.stages.receipts import Manifest
from beamrank.stages.scan_reports import ScanReport
from beamrank.storage import files as storage
from beamrank.tables import schemas
from beamrank.tables.join import NeededDocs

CORPUS = "c0" * 32
SHARDS = 3


def make_plan(output: str, mono_k: int = 5) -> Plan:
    """A plan of three stages over six topics."""
    stages = (
        StageSpec("retrieve", "retrieve", {"k": 10}, (), {"index": "somewhere"}),
        StageSpec("tokenize-0a1b2c3d", "tokenize", {"corpus": CORPUS, "on_missing_doc": "error"}, ("retrieve",), {}),
        StageSpec("mono", "mono", {"k": mono_k}, ("tokenize-0a1b2c3d",), {"checkpoint": "x"}),
    )
    topics = [Topic(f"q{number}", f"text {number}") for number in range(6)]
    return Plan("tag", output, cut_shards(topics, SHARDS), stages, {"run_tag": "tag"})


def shard_table(plan: Plan, name: str, shard: int, salt: int = 0) -> pa.Table:
    """Rows of a stage's own schema."""
    query_ids = sorted(topic.query_id for topic in plan.shards[shard].topics)
    rows = len(query_ids)
    columns = {"query_id": query_ids, "doc_id": ["d1"] * rows, "rank": [1] * rows, "score": [float(salt)] * rows}
    columns |= {"segment": [0] * rows, "query_tokens": [[7, salt]] * rows, "doc_ids": [["d1"]] * rows}
    columns |= {"ranks": [[1]] * rows, "doc_tokens": [[[3, 4]]] * rows}
    schema = {"retrieve": schemas.CANDIDATES, "mono": schemas.MONO}.get(name, schemas.tokenized(1000))
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in schema}, schema=schema)


def commit(plan: Plan, name: str, shards: Sequence[int], salt: int = 0) -> tuple[str, ...]:
    """Commits some shards of a stage whose inputs are sealed; returns the digests of all."""
    stage = plan.stage(name)
    inputs = [manifest for manifest in map(plan.sealed, stage.inputs) if manifest is not None]
    digests = plan.shard_digests(stage, inputs)
    for shard in shards:
        table = shard_table(plan, name, shard, salt)
        plan.folder(name).commit(shard, digests[shard], table, seconds=1.5, counts={"rows": table.num_rows})
    return digests


def seal_stage(plan: Plan, name: str, salt: int = 0) -> Manifest:
    """Commits a stage whole and seals it."""
    commit(plan, name, range(SHARDS), salt)
    manifest = plan.sealed(name)
    assert manifest is not None
    return manifest


def finished_output(output: str, mono_k: int = 5) -> Plan:
    """All stages sealed; the scan's report is there, and the needed docs of the join as if they had not been swept."""
    plan = make_plan(output, mono_k)
    plan.publish()
    for stage in plan.stages:
        seal_stage(plan, stage.name)
    tokenized = storage.join(output, "tokenize-0a1b2c3d")
    ScanReport(0, 10, 0, ()).publish(tokenized, CORPUS)
    NeededDocs.collect([(0, ["d1", "d2"])]).publish(tokenized, needed_prefix(("a",)))
    return plan
