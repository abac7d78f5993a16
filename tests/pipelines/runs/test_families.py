"""A run with a mono of another family than BERT ranks as transformers' own model and tokenizer do."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.support.models.families import SIZES, random_model
from tests.support.models.tokenizers import save_tokenizer
from tests.support.oracle import assert_parity
from tests.support.runs import read_trec
from tests.support.small_collection import CANDIDATES, DOCS, TOPICS, SmallCollection

_MAX_LENGTH = 64
_FAMILIES: dict[str, dict[str, Any]] = {
    "xlm-roberta": {"max_position_embeddings": 70, "type_vocab_size": 1, "num_labels": 1},
    "deberta-v2": {"max_position_embeddings": 70, "type_vocab_size": 0, "relative_attention": True, "num_labels": 1},
    "modernbert": {"max_position_embeddings": 70, "local_attention": 16, "classifier_pooling": "mean", "num_labels": 2},
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
            settings: dict[str, Any] = {"truncation": True, "max_length": _MAX_LENGTH, "padding": False}
            ids = tokenizer(TOPICS[query_id], DOCS[doc_id], **settings)["input_ids"]
            with torch.inference_mode():
                logits = model(input_ids=torch.tensor([ids])).logits[0]
            scores[query_id, doc_id] = float(logits[-1] - (logits[0] if len(logits) == 2 else 0))
    return scores


@pytest.mark.parametrize("family", _FAMILIES)
def test_run_ranks_as_transformers(family, tmp_path):
    _save(family, tmp_path / "mono")
    collection = SmallCollection(tmp_path).given_run()
    collection.keys["mono"] = {"checkpoint": "./mono", "k": 9}
    collection.keys["input"] = {"max_length": _MAX_LENGTH, "max_query_length": 32, "truncation": "hf"}
    rows, wanted = collection.run().rows("mono"), _wanted(tmp_path / "mono")
    found = {(row["query_id"], row["doc_id"]): row["score"] for row in rows}
    assert found.keys() == wanted.keys()
    assert torch.tensor(list(wanted.values())).std() > 0.1
    assert_parity([found[key] for key in wanted], list(wanted.values()))
    for query_id, ranked in read_trec(collection.output / "runs/mono.trec").items():
        scores = [wanted[query_id, doc_id] for doc_id in ranked]
        assert all(below - above < 2e-4 for above, below in itertools.pairwise(scores))
