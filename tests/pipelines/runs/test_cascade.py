"""The Beam cascade against the papers' loop in memory, and a mono of another family against
transformers.
"""

import itertools
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from beamrank.commit.parts import sealed_stages
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.storage import files as storage
from pipelines.runs.aggregate import other_runs
from pipelines.runs.run_files import write_run_files
from tests.support.archives import unpack
from tests.support.checkpoints import Pair
from tests.support.corpora import read_cacm
from tests.support.models.families import SIZES, random_model
from tests.support.models.tokenizers import save_tokenizer
from tests.support.oracle import TextOracle, assert_parity, cascade, disagreements, sigmoid
from tests.support.runs import PlannedRun, read_trec, run_here
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection
from tests.support.tiers import slow_but

K0, K1, HITS = 6, 4, 10
TOLERANCE = 1e-4


def car_collection(folder: Path, target: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The paragraphs of TREC CAR test200, and its sections as topics."""
    unpack(folder / "trec_car_test200.tar.gz", target)
    sample = target / "trec_car_test200"
    corpus = CorpusConfig(path=str(sample / "train.test200.cbor.paragraphs"), format="car")
    docs = {
        doc_id: text
        for unit in list_units(corpus)
        for batch in read_unit(unit)
        for doc_id, text in zip(batch.doc_ids, batch.texts, strict=True)
    }
    qrels = (sample / "train.test200.cbor.hierarchical.qrels").read_text()
    query_ids = sorted({line.split()[0] for line in qrels.splitlines()})
    (target / "car.topics").write_text("".join(f"{query_id}\n" for query_id in query_ids))
    topics = read_topics(TopicsConfig(path=str(target / "car.topics"), format="car"))
    return docs, dict(topics)


def _assert_equals_the_papers_loop(
    run: PlannedRun, topics: dict[str, str], corpus: dict[str, str], oracle: TextOracle
) -> int:
    """Every query's log-odds and orders are those of the loop; returns how many pairs and triples
    were compared.
    """
    bm25, mono, duo = (
        read_trec(Path(run.plan.output) / f"runs/{name}.trec")
        for name in ("bm25", "mono", "duo-sum")
    )
    mono_scores, duo_scores = _mono_log_odds(run), _duo_log_odds(run)
    compared = 0
    for query_id, text in topics.items():
        candidates = bm25.get(query_id, [])
        pairs, triples = cascade(text, candidates, corpus, oracle, K0, K1)
        ranked, final = mono.get(query_id, []), duo.get(query_id, [])
        head, tail = ranked[: len(pairs)], ranked[len(pairs) :]
        assert {key: mono_scores[query_id, *key] for key in pairs} == pytest.approx(
            pairs, abs=TOLERANCE
        )
        assert (set(head), tail) == ({doc_id for (doc_id,) in pairs}, candidates[K0:])
        assert disagreements(head, {doc_id: pairs[doc_id,] for doc_id in head}, 2 * TOLERANCE) == []
        admitted = head[:K1]
        assert set(admitted) == {first for first, _ in triples} or len(admitted) < 2
        assert {key: duo_scores[query_id, *key] for key in triples} == pytest.approx(
            triples, abs=TOLERANCE
        )
        total = dict.fromkeys(admitted, 0.0)
        for (first, _), z in triples.items():
            total[first] += sigmoid(z)
        assert (set(final[: len(admitted)]), final[len(admitted) :]) == (
            set(admitted),
            ranked[len(admitted) :],
        )
        assert disagreements(final[: len(admitted)], total, 2 * TOLERANCE * K1) == []
        compared += len(pairs) + len(triples)
    return compared


def _mono_log_odds(run: PlannedRun) -> dict[tuple[str, ...], float]:
    return {(row["query_id"], row["doc_id"]): row["score"] for row in run.rows("mono")}


def _duo_log_odds(run: PlannedRun) -> dict[tuple[str, ...], float]:
    return {
        (row["query_id"], first, second): score
        for row in run.rows("duo")
        for (first, second), score in zip(
            product(row["doc_ids"], repeat=2), row["scores"], strict=True
        )
    }


_DEPTHS = [f"bm25.k={HITS}", f"mono.k={K0}", f"duo.k={K1}"]


@pytest.mark.data
@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.parametrize("collection", ["cacm", "car"])
def test_cascade_equals_the_papers_loop(
    collection: str, shared_data: Path, tmp_path: Path, checkpoints: Pair
) -> None:
    if collection == "cacm":
        corpus = read_cacm(shared_data)
        topics = dict(
            read_topics(TopicsConfig(path=str(shared_data / "cacm/topics.cacm.txt"), format="trec"))
        )
    else:
        corpus, topics = car_collection(shared_data, tmp_path)
        topics = dict(list(topics.items())[::31])
    run = (
        SmallCollection(tmp_path, corpus, topics)
        .with_index()
        .with_models(checkpoints)
        .run(*_DEPTHS)
    )
    assert _assert_equals_the_papers_loop(run, topics, corpus, TextOracle(*checkpoints)) > 500


@pytest.mark.jvm
def test_cascade_equals_the_papers_loop_on_the_demo(
    config_path, tmp_path, corpus, topics, checkpoints
) -> None:
    run = run_here(config_path, tmp_path, _DEPTHS)
    assert _assert_equals_the_papers_loop(run, topics, corpus, TextOracle(*checkpoints)) > 50


@pytest.mark.jvm
@pytest.mark.parametrize("rule", slow_but(["paper"], ["original", "paper"]))
def test_truncation_rule_is_in_plan_and_parts(config_path: Path, tmp_path: Path, rule: str) -> None:
    plan, _ = run_here(config_path, tmp_path, [f"input.truncation={rule}", "mono.k=1", "duo.k=1"])
    for name in ("mono", "duo"):
        manifest = plan.gather(name)
        assert manifest is not None
        assert plan.stage(name).keys["truncation"] == rule
        assert (
            plan.folder(name).read_part(manifest.receipts[0]).schema.metadata[b"truncation"]
            == rule.encode()
        )
        assert {"truncated_queries", "truncated_docs"} <= manifest.receipts[0].counts.keys()


@pytest.mark.slow
@pytest.mark.jvm
def test_aggregate_with_a_smaller_k1_equals_its_run(config_path: Path, tmp_path: Path) -> None:
    plan, _ = run_here(config_path, tmp_path / "three")
    run_here(config_path, tmp_path / "two", ["duo.k=2"])
    plan, config, stages, files = other_runs(plan.output, ["sum"], 2, None, None)
    (written,) = write_run_files(plan, config, files, stages, sealed_stages(plan)).values()
    assert storage.name(written) == "duo-sum-k2.trec"
    # Batches differ, and with them the last bits of the scores.
    assert read_trec(Path(written)) == read_trec(tmp_path / "two/runs/duo-sum.trec")


_MAX_LENGTH = 64
_FAMILIES: dict[str, dict[str, Any]] = {
    "xlm-roberta": {"max_position_embeddings": 70, "type_vocab_size": 1, "num_labels": 1},
    "deberta-v2": {
        "max_position_embeddings": 70,
        "type_vocab_size": 0,
        "relative_attention": True,
        "num_labels": 1,
    },
    "modernbert": {
        "max_position_embeddings": 70,
        "local_attention": 16,
        "classifier_pooling": "mean",
        "num_labels": 2,
    },
}


def _save(family: str, folder: Path) -> None:
    folder.mkdir()
    save_tokenizer(family, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    sizes = {**SIZES, "vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    sizes |= {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("cls", "sep")}
    random_model(family, **sizes, **_FAMILIES[family]).save_pretrained(folder)


def _wanted(folder: Path) -> dict[tuple[str, str], float]:
    """The log-odds of every candidate, one input at a time."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    scores = {}
    for query_id, candidates in CANDIDATES.items():
        for doc_id in candidates:
            settings: dict[str, Any] = {
                "truncation": True,
                "max_length": _MAX_LENGTH,
                "padding": False,
            }
            ids = tokenizer(TOPICS[query_id], DOCS[doc_id], **settings)["input_ids"]
            with torch.inference_mode():
                logits = model(input_ids=torch.tensor([ids])).logits[0]
            scores[query_id, doc_id] = float(logits[-1] - (logits[0] if len(logits) == 2 else 0))
    return scores


@pytest.mark.parametrize("family", slow_but(("modernbert",), _FAMILIES))
def test_run_ranks_as_transformers(family, tmp_path):
    _save(family, tmp_path / "mono")
    collection = SmallCollection(tmp_path).given_run()
    collection.keys["mono"] = {"checkpoint": "./mono", "k": 9}
    collection.keys["input"] = {
        "max_length": _MAX_LENGTH,
        "max_query_length": 32,
        "truncation": "hf",
    }
    rows, wanted = collection.run().rows("mono"), _wanted(tmp_path / "mono")
    found = {(row["query_id"], row["doc_id"]): row["score"] for row in rows}
    assert found.keys() == wanted.keys()
    assert torch.tensor(list(wanted.values())).std() > 0.1
    assert_parity([found[key] for key in wanted], list(wanted.values()))
    for query_id, ranked in read_trec(collection.output / "runs/mono.trec").items():
        scores = [wanted[query_id, doc_id] for doc_id in ranked]
        assert all(below - above < 2e-4 for above, below in itertools.pairwise(scores))
