"""What the pair is trained on: groups with the scores of a teacher, as files that `beamrank train`
reads.

The teacher of a pair is a weighted sum of BM25 and of the cosines of some bi-encoders. The weights
make the positives of the groups most likely, as in `bert_ce`.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from experiments.embedded_pair.bi_encoder import Embeds
from models.training.data.groups import Group

_LEARNING_STEPS = 200

Scores = NDArray[np.float32]


def teacher_scores(groups: Sequence[Group], encoders: Sequence[Embeds]) -> list[Scores]:
    """The teacher's log-odds of each group's docs."""
    columns = [
        [np.array(group.teacher_scores, np.float32) for group in groups],
        *(_cosines(groups, one) for one in encoders),
    ]
    features = [np.stack(scores, axis=-1) for scores in zip(*columns, strict=True)]
    weights = fit_weights(features)
    return [scores @ weights for scores in features]


def fit_weights(features: Sequence[Scores]) -> Scores:
    """The weights with which the first doc of each group is most likely in the softmax over it.

    Args:
        features: float32[docs, scores] of each group.
    """
    groups = [torch.from_numpy(scores) for scores in features]
    weights = torch.zeros(groups[0].shape[1], requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weights], max_iter=_LEARNING_STEPS, line_search_fn="strong_wolfe"
    )

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        losses = [-F.log_softmax(scores @ weights, dim=0)[0] for scores in groups]
        total = torch.stack(losses).mean()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    fitted: Scores = weights.detach().numpy()
    return fitted


def write_training(folder: Path, groups: Sequence[Group], scores: Sequence[Scores]) -> None:
    """Writes corpus.jsonl, topics.tsv, qrels.txt, and two runs: negatives.trec and teacher.trec."""
    doc_ids: dict[str, str] = {}
    for group in groups:
        for doc in group.docs:
            doc_ids.setdefault(doc, f"d{len(doc_ids)}")
    rows = [
        (f"q{number}", [doc_ids[doc] for doc in group.docs], taught.tolist())
        for number, (group, taught) in enumerate(zip(groups, scores, strict=True))
    ]
    _write(
        folder / "corpus.jsonl", (json.dumps({"id": i, "contents": t}) for t, i in doc_ids.items())
    )
    _write(folder / "topics.tsv", (f"q{n}\t{group.query}" for n, group in enumerate(groups)))
    _write(folder / "qrels.txt", (f"{query} 0 {docs[0]} 1" for query, docs, _ in rows))
    for name, first in (("negatives", 1), ("teacher", 0)):
        _write(
            folder / f"{name}.trec",
            (
                f"{query} Q0 {doc} {rank} {score:.6f} {name}"
                for query, docs, taught in rows
                for rank, (score, doc) in enumerate(
                    sorted(zip(taught[first:], docs[first:], strict=True), reverse=True), 1
                )
            ),
        )


def _cosines(groups: Sequence[Group], encoder: Embeds) -> list[Scores]:
    texts = sorted({doc for group in groups for doc in group.docs})
    places = {text: place for place, text in enumerate(texts)}
    docs, queries = encoder.docs(texts), encoder.queries([group.query for group in groups])
    return [
        docs[[places[doc] for doc in group.docs]] @ query
        for group, query in zip(groups, queries, strict=True)
    ]


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
