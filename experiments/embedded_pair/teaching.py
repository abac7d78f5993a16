"""What a mono is trained on: a start, and groups with the scores of a teacher, as a folder that
`beamrank train` reads.

The teacher of a pair is a weighted sum of BM25 and of the cosines of some bi-encoders. The weights
make the positives of the groups most likely, as in `bert_ce`.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from beamrank.formats.run_writer import run_lines
from experiments.embedded_pair.bi_encoder import Embeds, encoder_inputs, load_encoder
from experiments.embedded_pair.wiring.pruning import prune_units
from models.tokenizers.bert import load_bert
from models.training.data.groups import Group
from models.training.initial_model import save_checkpoint
from models.training.tasks import listwise_cross_entropy

_START = "start"
_LEARNING_STEPS = 200
# Feed-forward units of the start: its six layers then cost no more than the seven of
# `embedded:mono`.
_UNITS = 1024
# How many texts pruning is fitted on.
_TEXTS = 1600
_SETTINGS = {
    "start": _START,
    "objective": {"bert_ce": 1.0, "listwise_kl": 1.0},
    "input": {"max_query_length": 34, "max_length": 160},
    "optimizer": {
        "learning_rate": 1.0e-4,
        "warmup_share": 0.05,
        "epochs": 1,
        "batch_size": 64,
        "weight_decay": 0.0,
        "dropout": 0.0,
        "train_word_embeddings": False,
    },
    "dtype": "auto",
    "weights": "float16",
    "output": "mono",
}

Scores = NDArray[np.float32]


def teacher_scores(groups: Sequence[Group], encoders: Sequence[Embeds]) -> Scores:
    """The teacher's log-odds, float32[groups, docs]."""
    bm25 = np.array([group.teacher_scores for group in groups], np.float32)
    features = np.stack([bm25, *(_cosines(groups, one) for one in encoders)], axis=-1)
    return features @ fit_weights(features)


def fit_weights(features: Scores) -> Scores:
    """The weights with which the first doc of each group is most likely in the softmax over it:
    float32[scores] for float32[groups, docs, scores].
    """
    given = torch.from_numpy(features)
    weights = torch.zeros(given.shape[-1], requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weights], max_iter=_LEARNING_STEPS, line_search_fn="strong_wolfe"
    )

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        total = listwise_cross_entropy(given @ weights, torch.ones(len(given)))
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    fitted: Scores = weights.detach().numpy()
    return fitted


def write_start(folder: Path, bi_encoder: str, groups: Sequence[Group]) -> None:
    """Writes the encoder that the training starts from, a bi-encoder with some of its units."""
    texts = [text for group in groups for text in (group.query, group.docs[0])]
    # An odd step chooses queries and docs in turn.
    texts = texts[:: len(texts) // _TEXTS | 1][:_TEXTS]
    model, tokenizer = load_encoder(bi_encoder), load_bert(bi_encoder)
    prune_units(model, (inputs for _, inputs in encoder_inputs(tokenizer, texts)), _UNITS)
    save_checkpoint(model, bi_encoder, str(folder / _START), "float32")


def write_training(folder: Path, groups: Sequence[Group], scores: Scores) -> None:
    """Writes train.yaml and the files that it names: the corpus, topics, qrels, and two runs, the
    negatives and the teacher.
    """
    doc_ids: dict[str, str] = {}
    for group in groups:
        for doc in group.docs:
            doc_ids.setdefault(doc, f"d{len(doc_ids)}")
    docs = (json.dumps({"id": doc_id, "contents": text}) for text, doc_id in doc_ids.items())
    _write(folder / "corpus.jsonl", docs)
    _write(folder / "topics.tsv", (f"q{n}\t{group.query}" for n, group in enumerate(groups)))
    _write(folder / "qrels.txt", (f"q{n} 0 {doc_ids[g.docs[0]]} 1" for n, g in enumerate(groups)))
    for name, first in (("negatives", 1), ("teacher", 0)):
        with (folder / f"{name}.trec").open("w", encoding="utf-8") as file:
            for number, (group, taught) in enumerate(zip(groups, scores, strict=True)):
                ids = [doc_ids[doc] for doc in group.docs[first:]]
                ranking = sorted(
                    zip(ids, taught[first:].tolist(), strict=True), key=lambda one: -one[1]
                )
                file.writelines(f"{line}\n" for line in run_lines(f"q{number}", ranking, name))
    (folder / "train.yaml").write_text(yaml.safe_dump(_configuration(len(groups[0].docs))))


def _configuration(docs: int) -> dict[str, Any]:
    return {
        "data": {
            "corpus": {"path": "corpus.jsonl", "format": "jsonl"},
            "topics": {"path": "topics.tsv", "format": "tsv"},
            "qrels": "qrels.txt",
            "run": "negatives.trec",
            "teacher": "teacher.trec",
        },
        "sampling": {"mode": "balanced", "negatives": docs - 1, "ranks": [1, docs - 1]},
        **_SETTINGS,
    }


def _cosines(groups: Sequence[Group], encoder: Embeds) -> Scores:
    texts = sorted({doc for group in groups for doc in group.docs})
    places = {text: place for place, text in enumerate(texts)}
    docs, queries = encoder.docs(texts), encoder.queries([group.query for group in groups])
    rows = np.array([[places[doc] for doc in group.docs] for group in groups])
    cosines: Scores = np.einsum("gdw,gw->gd", docs[rows], queries)
    return cosines


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
