"""`python -m experiments.embedded_pair.train_duo`: trains `embedded:duo` on margins between docs.

Three quarters of the triples are a question, its passage and a negative, in random order, with
duoBERT's loss, -log p of the passage. The others are two of mono's best five docs of a query about
docstrings or of NFCorpus' train, with the p of mono's margin. Marks and words stay as they are.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import BertForSequenceClassification

from benchmarks.commands import parser_of
from experiments.embedded_pair.descent import descend
from experiments.embedded_pair.make_pair import make_encoder
from experiments.embedded_pair.mining import count_words, weigh_words
from experiments.embedded_pair.questions import (
    Questions,
    car_questions,
    docstring_questions,
    medquad_questions,
    nfcorpus_questions,
    squad_questions,
    title_questions,
)
from experiments.embedded_pair.wiring.layer_distillation import (
    _train_linear,
    _train_own,
)
from experiments.embedded_pair.wiring.segment_marks import (
    MarkedShape,
    keep_rows_apart,
    layers_of,
    shape_of,
)
from experiments.progress import StderrProgress
from models.checkpoints.sources import locate
from models.scoring.backends.torch import resolve_dtype
from models.tokenizers.bert import load_bert
from models.training.data.groups import InputEncoder, Texts
from models.training.initial_model import save_checkpoint
from models.training.tasks import score

_DEV = 100
_OPENED_LAYERS = (2, 3, 4, 5)
_DTYPE: torch.dtype = getattr(torch, resolve_dtype("auto", "cpu"))


class Scored(NamedTuple):
    """A query, its passage and BM25's best negatives, and a number for each doc, best first."""

    query: str
    docs: Sequence[str]
    scores: NDArray[np.float32]


class Triple(NamedTuple):
    """An input of duo, and the p_ij that it learns."""

    texts: Texts
    probability: float


def main() -> None:
    """Reads the questions, and trains."""
    options = _parser().parse_args()
    model, mono = (_load(f"embedded:{name}") for name in ("duo", "mono"))
    tokenizer = load_bert(locate("embedded:duo")[0])
    reader = make_encoder(tokenizer, 256)
    data, count, negatives = options.data, options.questions, 6 if options.hard else 10
    sizes = (3_400, 1_500, 700, 300) if options.hard else (count,) * 4
    labelled = (
        squad_questions(f"{data}/squad_v1.1.tar.gz", 400, count * 64 // 100, 0),
        medquad_questions(f"{data}/medquad.tar.gz", 6_000, count * 24 // 100, 0),
        car_questions(f"{data}/trec_car_test200.tar.gz", count * 7 // 100, 0),
        title_questions(f"{data}/nfcorpus/nfcorpus.zip", count * 5 // 100, 0),
    )
    groups = [
        group
        for questions, size in zip(labelled, sizes, strict=True)
        for group in list(_mine(questions, negatives))[:-_DEV][:size]
    ]
    kept_of = (
        docstring_questions(500, 0),
        nfcorpus_questions(f"{data}/nfcorpus/nfcorpus.zip", 400, 0),
    )
    kept = [
        group
        for questions in kept_of
        for group in _score(mono, reader, list(_mine(questions, 7))[:-_DEV])
    ]
    if options.hard:
        groups = _score(mono, reader, groups)
    rng = np.random.default_rng(0)
    triples = [
        *_draw(groups, options.triples * 3 // 4, 3 if options.hard else 4, rng),
        *_draw_kept(kept, options.triples // 4, rng),
    ]
    shape = shape_of(model)
    open_heads(model, shape, options.opened)
    _train(model, shape, make_encoder(tokenizer, 320), triples, options.learning_rate, rng)
    save_checkpoint(model, locate("embedded:duo")[0], options.output, "float16")


def open_heads(model: BertForSequenceClassification, shape: MarkedShape, heads: int) -> None:
    """Lets query and docs attend to each other in the first heads of four layers."""
    seen = torch.eye(3, dtype=torch.bool)
    seen[0] = seen[:, 0] = True
    for layer in _OPENED_LAYERS:
        for head in range(heads):
            keep_rows_apart(layers_of(model.bert)[layer], shape, shape.mark_rows(head), seen)


def _load(checkpoint: str) -> BertForSequenceClassification:
    model: BertForSequenceClassification = BertForSequenceClassification.from_pretrained(
        locate(checkpoint)[0], dtype=torch.float32
    )
    model.train(False)
    return model


def _mine(questions: Questions, negatives: int) -> Iterator[Scored]:
    weights, vocabulary = weigh_words(questions.passages)
    for start in range(0, len(questions.questions), 256):
        some = questions.questions[start : start + 256]
        counts = count_words([question.text for question in some], vocabulary)
        for question, scores in zip(some, (counts @ weights.T).toarray(), strict=True):
            left_out = {question.passage, *question.others}
            order = np.argsort(-scores, kind="stable")[: negatives + len(left_out)]
            found = [int(place) for place in order if place not in left_out and scores[place] > 0]
            if len(found) >= 4:
                places = [question.passage, *found[:negatives]]
                docs = [questions.passages[place] for place in places]
                yield Scored(question.text, docs, -np.arange(len(docs), dtype=np.float32))


def _score(
    mono: BertForSequenceClassification, encoder: InputEncoder, groups: Sequence[Scored]
) -> list[Scored]:
    inputs = [(group.query, doc) for group in groups for doc in group.docs]
    with torch.inference_mode(), torch.autocast("cpu", _DTYPE, enabled=torch.float32 != _DTYPE):
        scores = score(mono, encoder, inputs).float().numpy()
    ends = np.cumsum([len(group.docs) for group in groups])
    parts = np.split(scores, ends[:-1])
    return [group._replace(scores=part) for group, part in zip(groups, parts, strict=True)]


def _draw(
    groups: Sequence[Scored], count: int, negatives: int, rng: np.random.Generator
) -> Iterator[Triple]:
    for place in _places(len(groups), count, rng):
        query, docs, scores = groups[place]
        order = [int(doc) for doc in np.argsort(-scores, kind="stable") if doc]
        pair = [0, int(rng.choice(order[:negatives]))]
        if rng.random() < 0.5:
            pair.reverse()
        yield Triple((query, docs[pair[0]], docs[pair[1]]), float(pair[0] == 0))


def _draw_kept(groups: Sequence[Scored], count: int, rng: np.random.Generator) -> Iterator[Triple]:
    for place in _places(len(groups), count, rng):
        query, docs, scores = groups[place]
        one, other = rng.choice(np.argsort(-scores, kind="stable")[:5], 2, replace=False)
        p = 1 / (1 + np.exp(scores[other] - scores[one]))
        yield Triple((query, docs[one], docs[other]), float(p))


def _places(groups: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.concatenate([rng.permutation(groups) for _ in range(count // groups + 1)])[:count]


def _train(
    model: BertForSequenceClassification,
    shape: MarkedShape,
    encoder: InputEncoder,
    triples: Sequence[Triple],
    learning_rate: float,
    rng: np.random.Generator,
) -> None:
    triples = [triples[place] for place in rng.permutation(len(triples))]
    batches: list[tuple[Mapping[str, Tensor], Tensor]] = []
    for first in range(0, len(triples), 512):
        some = triples[first : first + 512]
        for batch in encoder.batches([triple.texts for triple in some]):
            wanted = torch.tensor([some[row].probability for row in batch.rows])
            batches.append((batch.tensors, wanted))
    batches = [batches[place] for place in rng.permutation(len(batches))]

    def loss(batch: tuple[Mapping[str, Tensor], Tensor]) -> Tensor:
        inputs, wanted = batch
        logits = model(**inputs).logits.float()
        return F.binary_cross_entropy_with_logits(logits[:, 1] - logits[:, 0], wanted)

    model.set_attn_implementation("eager")
    trained = [*_train_own(model, shape), *_train_last(model, shape)]
    descend(trained, batches, loss, learning_rate, _DTYPE, StderrProgress())
    model.requires_grad_(False)


def _train_last(model: BertForSequenceClassification, shape: MarkedShape) -> list[Tensor]:
    """Makes trainable the heads of the last layer, and all that comes after them."""
    last, own, rows = layers_of(model.bert)[-1], torch.arange(shape.own), shape.own_rows()
    attention = last.attention
    changed: list[Tensor] = []
    for part in (attention.self.query, attention.self.key, attention.self.value):
        changed += _train_linear(part, rows, own)
    changed += _train_linear(attention.output.dense, own, rows)
    assert model.bert.pooler is not None
    later: tuple[nn.Module, ...] = (last.intermediate, last.output, model.bert.pooler)
    for module in (*later, model.classifier):
        module.requires_grad_(True)
        changed += module.parameters()
    return changed


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("experiments.embedded_pair.train_duo", __doc__)
    parser.add_argument("--data", required=True, help="folder of the archives")
    parser.add_argument("--output", required=True, help="folder to write to")
    parser.add_argument("--opened", type=int, default=0, help="heads of 12 (%(default)s)")
    parser.add_argument("--hard", action="store_true", help="mono chooses the negatives")
    parser.add_argument("--questions", type=int, default=20_000, help="(%(default)s)")
    parser.add_argument("--triples", type=int, default=9_000, help="(%(default)s)")
    parser.add_argument("--learning-rate", type=float, default=3e-5, help="(%(default)s)")
    return parser


if __name__ == "__main__":
    main()
