"""Stages of encoders keep all that a run promises."""

import json
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import sentence_transformers

import beamrank
from beamrank.commit.plan import read_plan
from beamrank.errors import PreflightError
from contrib.encoders.checkpoint import CLASSES
from models.stages.core import open_stages
from pipelines.plan.estimate import estimate
from tests.contrib.encoders.tiny import SAVE
from tests.support.processes import (
    beamrank_here,
    receipts_exist,
    started,
    succeed,
    wait_until,
)
from tests.support.runs import PlannedRun, assert_same_bytes, read_trec, run_bytes, run_here
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection

_DEPTHS = {"late": 8, "dense": 7, "sparse": 5}


def _collection(folder: Path) -> SmallCollection:
    """A given run, then an encoder of each kind."""
    for stage, save in SAVE.items():
        save(folder / stage)
    made = SmallCollection(folder).given_run().with_qrels()
    made.keys["cascade"] = [
        {stage: {"checkpoint": f"./{stage}", "k": k}} for stage, k in _DEPTHS.items()
    ]
    return made


@pytest.fixture(scope="module")
def collection(tmp_path_factory) -> SmallCollection:
    return _collection(tmp_path_factory.mktemp("encoders"))


@pytest.fixture(scope="module")
def whole(collection) -> PlannedRun:
    """A run that nothing disturbed."""
    return run_here(collection.path)


def _output(run: PlannedRun) -> Path:
    return Path(run.plan.output)


def _counts(output: Path, stage: str) -> Mapping[str, int]:
    manifest = read_plan(str(output)).seal(stage)
    assert manifest is not None
    names = ("candidates", "inferences", "reused", "scored_queries", "scored_docs")
    return {name: manifest.total(name) for name in names}


def test_rankings_are_those_of_a_plain_loop(collection, whole):
    before = CANDIDATES
    for stage, k in _DEPTHS.items():
        folder = str(collection.folder / stage)
        model = getattr(sentence_transformers, CLASSES[stage])(folder, device="cpu")
        tensors = {} if stage == "late" else {"convert_to_tensor": True}
        rows = {(row["query_id"], row["doc_id"]): row for row in whole.rows(stage)}
        found = read_trec(_output(whole) / f"runs/{stage}.trec")
        ranked = {}
        for query_id, doc_ids in before.items():
            head = doc_ids[:k]
            queries = model.encode_query([TOPICS[query_id]], **tensors)
            docs = model.encode_document([DOCS[doc_id] for doc_id in head], **tensors)
            (scores,) = model.similarity(queries, docs).numpy()
            order = np.argsort(-scores, kind="stable")
            ranked[query_id] = [*(head[place] for place in order), *doc_ids[k:]]
            for rank, (doc_id, score) in enumerate(zip(head, scores, strict=True), 1):
                row = rows[query_id, doc_id]
                assert (row["rank"], row["segment"]) == (rank, 0)
                np.testing.assert_allclose(row["score"], score, rtol=1e-6, atol=1e-5)
        assert len(rows) == 10 * k
        assert found == ranked
        before = ranked


def test_plan_counts_candidates_and_receipts_what_was_encoded(collection, whole):
    counted = {stage.stage: stage.inferences for stage in estimate(collection.config).stages}
    assert counted == {"retrieve": 0, "texts": 0} | {name: 10 * k for name, k in _DEPTHS.items()}
    topics = whole.plan.shards
    for stage, k in _DEPTHS.items():
        counts = _counts(_output(whole), stage)
        rows = whole.rows(stage)
        shard_of = {
            query_id: shard
            for shard in range(len(topics))
            for query_id in topics.rows_of(shard)["query_id"].to_pylist()
        }
        docs = {(shard_of[row["query_id"]], row["doc_id"]) for row in rows}
        assert counts == {
            "candidates": 10 * k,
            "inferences": 10 * k,
            "reused": 0,
            "scored_queries": 10,
            "scored_docs": len(docs),
        }
        assert len(docs) < 10 * k


def test_run_is_the_same_resumed_by_shares_for_any_shards_and_in_memory(
    collection, whole, tmp_path
):
    resumed = _output(run_here(collection.path, tmp_path / "resumed"))
    for stage in _DEPTHS:
        (manifest,) = (resumed / stage).glob("manifest-*.json")
        manifest.unlink()
        sorted((resumed / stage / "receipts").iterdir())[1].unlink()
    run_here(collection.path, resumed)
    assert_same_bytes(resumed, _output(whole))
    for number in range(2):
        share = ("--only", f"{number}/2", "--output", tmp_path / "only")
        done = beamrank_here("run", collection.path, *share)
        assert done.returncode == 0, done.stderr
    assert_same_bytes(tmp_path / "only", _output(whole))
    other = _output(run_here(collection.path, tmp_path / "seven", ["shards=7", "threads=3"]))
    assert run_bytes(other) == run_bytes(_output(whole))
    found = beamrank.rerank(
        TOPICS,
        {
            query: {doc: -float(at) for at, doc in enumerate(docs)}
            for query, docs in CANDIDATES.items()
        },
        DOCS,
        cascade=[
            {stage: {"checkpoint": str(collection.folder / stage), "k": k}}
            for stage, k in _DEPTHS.items()
        ],
    )
    for stage, run in found.items():
        rankings = {query: list(docs) for query, docs in run.items()}
        assert rankings == read_trec(_output(whole) / f"runs/{stage}.trec")


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["local", "embed"])
def test_run_is_the_same_on_engines_of_beam(collection, whole, tmp_path, runner):
    made = beamrank.run(str(collection.path), runner=runner, output=tmp_path / runner)
    assert_same_bytes(Path(made.output), _output(whole))


@pytest.mark.slow
@pytest.mark.parametrize("stage", [*_DEPTHS])
def test_run_resumes_after_a_kill(collection, whole, tmp_path, stage):
    with started(collection.path, tmp_path / "killed", "--only", "0/1") as process:
        wait_until(receipts_exist(stage, 1), tmp_path / "killed", process)
        process.kill()
        process.wait()
    assert beamrank_here("status", tmp_path / "killed").returncode == 0
    run_here(collection.path, tmp_path / "killed")
    assert_same_bytes(tmp_path / "killed", _output(whole))


@pytest.mark.slow
def test_run_is_verified_audited_reported_and_inspected(collection, whole, tmp_path):
    output = _output(whole)
    assert beamrank_here("verify", output).returncode == 0
    audited = json.loads(succeed("audit", output, "--json").stdout)
    assert [stage["stage"] for stage in audited["stages"]] == [*_DEPTHS]
    assert audited["wrong"] == []
    succeed("report", output, "--output", tmp_path / "report")
    curves = (tmp_path / "report/curves.csv").read_text()
    for stage, k in _DEPTHS.items():
        assert f"2,{stage},{k}," in curves
    assert "dense" in succeed("inspect", output, "--query", "q0").stdout


def test_scores_of_earlier_runs_are_reused_by_content(collection, whole, tmp_path):
    # More docs, and docs and topics in other places: only new texts are encoded.
    changed = ["late.k=9", "dense.k=8", "shards=3"]
    fresh = _output(run_here(collection.path, tmp_path / "fresh", changed))
    reusing = [*changed, f"reuse=[{_output(whole)}]"]
    reused = _output(run_here(collection.path, tmp_path / "reused", reusing))
    assert_same_bytes(reused, fresh)
    late = _counts(reused, "late")
    assert (late["candidates"], late["inferences"], late["reused"]) == (90, 10, 80)
    assert late["scored_docs"] <= late["inferences"]
    planned = read_plan(str(reused))
    (stage,) = (each for each in open_stages(planned.stages) if each.name == "late")
    assert stage.reuses
    assert _counts(reused, "dense")["reused"] > 0


def test_scores_are_combined_with_those_before_by_the_weight_of_the_card(tmp_path):
    made = _collection(tmp_path)
    config = made.folder / "late/config.json"
    config.write_text(
        json.dumps(json.loads(config.read_text()) | {"beamrank": {"combine_weight": 0.25}})
    )
    combine = {"with": "before", "weight": "card", "normalize": "none"}
    made.keys["cascade"] = [{"late": {"checkpoint": "./late", "k": 8, "combine": combine}}]
    run = run_here(made.path)
    own = {(row["query_id"], row["doc_id"]): row["score"] for row in run.rows("late")}
    found = read_trec(_output(run) / "runs/late.trec")
    for query_id, doc_ids in CANDIDATES.items():
        given = {doc_id: len(doc_ids) - place for place, doc_id in enumerate(doc_ids)}
        mixed = {
            doc_id: 0.25 * own[query_id, doc_id] + 0.75 * given[doc_id] for doc_id in doc_ids[:8]
        }
        assert found[query_id] == [*sorted(mixed, key=lambda doc: -mixed[doc]), *doc_ids[8:]]


def test_docs_that_the_corpus_lacks_are_left_out(tmp_path):
    made = _collection(tmp_path)
    made.keys |= {"on_missing_doc": "drop", "cascade": made.keys["cascade"][1:2]}
    kept = {doc_id: text for doc_id, text in DOCS.items() if doc_id not in ("d1", "d12")}
    made.write(
        "corpus.jsonl", (json.dumps({"id": doc_id, "contents": kept[doc_id]}) for doc_id in kept)
    )
    rows = run_here(made.path).rows("dense")
    wanted = {
        (query_id, doc_id)
        for query_id, doc_ids in CANDIDATES.items()
        for doc_id in doc_ids[:7]
        if doc_id in kept
    }
    assert {(row["query_id"], row["doc_id"]) for row in rows} == wanted
    assert len(wanted) < 70


def test_worker_refuses_another_checkpoint_or_other_libraries(tmp_path):
    made = _collection(tmp_path)
    made.keys["cascade"] = made.keys["cascade"][1:2]
    stage = pickle.loads(pickle.dumps(open_stages(made.plan().plan.stages)[-1]))
    assert stage.resolved().digest == stage.checkpoint_digest
    other = type(stage)(**{**vars(stage), "libraries": {"sentence-transformers": "6.0.0"}})
    with pytest.raises(PreflightError, match=r"sentence-transformers 6\.0\.0"):
        other.open()
    changed = type(stage)(**{**vars(stage), "checkpoint_digest": "0" * 64})
    with pytest.raises(PreflightError, match="changed since"):
        changed.resolved()


def test_stages_load_without_the_libraries_of_models():
    code = "import contrib.encoders.stages, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {
        "torch",
        "transformers",
        "sentence_transformers",
        "pyserini",
        "apache_beam",
    }
