"""Docs longer than an input, through the whole run: no score of a doc is that of its head alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from beamrank.config.load import load_config
from beamrank.errors import PreflightError
from beamrank.formats.topics import read_topics
from beamrank.ranking.input_layout import InputLimits
from models.training.config import ChunksConfig
from models.training.data.groups import InputEncoder
from models.training.initial_model import Start, save_checkpoint
from models.training.tasks import score
from pipelines.plan.estimate import estimate
from tests.support.checkpoints import MINILM, save_tiny
from tests.support.oracle import Oracle, disagreements
from tests.support.runs import PlannedRun, read_trec, run_here
from tests.support.small_collection import SmallCollection

_LENGTH = 48
_LIMITS = InputLimits("original", 16, _LENGTH)
TOLERANCE = 1e-4


@pytest.fixture(scope="session")
def long_docs(corpus: dict[str, str]) -> dict[str, str]:
    """Four docs of some hundred words, two shorter ones, and one of no word."""
    texts = [corpus[doc_id] for doc_id in sorted(corpus)]
    long = {f"long{number}": " ".join(texts[number * 10 : number * 10 + 10]) for number in range(4)}
    return long | {"short0": "a stack of paths", "short1": texts[-1], "empty": "."}


@pytest.fixture(scope="session")
def given(tmp_path_factory, long_docs, topics, mono_checkpoint) -> Path:
    """A configuration with a given run, so that nothing needs Java."""
    some = dict(list(topics.items())[:3])
    collection = SmallCollection(tmp_path_factory.mktemp("long"), long_docs, some)
    collection.given_run({query_id: list(long_docs) for query_id in some}, k=len(long_docs))
    collection.keys["mono"] = {"checkpoint": mono_checkpoint, "k": len(long_docs)}
    collection.keys["input"] = {"max_query_length": 16, "max_length": _LENGTH}
    return collection.path


def _save_chunked(folder: Path, count: int) -> Any:
    """One layer of a real BERT that cuts a doc into chunks itself."""
    start = Start(str(MINILM), _LENGTH)
    torch.manual_seed(0)
    model = start.model("mono", 1, 0.0, False, ChunksConfig(count=count, pooling="max"))
    model.bert.encoder.layer = model.bert.encoder.layer[:1]
    model.config.num_hidden_layers = 1
    for weight in (model.bert.pooler.dense.weight, model.classifier.weight):
        torch.nn.init.normal_(weight, std=0.5)
    save_checkpoint(model, start.folder, str(folder), "float32")
    return start, model


def test_chunked_checkpoint_scores_whole_docs(
    given: Path, long_docs: dict[str, str], tmp_path: Path
) -> None:
    start, model = _save_chunked(tmp_path / "chunked", 16)
    found = run_here(given, tmp_path / "out", [f"mono.checkpoint={tmp_path / 'chunked'}"])
    plan = found.plan
    assert plan.of_step("tokenize")[0].keys["max_doc_tokens"] == 16 * _LENGTH
    manifest = plan.gather("mono")
    assert manifest is not None
    assert manifest.total("inferences") == 3 * len(long_docs)
    rows = found.rows("mono")
    assert {row["segment"] for row in rows} == {0}
    some = [row for row in rows if row["query_id"] == rows[0]["query_id"]]
    query = dict(read_topics(load_config(str(given)).topics))[rows[0]["query_id"]]
    encoder = InputEncoder(start.tokenizer, _LIMITS, 4096, 16)
    model.eval()
    with torch.inference_mode():
        wanted = score(model, encoder, [(query, long_docs[row["doc_id"]]) for row in some]).tolist()
    assert np.std(wanted) > 0.01
    assert [row["score"] for row in some] == pytest.approx(wanted, abs=2e-5)
    best = max(some, key=lambda row: row["score"])
    assert read_trec(tmp_path / "out/runs/mono.trec")[best["query_id"]][0] == best["doc_id"]


def test_inputs_of_more_than_512_tokens_are_scored(
    given: Path, long_docs: dict[str, str], tmp_path: Path
) -> None:
    checkpoint = save_tiny(tmp_path / "wide", None, max_position_embeddings=530)
    options = [f"mono.checkpoint={checkpoint}", "input.max_length=530", "dtype=float32"]
    run = run_here(given, tmp_path / "out", options)
    assert run.plan.of_step("tokenize")[0].keys["max_doc_tokens"] == 530
    stored = run.rows(run.plan.of_step("tokenize")[0].name)
    assert max(len(doc) for row in stored for doc in row["doc_tokens"]) == 530
    oracle = Oracle(checkpoint)
    wanted = {}
    for row in stored:
        query = row["query_tokens"][:14]
        for doc_id, doc in zip(row["doc_ids"], row["doc_tokens"], strict=True):
            wanted[row["query_id"], doc_id] = oracle.log_odds(
                query, doc[: 530 - (len(query) + 2) - 2]
            )
    found = {(row["query_id"], row["doc_id"]): row["score"] for row in run.rows("mono")}
    assert found == pytest.approx(wanted, abs=TOLERANCE)
    with pytest.raises(PreflightError, match=r"530 positions .*input\.max_length is 531"):
        run_here(given, tmp_path / "out", [*options, "input.max_length=531"])


_SEGMENTS = [
    "mono.segments.length_tokens=20",
    "mono.segments.stride_tokens=15",
    "mono.segments.limit=36",
]


def _by_hand(run: PlannedRun, checkpoint: str, limit: int) -> dict[tuple[str, str], list[float]]:
    """The log-odds of each segment, one unpadded input at a time, from the stored wordpieces."""
    oracle = Oracle(checkpoint)
    found = {}
    for row in run.rows(run.plan.of_step("tokenize")[0].name):
        for doc_id, doc in zip(row["doc_ids"], row["doc_tokens"], strict=True):
            cut = [doc[:20]]
            while len(cut) < limit and 15 * (len(cut) - 1) + 20 < len(doc):
                cut.append(doc[15 * len(cut) : 15 * len(cut) + 20])
            query = row["query_tokens"][:14]
            found[row["query_id"], doc_id] = [oracle.log_odds(query, segment) for segment in cut]
    return found


@pytest.mark.parametrize("pooling", ["max", "first", "mean"])
def test_segments_are_scored_and_pooled_as_by_hand(
    pooling, given, mono_checkpoint, long_docs, tmp_path
) -> None:
    run = run_here(given, tmp_path, [*_SEGMENTS, f"mono.segments.pooling={pooling}", "shards=2"])
    scored = _by_hand(run, mono_checkpoint, 1 if pooling == "first" else 36)
    assert max(map(len, scored.values())) == (1 if pooling == "first" else 36)
    stored = run.plan.of_step("tokenize")[0].keys["max_doc_tokens"]
    assert stored == (512 if pooling == "first" else 20 + 35 * 15)
    rows = run.rows("mono")
    found = {(row["query_id"], row["doc_id"], row["segment"]): row["score"] for row in rows}
    wanted = {
        (*key, segment): score
        for key, scores in scored.items()
        for segment, score in enumerate(scores)
    }
    assert len(rows) == len(wanted)
    assert found == pytest.approx(wanted, abs=TOLERANCE)
    pool: Any = {
        "max": max,
        "first": lambda each: each[0],
        "mean": lambda each: sum(each) / len(each),
    }[pooling]
    pooled = {key: pool(each) for key, each in scored.items()}
    orders = read_trec(tmp_path / "runs/mono.trec")
    assert len(orders) == 3
    for query_id, doc_ids in orders.items():
        assert set(doc_ids) == set(long_docs)
        assert (
            disagreements(
                doc_ids, {doc_id: pooled[query_id, doc_id] for doc_id in doc_ids}, 2 * TOLERANCE
            )
            == []
        )


def test_changed_pooling_redoes_only_duo(given: Path, duo_checkpoint: str, tmp_path: Path) -> None:
    duo = [*_SEGMENTS, f"duo.checkpoint={duo_checkpoint}", "duo.k=3", "shards=2"]
    first = run_here(given, tmp_path, [*duo, "mono.segments.pooling=max"])
    receipts = sorted(each.name for each in (tmp_path / "mono/receipts").iterdir())
    by_max = read_trec(tmp_path / "runs/mono.trec")
    second = run_here(given, tmp_path, [*duo, "mono.segments.pooling=mean"])
    assert sorted(each.name for each in (tmp_path / "mono/receipts").iterdir()) == receipts
    assert first.plan.digest != second.plan.digest
    by_mean = read_trec(tmp_path / "runs/mono.trec")
    assert by_mean != by_max
    for run, orders in ((first, by_max), (second, by_mean)):
        for row in run.rows("duo"):
            assert set(row["doc_ids"]) == set(orders[row["query_id"]][:3])


def test_plan_counts_segments(given: Path) -> None:
    found = estimate(load_config(str(given), _SEGMENTS))
    docs = 3 * 7
    mono = found.stages[-1]
    assert (mono.stage, mono.inferences) == ("mono", docs * 36)
    whole = estimate(load_config(str(given))).stages[-1]
    assert whole.inferences == docs


def test_segments_are_refused_for_a_chunked_checkpoint(given: Path, tmp_path: Path) -> None:
    _save_chunked(tmp_path / "chunked", 2)
    with pytest.raises(PreflightError, match="2 parts"):
        run_here(given, tmp_path / "out", [*_SEGMENTS, f"mono.checkpoint={tmp_path / 'chunked'}"])
