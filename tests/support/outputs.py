"""An output folder with a plan and its stages, as a run leaves them, without models."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import pyarrow as pa

from beamrank.commit import schemas
from beamrank.commit.listing import needed_prefix
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest
from beamrank.commit.scans import ScanReport
from beamrank.commit.shards import cut_shards
from beamrank.commit.stage import StageRecord, described
from beamrank.join.doc_hashes import NeededList, cut_needed, write_needed
from beamrank.records import Topic
from beamrank.storage import files as storage
from beamrank.storage.documents import hashes64

CORPUS = "c0" * 32
SHARDS = 3


def files_below(folder: str) -> list[str]:
    """Every file below a folder, hidden ones too, sorted."""
    with storage.located(folder) as (filesystem, path):
        found = filesystem.find(path)
        return sorted(
            str(filesystem.unstrip_protocol(each)).removeprefix("file://") for each in found
        )


def retrieve_record(**keys: Any) -> StageRecord:
    """BM25 as a plan holds it."""
    settings = {"index": "somewhere"}
    return StageRecord(
        "bm25",
        "retrieve",
        "retrieve",
        described(schemas.CANDIDATES),
        (),
        True,
        keys or {"k": 10},
        settings,
        run_name="bm25",
    )


def tokenize_record() -> StageRecord:
    """A stage that reads the corpus."""
    name = "tokenize-0a1b2c3d"
    keys = {"corpus_digest": CORPUS}
    schema = described(schemas.tokenized(1000))
    return StageRecord(
        "tokenize", name, "tokenize", schema, ("retrieve",), True, keys, corpus_digest=CORPUS
    )


def scoring_record(kind: Literal["mono", "duo"], *inputs: str, k: int = 5) -> StageRecord:
    """A stage with a model."""
    run_name = {"mono": "mono", "duo": "duo-sum"}[kind]
    docs = {"mono": 1, "duo": 2}[kind]
    schema = described({"mono": schemas.MONO, "duo": schemas.DUO}[kind])
    return StageRecord(
        kind, kind, kind, schema, inputs, keys={"k": k}, run_name=run_name, input_docs=docs
    )


def make_plan(output: str, mono_k: int = 5) -> Plan:
    """A plan of three stages over six topics."""
    stages = (
        retrieve_record(),
        tokenize_record(),
        scoring_record("mono", "tokenize-0a1b2c3d", k=mono_k),
    )
    topics = [Topic(f"q{number}", f"text {number}") for number in range(6)]
    return Plan("tag", output, cut_shards(topics, SHARDS), stages, {"run_tag": "tag"})


def shard_table(plan: Plan, name: str, shard: int, salt: int = 0) -> pa.Table:
    """Rows of a stage's own schema."""
    query_ids = sorted(topic.query_id for topic in plan.shards[shard].topics)
    rows = len(query_ids)
    columns = {
        "query_id": query_ids,
        "doc_id": ["d1"] * rows,
        "rank": [1] * rows,
        "score": [float(salt)] * rows,
    }
    columns |= {
        "segment": [0] * rows,
        "query_tokens": [[7, salt]] * rows,
        "doc_ids": [["d1"]] * rows,
    }
    columns |= {"ranks": [[1]] * rows, "doc_tokens": [[[3, 4]]] * rows}
    digest = bytes(16)
    columns |= {"query_digest": [digest] * rows, "doc_digests": [[digest]] * rows}
    columns |= {"doc_lengths": [[2]] * rows}
    schema = {"retrieve": schemas.CANDIDATES, "mono": schemas.MONO}.get(
        name, schemas.tokenized(1000)
    )
    return pa.table(
        {field.name: pa.array(columns[field.name], field.type) for field in schema}, schema=schema
    )


def commit(plan: Plan, name: str, shards: Sequence[int], salt: int = 0) -> tuple[str, ...]:
    """Commits some shards of a stage whose inputs are sealed; returns the digests of all."""
    stage = plan.stage(name)
    inputs = [manifest for manifest in map(plan.seal, stage.inputs) if manifest is not None]
    digests = plan.shard_digests(stage, inputs)
    for shard in shards:
        table = shard_table(plan, name, shard, salt)
        plan.folder(name).commit(
            shard, digests[shard], table, seconds=1.5, counts={"rows": table.num_rows}
        )
    return digests


def seal_stage(plan: Plan, name: str, salt: int = 0) -> Manifest:
    """Commits a stage whole and seals it."""
    commit(plan, name, range(SHARDS), salt)
    manifest = plan.seal(name)
    assert manifest is not None
    return manifest


def finished_output(output: str, mono_k: int = 5) -> Plan:
    """All stages sealed; the scan's report is there, and the needed docs of the join as if they had
    not been swept.
    """
    plan = make_plan(output, mono_k)
    plan.publish()
    for stage in plan.stages:
        seal_stage(plan, stage.name)
    tokenized = storage.join(output, "tokenize-0a1b2c3d")
    ScanReport(0, 10, 0, ()).publish(tokenized, CORPUS)
    list_docs([(0, ["d1", "d2"])], tokenized)
    return plan


def list_docs(
    needed: Iterable[tuple[int, Sequence[str]]], folder: str, ranges: int = 1
) -> NeededList:
    """Publishes the list of the docs that some shards need, by their ids."""
    entries = (
        each for shard, doc_ids in needed for each in cut_needed(shard, hashes64(doc_ids), ranges)
    )
    return write_needed(entries, ranges, folder, needed_prefix(("a",), ("b",)))
