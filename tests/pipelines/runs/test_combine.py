"""`combine`: a stage ranks by its scores mixed with those of the stage before, whoever reads it."""

import csv
import json
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import beamrank
from beamrank.errors import ConfigError, PreflightError
from tests.support.processes import refused, succeed
from tests.support.runs import (
    PlannedRun,
    assert_as_fresh,
    committed,
    read_trec,
    run_bytes,
    scored_and_reused,
)
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection

_SEGMENTS = {"length_tokens": 20, "stride_tokens": 10, "limit": 3, "pooling": "mean"}


@pytest.fixture
def collection(tmp_path) -> SmallCollection:
    """A given run with scores, mono over segments of six docs, duo, and qrels."""
    made = SmallCollection(tmp_path).given_run().with_models().with_qrels()
    made.keys["mono"]["segments"] = _SEGMENTS
    return made


def _mean(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Mono's score of each doc, pooled."""
    segments: dict[str, dict[str, list[float]]] = {query_id: {} for query_id in TOPICS}
    for row in sorted(rows, key=lambda row: row["segment"]):
        segments[row["query_id"]].setdefault(row["doc_id"], []).append(row["score"])
    return {
        query_id: {doc: float(np.float32(np.mean(each))) for doc, each in docs.items()}
        for query_id, docs in segments.items()
    }


def _loop(run: PlannedRun, weight: float, k: int) -> dict[str, list[str]]:
    """The papers' first k docs by mixed scores, then the others."""
    found = {}
    means = _mean(run.rows("mono"))
    for query_id, docs in CANDIDATES.items():
        head = docs[:k]
        own = np.array([means[query_id][doc] for doc in head])
        before = np.array([len(docs) + 10.0 - rank for rank in range(1, k + 1)])
        mixed = sum(
            share * (scores - scores.min()) / (scores.max() - scores.min())
            for share, scores in ((weight, own), (1 - weight, before))
        )
        order = np.argsort(-mixed, kind="stable")
        found[query_id] = [head[place] for place in order] + docs[k:]
    return found


def test_finished_run_is_combined_without_an_inference(collection, tmp_path):
    collection.keys.pop("duo")
    first = collection.run()
    by_mono, before = run_bytes(collection.output), committed(collection.output)
    collection.keys["mono"]["combine"] = {"with": "before", "weight": 0.4, "normalize": "minmax"}
    second = collection.run()
    assert second.plan.digest == first.plan.digest
    assert committed(collection.output) == before
    assert run_bytes(collection.output) != by_mono
    collection.run(output=tmp_path / "fresh")
    assert_as_fresh(collection.output, tmp_path / "fresh")
    assert read_trec(collection.output / "runs/mono.trec") == _loop(second, 0.4, 6)
    measures = json.loads((collection.output / "runs/measures.json").read_text())
    evaluated = beamrank.evaluate(
        str(collection.output / "runs/mono.trec"), str(tmp_path / "qrels.txt"), "RR@10"
    )
    assert measures["mono"]["RR@10"] == evaluated.means["RR@10"]
    succeed("verify", collection.output)
    collection.keys["mono"].pop("combine")
    collection.run()
    assert run_bytes(collection.output) == by_mono


def test_next_stage_receives_the_best_combined_docs_and_scores_only_new_pairs(collection, tmp_path):
    collection.run()
    mono = scored_and_reused(collection.output)["mono"]
    run = collection.run("mono.combine.weight=0.2")
    orders = read_trec(collection.output / "runs/mono.trec")
    for row in run.rows("duo"):
        assert row["doc_ids"] == orders[row["query_id"]][:3]
    counts = scored_and_reused(collection.output)
    assert counts["mono"] == mono
    assert counts["duo"][1] > 0
    collection.run("mono.combine.weight=0.2", output=tmp_path / "fresh")
    assert_as_fresh(collection.output, tmp_path / "fresh")
    said = succeed("plan", collection.path, "--set", "mono.combine.weight=0.3").stdout
    assert "mono.combine.weight 0.2 -> 0.3: duo is redone" in said
    for name in ("min", "binary"):
        succeed("aggregate", collection.output, "--aggregation", name)
        keys = ("mono.combine.weight=0.2", f"duo.aggregation={name}")
        collection.run(*keys, output=tmp_path / name)
        assert read_trec(collection.output / f"runs/duo-{name}.trec") == read_trec(
            tmp_path / f"{name}/runs/duo-{name}.trec"
        )


def test_depth_of_a_curve_is_a_run_with_that_k(collection, tmp_path):
    collection.keys["measures"] = ["RR@10", "AP"]
    collection.keys["mono"]["combine"] = {"weight": 0.6, "normalize": "zscore"}
    output = collection.run().plan.output
    succeed("report", output, "--output", tmp_path / "report", "--no-texts", "--trials", "1")
    with (tmp_path / "report/curves.csv").open() as file:
        points = {
            (int(row["k0"]), row["measure"]): float(row["value"])
            for row in csv.DictReader(file)
            if row["figure"] == "2"
        }
    assert {k for k, _ in points} == {*range(7)}
    for k in (1, 4):
        smaller = tmp_path / f"k{k}"
        collection.run(f"mono.k={k}", "duo=null", output=smaller)
        measures = json.loads((smaller / "runs/measures.json").read_text())["mono"]
        assert {name: points[k, name] for name in ("RR@10", "AP")} == pytest.approx(measures)


def test_rerank_in_memory_combines_too(collection):
    combine = {"with": "before", "weight": 0.3, "normalize": "none"}
    collection.keys["mono"]["combine"] = combine
    collection.run()
    mono = {"checkpoint": str(collection.folder / "mono"), "k": 6, "segments": _SEGMENTS}
    scores = {
        query_id: {doc: float(18 - rank) for rank, doc in enumerate(docs)}
        for query_id, docs in CANDIDATES.items()
    }
    options: Any = {"max_length": 64, "max_query_length": 16, "dtype": "float32", "device": "cpu"}
    options["kernel"] = "torch"
    found = beamrank.rerank(
        TOPICS, scores, DOCS, cascade=[{"mono": {**mono, "combine": combine}}], **options
    )
    beamrank.write_run(found["mono"], collection.folder / "mono.trec", tag="test")
    written = (collection.folder / "mono.trec").read_bytes()
    assert written == (collection.output / "runs/mono.trec").read_bytes()
    ranks = "".join(
        f"{query_id}\t{doc}\t{rank}\n"
        for query_id, docs in CANDIDATES.items()
        for rank, doc in enumerate(docs, 1)
    )
    (collection.folder / "ranks.tsv").write_text(ranks)
    with pytest.raises(ConfigError, match=r"mono\.combine.*ranks"):
        beamrank.rerank(
            TOPICS,
            collection.folder / "ranks.tsv",
            DOCS,
            cascade=[{"mono": {**mono, "combine": combine}}],
            **options,
        )


def test_inspect_and_metadata_show_both_scores(collection):
    collection.keys["mono"]["combine"] = {"weight": 0.4}
    run = collection.run()
    shown = json.loads(succeed("inspect", run.plan.output, "--query", "q1", "--json").stdout)
    means = _mean(run.rows("mono"))["q1"]
    found = {each["doc_id"]: each for each in shown["candidates"]}
    for doc, score in means.items():
        assert found[doc]["details"]["mono"] == {"own_score": score}
        assert 0 <= found[doc]["scores"]["mono"] <= 1
    text = succeed("inspect", run.plan.output, "--query", "q1").stdout
    assert f"own_score in mono: {means[CANDIDATES['q1'][0]]}" in text
    metadata = (collection.output / "runs/mono.trec.metadata.yaml").read_text()
    assert "normalize: minmax" in metadata
    succeed("audit", run.plan.output)


def test_calibrate_takes_the_own_scores(collection, tmp_path):
    run = collection.run("mono.combine.weight=0.1")
    means = _mean(run.rows("mono"))
    best = ((query, sorted(docs, key=docs.__getitem__)[3:]) for query, docs in means.items())
    collection.write("raw.txt", (f"{query} 0 {doc} 1" for query, docs in best for doc in docs))
    qrels, folder = tmp_path / "raw.txt", tmp_path / "found"
    succeed("calibrate", run.plan.output, "--qrels", qrels, "--output", folder)
    rows = pq.read_table(folder / "probabilities.parquet").to_pylist()
    assert {(row["query_id"], row["doc_id"]): row["score"] for row in rows} == {
        (query, doc): score for query, docs in means.items() for doc, score in docs.items()
    }
    assert json.loads((folder / "calibration.json").read_text())["relevant"] == 30


@pytest.mark.parametrize("row", ["{query}\t{doc}\t{rank}", "{query}\t{doc}\ta query\ta passage"])
def test_run_without_scores_is_not_combined(collection, row):
    rows = (
        row.format(query=query, doc=doc, rank=rank)
        for query, docs in CANDIDATES.items()
        for rank, doc in enumerate(docs, 1)
    )
    collection.write("ranks.tsv", rows)
    keys = ("candidates.run=ranks.tsv", "mono.combine.weight=0.5")
    with pytest.raises(ConfigError, match=r"mono\.combine: .*candidates.*scores"):
        collection.plan(*keys)
    collection.plan(keys[0])
    assert "mono.combine" in refused(
        "plan", collection.path, *(f"--set={key}" for key in keys), code=2
    )


def test_stage_after_duo_is_combined_with_its_scores(collection):
    mono, duo = collection.keys.pop("mono"), collection.keys.pop("duo")
    last = {"checkpoint": "./mono", "k": 2, "name": "last", "combine": {"weight": 0.0}}
    collection.keys["cascade"] = [{"mono": mono}, {"duo": duo}, {"mono": last}]
    collection.run()
    assert read_trec(collection.output / "runs/last.trec") == read_trec(
        collection.output / "runs/duo-sum.trec"
    )


def _name_weight(collection: SmallCollection, named: Any) -> None:
    path = collection.folder / "mono/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"beamrank": named}))


def test_weight_of_the_card_is_that_of_the_checkpoint(collection, tmp_path):
    _name_weight(collection, {"combine_weight": 0.25})
    collection.run("mono.combine.weight=card")
    collection.run("mono.combine.weight=0.25", output=tmp_path / "given")
    assert run_bytes(collection.output) == run_bytes(tmp_path / "given")


@pytest.mark.parametrize("named", [None, {}, [], {"combine_weight": "card"}, {"combine_weight": 2}])
def test_checkpoint_without_a_weight_is_refused(collection, named):
    _name_weight(collection, named)
    with pytest.raises(PreflightError, match=r"mono\.combine\.weight .*beamrank\.combine_weight"):
        collection.plan("mono.combine.weight=card")


def test_stage_that_goes_deeper_takes_no_combined_scores(collection):
    mono = collection.keys.pop("mono") | {"combine": {}}
    collection.keys.pop("duo")
    collection.keys["cascade"] = [{"mono": mono}, {"deeper": {"k": 9, "inferences": 80}}]
    with pytest.raises(ConfigError, match=r"deeper .*mono\.combine"):
        collection.plan()


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("mono.combine.weight", "1.5", "mono.combine.weight: "),
        ("mono.combine.weight", "-0.1", "mono.combine.weight: "),
        ("mono.combine.weight", "auto", "mono.combine.weight: "),
        ("mono.combine.weight", "true", "mono.combine: weight "),
        ("mono.combine.with", "first", "mono.combine.with: "),
        ("mono.combine.normalize", "l2", "mono.combine.normalize: "),
        ("mono.combine.wieght", "1", "mono.combine.wieght: .*weight"),
        ("mono.combine.source", "before", "mono.combine.source: .*with"),
        ("mono.combine", "0.5", "mono.combine: "),
        ("duo.combine.weight", "0.5", "duo.combine: "),
    ],
)
def test_wrong_setting_is_named_by_its_key(collection, key, value, place):
    with pytest.raises(ConfigError, match=place):
        collection.plan(f"{key}={value}")
