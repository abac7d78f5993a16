"""A duoBERT made of the assembled monoBERT's weights: before any training z_ij is about z_i less z_j.

Segments stay apart as in mono; where mono compares the tokens of query and doc, the query's look at both docs and
either doc's at the query. In the last layer a third of the heads take the mean over doc j, as others do over doc i,
and their products with the query's count with the other sign.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import BertForSequenceClassification
from transformers.models.bert.modeling_bert import BertLayer

from models.training.embedded.assemble import copy_embeddings, copy_layer, new_classifier
from models.training.embedded.marks import (
    MarkedShape,
    embeddings_of,
    keep_apart,
    layers_of,
    look_at,
    mark_tokens,
    refresh,
    size_marks,
)

# The segment of mono that each of duo's is like: query, doc i, doc j.
_LIKE = torch.tensor([0, 1, 1])
_QUERY, _DOC_I, _DOC_J = range(3)


def make_duo(mono: BertForSequenceClassification, inputs: Mapping[str, Tensor]) -> BertForSequenceClassification:
    """Makes the model.

    Args:
        mono: what `assemble_mono` made, trained or not, its marks unchanged.
        inputs: a batch of real inputs of duo, as transformers takes them, that sizes are set by.
    """
    own, heads = _own_width(mono), mono.config.num_attention_heads
    old, new = MarkedShape(own, heads, segments=2), MarkedShape(own, heads, segments=3)
    model = new_classifier(mono.config, new, mono.config.num_hidden_layers)
    copy_embeddings(model, mono.bert, new)
    types = embeddings_of(mono.bert).token_type_embeddings.weight.detach()
    embeddings_of(model.bert).token_type_embeddings.weight.data[:, :own] = types[_LIKE][:, :own]
    mark_tokens(model, new)
    *lower, compare, last = zip(layers_of(model.bert), layers_of(mono.bert), strict=True)
    for to, source in (*lower, compare):
        copy_layer(to, source, new, old.own_rows())
        _copy_uses_of_marks(to, source, new, old)
    for to, _ in lower:
        keep_apart(to, new, torch.eye(3, dtype=torch.bool))
        refresh(to, new)
    is_query = torch.arange(3) == _QUERY
    keep_apart(compare[0], new, is_query[:, None] ^ is_query[None])
    copy_layer(*last, new, old.own_rows())
    _share_heads(last[0], new)
    _copy_score(model, mono, new, old)
    size_marks(model, new, inputs, model.config.num_hidden_layers - 1)
    return model


@torch.no_grad()
def _copy_uses_of_marks(to: BertLayer, source: BertLayer, new: MarkedShape, old: MarkedShape) -> None:
    """Copies what training has made of the marks: units that read them, and heads that write them elsewhere."""
    patterns, marks = new.patterns(), new.width - new.own
    read = source.intermediate.dense.weight[:, old.marks] @ old.patterns().T
    to.intermediate.dense.weight[:, new.marks] = read[:, _LIKE] @ patterns / marks
    for head in range(new.heads):
        written = source.attention.output.dense.weight[: old.own, old.mark_rows(head)]
        to.attention.output.dense.weight[: new.own, new.mark_rows(head)] = written[:, _LIKE]


@torch.no_grad()
def _share_heads(layer: BertLayer, shape: MarkedShape) -> None:
    """Mono's heads are half for the query, half for the doc; the last third of either half becomes doc j's."""
    half = shape.heads // 2
    kept = half - half // 3
    for head in range(shape.heads):
        segment = _DOC_J if head % half >= kept else (_QUERY, _DOC_I)[head // half]
        look_at(layer, shape, head, segment)
    moved = [head for head in range(shape.heads) if head % half >= kept]
    for head, model_head in zip(moved, range(half, half + len(moved)), strict=True):
        _copy_head(layer, shape, head, model_head)


def _copy_head(layer: BertLayer, shape: MarkedShape, head: int, source: int) -> None:
    """Lets a head do what another does, and write it where the units take it with the other sign."""
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
    layer.intermediate.dense.weight[:, to] = -layer.intermediate.dense.weight[:, source_to]


@torch.no_grad()
def _copy_score(
    model: BertForSequenceClassification, mono: BertForSequenceClassification, new: MarkedShape, old: MarkedShape
) -> None:
    """Copies the head, which reads the score where the last layer's marks would be; z_ij has no constant part."""
    last, given = layers_of(model.bert)[-1], layers_of(mono.bert)[-1]
    assert model.bert.pooler is not None
    assert mono.bert.pooler is not None
    last.attention.output.LayerNorm.weight[new.marks] = 0.0
    last.output.dense.weight[new.own : old.width] = given.output.dense.weight[old.marks]
    last.output.LayerNorm.weight[new.marks] = 0.0
    scale = math.sqrt(old.width / new.width)
    last.output.LayerNorm.weight[new.own : old.width] = scale * given.output.LayerNorm.weight[old.marks]
    last.output.LayerNorm.bias[new.own : old.width] = given.output.LayerNorm.bias[old.marks]
    model.bert.pooler.dense.weight[: old.width, : old.width] = mono.bert.pooler.dense.weight
    model.bert.pooler.dense.bias[: old.width] = mono.bert.pooler.dense.bias
    model.classifier.weight[:, : old.width] = mono.classifier.weight


def _own_width(mono: BertForSequenceClassification) -> int:
    """The width without marks: each head has two of these."""
    width: int = mono.config.hidden_size
    return width - 2 * mono.config.num_attention_heads
