"""A duoBERT made of the wired monoBERT's weights: its z_ij is nearly z_i - z_j without training.

Segments stay apart as in mono. In the last layer, a third of the heads gather the mean over doc j,
as others do over doc i, and its distance to the query's mean counts with the opposite sign. So do
the query's words that doc j has: the third layer finds them, with the same head that finds those of
doc i in the second.

Mono's norm divides the inner product of query and doc by the size of both. Here one norm serves two
docs, so a doc with a large mean would seem nearer. The doc's mean is therefore scaled: |a - pb|^2 =
|a|^2 - 2p (ab - p|b|^2 / 2), with p found by least squares.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from transformers import BertForSequenceClassification
from transformers.models.bert.modeling_bert import BertLayer

from experiments.embedded_pair.wiring.bigrams import find_bigrams, see_before, write_places
from experiments.embedded_pair.wiring.make_mono import (
    WORDS,
    Head,
    copy_embeddings,
    copy_layer,
    new_classifier,
    read_score,
    size_distance,
    write_distance,
    write_heads,
)
from experiments.embedded_pair.wiring.segment_marks import (
    MarkedShape,
    embeddings_of,
    keep_apart,
    layers_of,
    look_at,
    mark_tokens,
    outputs_of,
    refresh,
    shape_of,
    size_marks,
)
from experiments.embedded_pair.wiring.shared_words import (
    dims_of,
    find_words,
    raise_total,
    read_number,
    sum_found,
)

# The segment of mono that each segment of duo is copied from: query, doc i, doc j.
_LIKE = torch.tensor([0, 1, 1])
_QUERY, _DOC_I, _DOC_J = range(3)


def make_duo(
    mono: BertForSequenceClassification,
    cls_id: int,
    inputs: Mapping[str, Tensor],
    batches: Sequence[Mapping[str, Tensor]],
    margins: Tensor,
) -> BertForSequenceClassification:
    """Makes the model.

    Args:
        mono: a model made by `make_mono`.
        cls_id: the id of [CLS].
        inputs: real inputs of duo of mixed lengths, as transformers takes them, each pair of docs
            in both orders, for setting sizes.
        batches: real inputs to fit z_ij on.
        margins: float[n], mono's score of doc i minus that of doc j, for each input of the batches.
    """
    old = shape_of(mono)
    new, own = replace(old, segments=3), slice(0, old.own)
    is_query = torch.arange(3) == _QUERY
    model = new_classifier(mono.config, new, mono.config.num_hidden_layers)
    copy_embeddings(model, mono.bert, new)
    types = embeddings_of(mono.bert).token_type_embeddings.weight.detach()
    embeddings_of(model.bert).token_type_embeddings.weight.data[:, own] = types[_LIKE][:, own]
    mark_tokens(model, new, cls_id)
    write_places(model, new)
    words = embeddings_of(model.bert).word_embeddings.weight.data
    words[:, _places(new, old)[old.words]] = embeddings_of(
        mono.bert
    ).word_embeddings.weight.detach()[:, old.words]
    *lower, last = zip(layers_of(model.bert), layers_of(mono.bert), strict=True)
    for to, source in lower:
        copy_layer(to, source, new, old.own_rows())
        keep_apart(to, new, torch.eye(3, dtype=torch.bool))
    copy_layer(*last, new, old.own_rows())
    _share_heads(last[0], new)
    raise_total(last[0], new, WORDS)
    _copy_norms(last[0], last[1], new, old)
    refresh(model, new)
    size_marks(model, new, inputs, model.config.num_hidden_layers - 1)
    seen = [is_query[:, None] & (torch.arange(3) == segment)[None] for segment in (_DOC_I, _DOC_J)]
    heads: list[Head] = [
        lambda layer, states: see_before(layer, new, states, inputs),
        lambda layer, states: find_words(layer, new, seen[0], 0, states, inputs),
        lambda layer, states: find_words(layer, new, seen[1], 1, states, inputs),
        lambda layer, states: find_bigrams(layer, new, seen[0], 0, states, inputs),
        lambda layer, states: find_bigrams(layer, new, seen[1], 1, states, inputs),
        lambda layer, states: sum_found(layer, new, states, inputs),
    ]
    write_heads(model, new, heads, inputs)
    _write_difference(model, new, batches, margins)
    size_distance(model, new, batches)
    _copy_pooler(model, mono, new, old)
    read_score(model, new, batches, torch.zeros(len(margins), dtype=torch.long), margins)
    return model


def _places(new: MarkedShape, old: MarkedShape) -> Tensor:
    """int[old width], the dimension of duo for each of mono; the marks carry the score in the last
    layer.
    """
    return torch.cat(
        [torch.arange(old.words.start), new.words.start + torch.arange(old.width - old.words.start)]
    )


@torch.no_grad()
def _share_heads(layer: BertLayer, shape: MarkedShape) -> None:
    """Half of mono's heads read the query, half the doc; the last third of each half now reads doc
    j.
    """
    half = shape.heads // 2
    kept = half - half // 3
    for head in range(shape.heads):
        segment = _DOC_J if head % half >= kept else (_QUERY, _DOC_I)[head // half]
        look_at(layer, shape, shape.mark_rows(head).start, segment)
    moved = [head for head in range(shape.heads) if head % half >= kept]
    for head, model_head in zip(moved, range(half, half + len(moved)), strict=True):
        _copy_head(layer, shape, head, model_head)


def _copy_head(layer: BertLayer, shape: MarkedShape, head: int, source: int) -> None:
    """Copies a head, writing its result to the dimensions that count with the opposite sign."""
    rows, source_rows = shape.head_rows(head), shape.head_rows(source)
    for name in ("query", "key", "value"):
        part = getattr(layer.attention.self, name)
        part.weight[rows, : shape.own] = part.weight[source_rows, : shape.own]
        part.bias[rows] = part.bias[source_rows]
    to = slice(head * shape.own_head, (head + 1) * shape.own_head)
    source_to = slice(source * shape.own_head, (source + 1) * shape.own_head)
    written = layer.attention.output.dense.weight
    written[: shape.own, rows] = 0.0
    written[to, rows] = written[source_to, source_rows]


@torch.no_grad()
def _write_difference(
    model: BertForSequenceClassification,
    shape: MarkedShape,
    batches: Sequence[Mapping[str, Tensor]],
    margins: Tensor,
) -> None:
    """Writes the distance of query and doc j minus that of query and doc i."""
    last, half = layers_of(model.bert)[-1], shape.own // 2
    kept = half - half // 3
    query = torch.arange(kept)
    doc_i, doc_j = (
        half + query,
        torch.cat([torch.arange(kept, half), torch.arange(half + kept, shape.own)]),
    )
    states = torch.cat(
        [outputs_of(model, last.attention.output.LayerNorm, inputs)[:, 0] for inputs in batches]
    )
    a, b, c = (states[:, dims] for dims in (query, doc_i, doc_j))
    known = torch.stack(
        [
            (a * (b - c)).sum(dim=1),
            (c.square() - b.square()).sum(dim=1) / 2,
            read_number(states, dims_of(shape).total),
            torch.ones(len(states)),
        ],
        dim=1,
    )
    weights = torch.linalg.lstsq(known, margins[:, None]).solution[:, 0]
    pull = float(weights[1] / weights[0])
    last.intermediate.dense.weight.zero_()
    last.output.dense.weight.zero_()
    write_distance(last, shape, query, doc_i, 1.0, pull)
    write_distance(last, shape, query, doc_j, -1.0, pull, first=2 * kept)


@torch.no_grad()
def _copy_norms(to: BertLayer, source: BertLayer, new: MarkedShape, old: MarkedShape) -> None:
    """Copies the last layer's norms for the dimensions that carry the score."""
    places, score, scale = (
        _places(new, old),
        slice(old.own, old.width),
        math.sqrt(old.width / new.width),
    )
    for norm, given in (
        (to.attention.output.LayerNorm, source.attention.output.LayerNorm),
        (to.output.LayerNorm, source.output.LayerNorm),
    ):
        norm.weight[new.own :] = 0.0
        norm.weight[places[score]] = scale * given.weight[score]
        norm.bias[places[score]] = given.bias[score]


@torch.no_grad()
def _copy_pooler(
    model: BertForSequenceClassification,
    mono: BertForSequenceClassification,
    new: MarkedShape,
    old: MarkedShape,
) -> None:
    """Copies the pooler; its units that do not carry the score are for later fine-tuning."""
    assert model.bert.pooler is not None
    assert mono.bert.pooler is not None
    places, pooler, source = _places(new, old), model.bert.pooler.dense, mono.bert.pooler.dense
    pooler.weight[places[:, None], places] = source.weight
    pooler.bias[places] = source.bias
