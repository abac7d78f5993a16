"""Passages that are read in chunks: layout, pooling, training, and the same scores from the saved
checkpoint.
"""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from beamrank.errors import ConfigError, PreflightError
from beamrank.notes import SILENT
from beamrank.ranking.input_layout import InputLimits, PackedInputs, cut_docs, mono_kept
from beamrank.records import SpecialTokens
from contrib.papers.chunked_training import ChunkedBert
from models.architectures.families import ARCHITECTURES
from models.checkpoints.checkpoint import resolve_checkpoint
from models.scoring.engine import ScoringEngine
from models.training.config import ChunksConfig
from models.training.data.groups import Group
from models.training.initial_model import save_checkpoint
from models.training.tasks import MonoTask
from models.training.trainer import train
from tests.support.changed_files import edit_json
from tests.support.checkpoints import save_tiny
from tests.support.models.tables import score_mono, shard, template
from tests.support.progress import RecordedProgress
from tests.support.rankings import first_docs
from tests.support.tiers import slow_but
from tests.support.training import (
    COLOURS,
    LIMITS,
    THINGS,
    WORDS,
    Scorer,
    make_scorer,
    make_session,
    overfit,
    save_start,
    step_loss,
    stop_after,
    write_train_config,
)

_SPECIAL = SpecialTokens(WORDS.index("[CLS]"), WORDS.index("[SEP]"), WORDS.index("[PAD]"))
_TEMPLATE = template(2, _SPECIAL)
_POOLINGS = [ChunksConfig(count=3, attention_size=8), ChunksConfig(count=2, pooling="max")]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_start(tmp_path_factory.mktemp("start"))


def _scorer(start_folder: str, chunks: ChunksConfig, labels: int = 2) -> Scorer:
    return make_scorer(start_folder, "mono", labels, chunks=chunks)


def _ids(text: str) -> list[int]:
    return [WORDS.index(word) for word in text.split()]


def _by_hand(model: ChunkedBert, query: str, chunks: list[str]) -> float:
    """The log-odds, one unpadded chunk at a time, the pooling written out in numbers."""
    vectors = []
    for chunk in chunks:
        ids = [_SPECIAL.cls_id, *_ids(query), _SPECIAL.sep_id, *_ids(chunk), _SPECIAL.sep_id]
        types = [0] * (len(_ids(query)) + 2) + [1] * (len(_ids(chunk)) + 1)
        inputs = {"input_ids": torch.tensor([ids]), "token_type_ids": torch.tensor([types])}
        vectors.append(model.bert(**inputs).pooler_output[0].tolist())
    pooling = dict(model.chunk_pooling.named_parameters())
    if pooling:
        rows, biases = pooling["dense.weight"].tolist(), pooling["dense.bias"].tolist()
        context = pooling["context.weight"][0].tolist()
        raw = [
            sum(
                u * math.tanh(sum(w * h for w, h in zip(row, vector, strict=True)) + bias)
                for u, row, bias in zip(context, rows, biases, strict=True)
            )
            for vector in vectors
        ]
        total = sum(math.exp(each) for each in raw)
        vector = [
            sum(
                math.exp(each) / total * chunk[place]
                for each, chunk in zip(raw, vectors, strict=True)
            )
            for place in range(len(vectors[0]))
        ]
    else:
        vector = [max(values) for values in zip(*vectors, strict=True)]
    logits = model.classifier(torch.tensor(vector))
    found: list[float] = logits.tolist()
    return found[1] - found[0] if len(found) == 2 else found[0]


def test_chunks_share_the_last_segment_evenly():
    inputs = PackedInputs(
        np.arange(30, dtype=np.uint16),
        np.array([[0, 5], [2, 9]]),
        np.array([[3, 8], [2, 1]]),
        replace(_TEMPLATE, doc_parts=3),
    )
    chunks = cut_docs(inputs)
    assert chunks.starts.tolist() == [[0, 5], [0, 7], [0, 10], [2, 9], [2, 9], [2, 9]]
    assert chunks.kept.tolist() == [[3, 2], [3, 3], [3, 3], [2, 0], [2, 0], [2, 1]]


@pytest.mark.parametrize("rule", ["original", "paper", "hf"])
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_chunk_follows_the_truncation_rule(rule, chunks):
    queries, docs = (each.ravel() for each in np.meshgrid([1, 12, 40], np.arange(0, 200)))
    limits = InputLimits(rule, 16, 48)
    in_parts = replace(_TEMPLATE, doc_parts=chunks)
    query_kept, doc_kept = mono_kept(in_parts, limits, queries, docs)
    starts = np.zeros((len(docs), 2), np.int64)
    laid_out = PackedInputs(
        np.zeros(300, np.uint16), starts, np.stack([query_kept, doc_kept], 1), in_parts
    )
    lengths = cut_docs(laid_out).lengths
    assert lengths.max() == (47 if rule == "original" else 48)
    assert (doc_kept[docs <= 15 * chunks] == docs[docs <= 15 * chunks]).all()
    longest = docs == 199
    one_query, one_doc = mono_kept(_TEMPLATE, limits, queries[longest], docs[longest])
    if rule != "hf":
        assert (query_kept[longest] == one_query).all()
        assert (doc_kept[longest] == chunks * one_doc).all()


@pytest.mark.parametrize("chunks", _POOLINGS)
@pytest.mark.parametrize("labels", [1, 2])
def test_chunked_checkpoint_scores_as_the_model_and_by_hand(chunks, labels, start, tmp_path):
    score = _scorer(start, chunks, labels)
    with torch.no_grad():
        for module in (score.model.chunk_pooling, score.model.bert.pooler, score.model.classifier):
            for parameter in module.parameters():
                parameter.normal_(std=1.0)
    docs = ["blue green red", "sky is the blue sea the milk", "red", " ".join(COLOURS * 9)]
    query = "what is the sky"
    save_checkpoint(score.model, start, str(tmp_path), "float32")
    engine = ScoringEngine(resolve_checkpoint(str(tmp_path), "mono"), "cpu", "float32", 1, 64)
    table = shard(
        [("q", _ids(query), {f"d{number}": _ids(doc) for number, doc in enumerate(docs)})], _SPECIAL
    )
    table, counts = score_mono(engine, table, first_docs(table, 10), LIMITS)
    room = (LIMITS.max_length - len(_ids(query)) - 4) * chunks.count
    by_hand = []
    for doc in docs:
        words = doc.split()[:room]
        borders = [len(words) * number // chunks.count for number in range(chunks.count + 1)]
        cut = [" ".join(words[first:last]) for first, last in itertools.pairwise(borders)]
        by_hand.append(_by_hand(score.model.eval(), query, cut))
    assert np.std(by_hand) > 0.3
    assert table["score"].to_pylist() == pytest.approx(by_hand, abs=2e-5)
    with torch.inference_mode():
        assert score([(query, doc) for doc in docs]).tolist() == pytest.approx(by_hand, abs=2e-5)
    assert counts.inferences == len(docs)
    assert counts.truncated_docs == 1
    loaded = ChunkedBert.from_pretrained(tmp_path)
    assert all(
        torch.equal(each, loaded.state_dict()[name])
        for name, each in score.model.state_dict().items()
    )


def test_chunked_checkpoint_is_refused_by_transformers_and_duo(start, tmp_path):
    save_checkpoint(_scorer(start, _POOLINGS[0]).model, start, str(tmp_path), "float32")
    with pytest.raises(ValueError, match="chunked_bert"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path)
    with pytest.raises(PreflightError, match="mono"):
        resolve_checkpoint(str(tmp_path), "duo")
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"pooling": "attention"', '"pooling": "mean"'))
    with pytest.raises(
        PreflightError,
        match=r"chunks\.pooling: .*'attention' or 'max'",
    ):
        resolve_checkpoint(str(tmp_path), "mono")


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "chunks",
    [[], {}, "x", -1, None, {"count": 10**9, "pooling": "max"}, {"count": 2, "pooling": []}],
)
def test_malformed_chunks_are_refused(tmp_path, chunks):
    path = Path(save_tiny(tmp_path), "config.json")
    values = {"model_type": "chunked_bert", "chunks": chunks}
    edit_json(path, **values)
    with pytest.raises(PreflightError, match="chunks"):
        resolve_checkpoint(str(tmp_path), "mono")


def _answers_in_the_second_half() -> list[Group]:
    groups = []
    for number, thing in enumerate(THINGS):
        docs = tuple(f"the milk is {COLOURS[(number + step) % len(COLOURS)]}" for step in range(2))
        groups.append(Group(f"what is {thing}", docs, (True, False), (3.0, 1.5)))
    return groups


@pytest.mark.parametrize(
    ("objective", "chunks"),
    slow_but(
        2,
        [
            ("pointwise", _POOLINGS[0]),
            ("bertlets", _POOLINGS[1]),
            ("bertlets", _POOLINGS[0]),
            ("bert_ce", _POOLINGS[1]),
            ("margin_mse", _POOLINGS[0]),
            ("listwise_kl", _POOLINGS[1]),
        ],
    ),
)
def test_chunked_training_overfits_twenty_pairs(objective, chunks, start):
    labels = 1 if objective in ("bertlets", "bert_ce") else 2
    groups = _answers_in_the_second_half()
    score = _scorer(start, chunks, labels)
    task = MonoTask(score.encoder, {objective: 1.0})
    assert step_loss(task, score.model, groups).item() > 0.05
    assert overfit(task, score.model, groups) < 0.01


@pytest.mark.slow
def test_chunked_training_measures_and_resumes(start, tmp_path):
    dev = {
        "topics": {"path": "topics.tsv", "format": "tsv"},
        "qrels": "qrels.txt",
        "run": "run.trec",
        "k": 6,
    }
    chunks = {"count": 2, "attention_size": 8}
    config = write_train_config(
        tmp_path, start, chunks=chunks, dev=dev, objective="bertlets", labels=1
    )
    train(make_session(config, "mono"), stop_after(8), SILENT, "")
    told = RecordedProgress()
    progress = train(
        make_session(config, "mono"), lambda: False, told, "beamrank train mono train.yaml"
    )
    assert progress.finished
    assert any("resuming after step 8" in line for line in told.notes)
    assert resolve_checkpoint(str(tmp_path / "out"), "mono").doc_parts == 2
    card = (tmp_path / "out/README.md").read_text()
    assert "A passage is split into 2 even chunks" in card
    assert "combined by attention pooling" in card
    with pytest.raises(ConfigError, match=r"chunks\.count: 2 .*3 "):
        make_session(config, "mono", ["chunks.count=3"])


@pytest.mark.parametrize(
    ("kind", "chunks", "message"),
    [
        ("duo", {"count": 2}, "mono"),
        ("mono", {"count": 1}, "chunks.count"),
        ("mono", {"count": 2, "pooling": "max", "attention_size": 8}, "`max`"),
        ("mono", {"count": 2, "pooling": "mean"}, "chunks.pooling"),
    ],
)
def test_impossible_chunks_are_refused(kind, chunks, message, start, tmp_path):
    with pytest.raises(ConfigError, match=message):
        make_session(write_train_config(tmp_path, start, chunks=chunks), kind)


def test_chunks_without_their_package_are_refused(start, tmp_path, monkeypatch):
    monkeypatch.setattr(ARCHITECTURES, "_entries", {})
    with pytest.raises(ConfigError, match="  chunks: "):
        make_session(write_train_config(tmp_path, start, chunks={"count": 2}), "mono")


def test_chunks_keep_more_of_a_text_than_one_input(start, tmp_path):
    """700 wordpieces before the answer: with 40 chunks of 32 tokens it is read."""
    score = _scorer(start, ChunksConfig(count=40, pooling="max"))
    far = " ".join(["the"] * 700)
    with torch.inference_mode():
        scores = score([("what is sky", f"{far} blue"), ("what is sky", f"{far} milk")]).tolist()
    assert abs(scores[0] - scores[1]) > 1e-4
