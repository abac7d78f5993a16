"""Segment marks: a few added dimensions that tell each token's segment, so that attention can keep
segments apart.

A bi-encoder reads query and doc in separate inputs; a cross-encoder reads them in one. With marks,
the bi-encoder's layers work unchanged inside a cross-encoder: every attention head gets one
dimension per segment, in which a query vector of one segment and a key vector of another have a
large negative product, and two of the same segment have exactly 0. Each segment then attends only
to itself and sees what it saw in the bi-encoder. There, each text had its own [CLS], which most
heads attend to when they find nothing; here all segments share one [CLS], which carries no segment
mark. In the first layers, which refresh the marks from the attended tokens, [CLS] has a mark of its
own that keeps it from attending to anything else; in later layers it attends to everything. The
result is an ordinary BERT.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from transformers import BertForSequenceClassification, BertModel
from transformers.models.bert.modeling_bert import BertEmbeddings, BertLayer

SIZE = 0.05
# Subtracted from the attention score of a key in another segment. It is large because LayerNorm
# shrinks the marks of tokens with large states.
_APART = 5000.0
# The first layers add the marks of the attended tokens, so that those of tokens with large states
# do not fade. The mark that isolates [CLS] is not refreshed: after two layers half precision would
# round it away.
_REFRESHED, _REFRESHING = 5.0, 2
_CLS_SIZE = 3.0
# Dimensions of the marks. Nothing else may use them: two tokens of one segment score exactly 0 in
# half precision only because all summands have one size.
_DIMENSIONS = 12
# Rows of a Hadamard matrix: orthogonal to each other and, because LayerNorm removes the mean, to
# the constant row.
_ROWS = ((1.0, -1.0, 1.0, -1.0), (1.0, 1.0, -1.0, -1.0), (1.0, -1.0, -1.0, 1.0))


@dataclass(frozen=True)
class MarkedShape:
    """Where the marks are in a BERT's tensors.

    Attributes:
        own: the dimensions of the bi-encoder; they come first.
        heads: the attention heads of the bi-encoder; the head for words follows them.
        segments: 2 for mono, 3 for duo; every head of the bi-encoder has a mark for each.
    """

    own: int
    heads: int
    segments: int

    @property
    def own_head(self) -> int:
        """The dimensions of a head without its marks."""
        return self.own // self.heads

    @property
    def head(self) -> int:
        """The dimensions of a head, marks last."""
        return self.own_head + self.segments

    @property
    def width(self) -> int:
        """The hidden size."""
        return (self.heads + 1) * self.head

    @property
    def marks(self) -> slice:
        """The dimensions of hidden states that hold marks."""
        return slice(self.own, self.own + _DIMENSIONS)

    @property
    def places(self) -> slice:
        """The dimensions that hold a token's position, and later the word before it (see
        `bigrams`).
        """
        return slice(self.marks.stop, self.words.start)

    @property
    def words(self) -> slice:
        """The dimensions in which words are matched (see `shared_words`); as many as a head has."""
        return slice(self.own + self.heads * self.segments, self.width)

    @property
    def word_rows(self) -> slice:
        """The rows of query, key and value of the head that matches words."""
        return slice(self.heads * self.head, self.width)

    def head_rows(self, head: int) -> slice:
        """The rows of query, key and value that come from the bi-encoder's head."""
        return slice(head * self.head, head * self.head + self.own_head)

    def mark_rows(self, head: int) -> slice:
        """The rows of query, key and value that hold a head's marks, one per segment."""
        return slice(head * self.head + self.own_head, (head + 1) * self.head)

    def own_rows(self) -> Tensor:
        """int[own], the rows of all heads that come from the bi-encoder."""
        return torch.cat(
            [torch.arange(self.width)[self.head_rows(head)] for head in range(self.heads)]
        )

    def patterns(self) -> Tensor:
        """float[segments, marks]: the mark of each segment's tokens, as signs."""
        return torch.tensor(_ROWS[: self.segments]).repeat(1, _DIMENSIONS // 4)

    def cls_pattern(self) -> Tensor:
        """float[marks]: the mark of [CLS], orthogonal to those of the segments."""
        blocks = _DIMENSIONS // 4
        signs = torch.tensor([1.0, -1.0]).repeat(blocks // 2 + 1)[:blocks]
        signs[blocks - blocks % 2 :] = 0.0
        return (signs[:, None] * torch.tensor(_ROWS[0])).flatten()


def shape_of(model: BertForSequenceClassification) -> MarkedShape:
    """The shape of a model with marks."""
    segments, heads = model.config.type_vocab_size, model.config.num_attention_heads - 1
    return MarkedShape(
        heads * (model.config.hidden_size // (heads + 1) - segments), heads, segments
    )


def layers_of(model: BertModel) -> list[BertLayer]:
    """A model's layers, first to last."""
    return cast(list[BertLayer], list(model.encoder.layer))


def embeddings_of(model: BertModel) -> BertEmbeddings:
    """A model's embeddings, typed."""
    return model.embeddings


@torch.no_grad()
def mark_tokens(model: BertForSequenceClassification, shape: MarkedShape, cls_id: int) -> None:
    """Writes the segments' marks to the token types, and [CLS]'s mark to its word embedding."""
    embeddings, patterns = embeddings_of(model.bert), shape.patterns()
    embeddings.token_type_embeddings.weight[:, shape.marks] = SIZE * patterns
    embeddings.word_embeddings.weight[cls_id, shape.marks] = SIZE * (
        _CLS_SIZE * shape.cls_pattern() - patterns[0]
    )


@torch.no_grad()
def keep_apart(layer: BertLayer, shape: MarkedShape, seen: Tensor) -> None:
    """Restricts every head of a layer, whose mark weights are 0, to the segments that it may see.

    Args:
        layer: the layer.
        shape: where the marks are.
        seen: bool[segments, segments], whether tokens of a segment (row) see those of another
            (column).
    """
    for head in range(shape.heads):
        keep_rows_apart(layer, shape, shape.mark_rows(head), seen)


@torch.no_grad()
def keep_rows_apart(layer: BertLayer, shape: MarkedShape, rows: slice, seen: Tensor) -> None:
    """The same as `keep_apart` for one head, given the rows to use, one per segment."""
    patterns, weight = shape.patterns(), _weight(shape)
    layer.attention.self.query.weight[rows, shape.marks] = -weight * patterns
    layer.attention.self.key.weight[rows, shape.marks] = weight * (~seen).float() @ patterns


@torch.no_grad()
def refresh(model: BertForSequenceClassification, shape: MarkedShape) -> None:
    """Makes the first layers rewrite the marks that they read, and isolates [CLS] there, which has
    no segment mark.
    """
    patterns = shape.patterns()
    for layer in layers_of(model.bert)[:_REFRESHING]:
        for head in range(shape.heads):
            rows = shape.mark_rows(head)
            layer.attention.self.query.weight[rows, shape.marks] -= (
                _weight(shape) * shape.cls_pattern()
            )
            layer.attention.self.value.weight[rows, shape.marks] = patterns / patterns.shape[1]
            layer.attention.output.dense.weight[shape.marks, rows] = (
                _REFRESHED / shape.heads * patterns.T
            )


@torch.no_grad()
def look_at(layer: BertLayer, shape: MarkedShape, row: int, segment: int | None) -> None:
    """Makes the head that owns a row attend to one segment and [CLS], or to [CLS] only, from every
    token.
    """
    patterns = shape.patterns()
    others = patterns.sum(dim=0) - (0 if segment is None else patterns[segment])
    layer.attention.self.query.bias[row] = -_refusal(shape)
    layer.attention.self.key.weight[row, shape.marks] = _weight(shape) * others


@torch.no_grad()
def size_marks(
    model: BertForSequenceClassification,
    shape: MarkedShape,
    inputs: Mapping[str, Tensor],
    layers: int,
) -> None:
    """Sets the norms' weights for the marks so that their mean size stays the same after each of
    the first layers.

    Args:
        model: a model with marks.
        shape: where they are.
        inputs: a batch of real inputs, as transformers takes them.
        layers: how many layers.
    """
    real = inputs["attention_mask"].bool()
    for norm in norms_of(model, layers):
        marks = outputs_of(model, norm, inputs)[real][:, shape.marks]
        norm.weight[shape.marks] *= SIZE / marks.std(dim=1, correction=0).mean()


def norms_of(model: BertForSequenceClassification, layers: int) -> list[nn.LayerNorm]:
    """The norms of the embeddings and of the first layers, in order."""
    norms: list[nn.LayerNorm] = [embeddings_of(model.bert).LayerNorm]
    for layer in layers_of(model.bert)[:layers]:
        norms += [layer.attention.output.LayerNorm, layer.output.LayerNorm]
    return norms


class _Reached(Exception):
    """Stops a forward pass after the part that was needed."""


def inputs_of(model: nn.Module, part: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
    """The input of one part of a model for a batch."""
    return _reach(model, part, inputs, lambda given, _output: given[0])


def outputs_of(model: nn.Module, part: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
    """The output of one part of a model for a batch."""
    return _reach(model, part, inputs, lambda _given, output: output)


@torch.inference_mode()
def _reach(
    model: nn.Module,
    part: nn.Module,
    inputs: Mapping[str, Tensor],
    choose: Callable[[tuple[Tensor, ...], Tensor], Tensor],
) -> Tensor:
    found: list[Tensor] = []

    def keep(_part: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        found.append(choose(given, output))
        raise _Reached

    hook = part.register_forward_hook(keep)
    try:
        with suppress(_Reached):
            model(**inputs)
    finally:
        hook.remove()
    return found[0].clone()


def _refusal(shape: MarkedShape) -> float:
    """The factor, in query (negated) and in key, that forbids attention."""
    return math.sqrt(_APART * math.sqrt(shape.head))


def _weight(shape: MarkedShape) -> float:
    """The weight that turns marks of the usual size into a refusal."""
    return _refusal(shape) / (SIZE * _DIMENSIONS)
