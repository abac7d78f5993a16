"""Marks: a few dimensions beside a BERT's own that say which segment a token is of, so that segments can be kept apart.

A bi-encoder reads query and doc by themselves, a cross-encoder reads them side by side. With marks the layers of the
first can be layers of the second: every attention head gets one dimension for each segment, in which a query of one
segment and a key of another have a product far below 0, and two of one segment have exactly 0. So each segment
attends to itself alone, and sees what it saw in the bi-encoder. There either text had a [CLS], which most heads look
at when they look for nothing: here all segments see the one [CLS], which has no segment's mark. In the first layers,
where marks are refreshed by what a token attends to, a mark of its own keeps it from seeing anything else; later it
sees all. Everything is weights of an ordinary BERT: transformers knows nothing of it.
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
# What a key of another segment loses. Marks of tokens with large states are small after LayerNorm, hence so much.
_APART = 5000.0
# The first layers add the marks of the tokens attended to, so that those of large states do not fade. The mark that
# keeps [CLS] from taking others' is not refreshed: after two layers half precision would round it away.
_REFRESHED, _REFRESHING = 5.0, 2
_CLS_SIZE = 3.0
# How many dimensions marks have. Nothing else may stand in these: that a segment's own tokens lose exactly 0 is so in
# half precision only because all that is added there is of one size.
_DIMENSIONS = 12
# Rows of a Hadamard matrix: orthogonal to each other and, since LayerNorm takes away the mean, to the constant one.
_ROWS = ((1.0, -1.0, 1.0, -1.0), (1.0, 1.0, -1.0, -1.0), (1.0, -1.0, -1.0, 1.0))


@dataclass(frozen=True)
class MarkedShape:
    """Where the marks are in a BERT's tensors.

    Attributes:
        own: dimensions of the BERT without marks; they come first.
        heads: its attention heads; one more, for words, comes after them.
        segments: 2 for mono, 3 for duo; a mark for each in every head of the BERT's own.
    """

    own: int
    heads: int
    segments: int

    @property
    def own_head(self) -> int:
        """A head's dimensions without its marks."""
        return self.own // self.heads

    @property
    def head(self) -> int:
        """A head's dimensions, its marks last."""
        return self.own_head + self.segments

    @property
    def width(self) -> int:
        """All dimensions."""
        return (self.heads + 1) * self.head

    @property
    def marks(self) -> slice:
        """The dimensions of hidden states that are marks."""
        return slice(self.own, self.own + _DIMENSIONS)

    @property
    def places(self) -> slice:
        """Those that say where a token stands, and later what stands before it, see `phrases`."""
        return slice(self.marks.stop, self.words.start)

    @property
    def words(self) -> slice:
        """Those that words are matched in, see `words`; as many as a head has."""
        return slice(self.own + self.heads * self.segments, self.width)

    @property
    def word_rows(self) -> slice:
        """Rows of query, key and value of the head that matches words."""
        return slice(self.heads * self.head, self.width)

    def head_rows(self, head: int) -> slice:
        """Rows of query, key and value that are a head's own."""
        return slice(head * self.head, head * self.head + self.own_head)

    def mark_rows(self, head: int) -> slice:
        """Rows of query, key and value that are a head's marks, one for each segment."""
        return slice(head * self.head + self.own_head, (head + 1) * self.head)

    def own_rows(self) -> Tensor:
        """int[own], the heads' own rows."""
        return torch.cat([torch.arange(self.width)[self.head_rows(head)] for head in range(self.heads)])

    def all_mark_rows(self) -> Tensor:
        """int[heads * segments], the heads' mark rows."""
        return torch.cat([torch.arange(self.width)[self.mark_rows(head)] for head in range(self.heads)])

    def patterns(self) -> Tensor:
        """float[segments, marks]: what each segment's tokens have in the marks, as signs."""
        return torch.tensor(_ROWS[: self.segments]).repeat(1, _DIMENSIONS // 4)

    def cls_pattern(self) -> Tensor:
        """float[marks]: what [CLS] has in the marks; orthogonal to all segments'."""
        blocks = _DIMENSIONS // 4
        signs = torch.tensor([1.0, -1.0]).repeat(blocks // 2 + 1)[:blocks]
        signs[blocks - blocks % 2 :] = 0.0
        return (signs[:, None] * torch.tensor(_ROWS[0])).flatten()


def shape_of(model: BertForSequenceClassification) -> MarkedShape:
    """The shape of a model with marks."""
    segments, heads = model.config.type_vocab_size, model.config.num_attention_heads - 1
    return MarkedShape(heads * (model.config.hidden_size // (heads + 1) - segments), heads, segments)


def layers_of(model: BertModel) -> list[BertLayer]:
    """A model's layers, from the first."""
    return cast(list[BertLayer], list(model.encoder.layer))


def embeddings_of(model: BertModel) -> BertEmbeddings:
    """What a model begins with."""
    return model.embeddings


@torch.no_grad()
def mark_tokens(model: BertForSequenceClassification, shape: MarkedShape, cls_id: int) -> None:
    """Writes the marks to the token types, and [CLS]'s own to its word; their other dimensions stay."""
    embeddings, patterns = embeddings_of(model.bert), shape.patterns()
    embeddings.token_type_embeddings.weight[:, shape.marks] = SIZE * patterns
    embeddings.word_embeddings.weight[cls_id, shape.marks] = SIZE * (_CLS_SIZE * shape.cls_pattern() - patterns[0])


@torch.no_grad()
def keep_apart(layer: BertLayer, shape: MarkedShape, seen: Tensor) -> None:
    """Makes every head of a layer attend only where it may.

    Args:
        layer: its marks' weights are 0.
        shape: where the marks are.
        seen: bool[segments, segments], whether tokens of a segment (row) see those of another (column).
    """
    for head in range(shape.heads):
        keep_rows_apart(layer, shape, shape.mark_rows(head), seen)


@torch.no_grad()
def keep_rows_apart(layer: BertLayer, shape: MarkedShape, rows: slice, seen: Tensor) -> None:
    """As `keep_apart`, for one head, by the rows given, one for each segment."""
    patterns, weight = shape.patterns(), _weight(shape)
    layer.attention.self.query.weight[rows, shape.marks] = -weight * patterns
    layer.attention.self.key.weight[rows, shape.marks] = weight * (~seen).float() @ patterns


@torch.no_grad()
def refresh(model: BertForSequenceClassification, shape: MarkedShape) -> None:
    """Makes the first layers write the marks that they read, and keeps [CLS], which has none, from taking others'."""
    patterns = shape.patterns()
    for layer in layers_of(model.bert)[:_REFRESHING]:
        for head in range(shape.heads):
            rows = shape.mark_rows(head)
            layer.attention.self.query.weight[rows, shape.marks] -= _weight(shape) * shape.cls_pattern()
            layer.attention.self.value.weight[rows, shape.marks] = patterns / patterns.shape[1]
            layer.attention.output.dense.weight[shape.marks, rows] = _REFRESHED / shape.heads * patterns.T


@torch.no_grad()
def look_at(layer: BertLayer, shape: MarkedShape, row: int, segment: int) -> None:
    """Makes a head, of which a row is given, attend to one segment and [CLS], whatever token asks."""
    patterns = shape.patterns()
    others = patterns.sum(dim=0) - patterns[segment]
    layer.attention.self.query.bias[row] = -_refusal(shape)
    layer.attention.self.key.weight[row, shape.marks] = _weight(shape) * others


@torch.no_grad()
def size_marks(
    model: BertForSequenceClassification, shape: MarkedShape, inputs: Mapping[str, Tensor], layers: int
) -> None:
    """Sets what the norms multiply the marks by, so that on average they have one size after each of the first layers.

    Args:
        model: a model with marks.
        shape: where they are.
        inputs: a batch of real inputs, as the model takes them.
        layers: how many.
    """
    real = inputs["attention_mask"].bool()
    for norm in norms_of(model, layers):
        marks = outputs_of(model, norm, inputs)[real][:, shape.marks]
        norm.weight[shape.marks] *= SIZE / marks.std(dim=1, correction=0).mean()


def norms_of(model: BertForSequenceClassification, layers: int) -> list[nn.LayerNorm]:
    """The norms of the embeddings and of the first layers, in their order."""
    norms: list[nn.LayerNorm] = [embeddings_of(model.bert).LayerNorm]
    for layer in layers_of(model.bert)[:layers]:
        norms += [layer.attention.output.LayerNorm, layer.output.LayerNorm]
    return norms


class _Reached(Exception):
    """The part of a model that was wanted has run; the rest need not."""


def inputs_of(model: nn.Module, part: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
    """What a part of a model is given, as the model reads a batch."""
    return _reach(model, part, inputs, lambda given, _output: given[0])


def outputs_of(model: nn.Module, part: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
    """What a part of a model gives, as the model reads a batch."""
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


def train_last(model: BertForSequenceClassification, shape: MarkedShape) -> None:
    """Lets a training change which tokens are gathered in the last layer, as what, and how much words count beside.

    What is below is the bi-encoder's, which a short training would make worse; a little change of the marks would
    already make each segment blind to itself. What is above takes a distance, which duo does for either doc.
    """
    model.requires_grad_(False)
    attention, pooler = layers_of(model.bert)[-1].attention.self, model.bert.pooler
    assert pooler is not None
    own, beside = slice(0, shape.own), slice(shape.own, None)
    not_own = torch.cat([shape.all_mark_rows(), torch.arange(shape.width)[shape.word_rows]])
    idle = (attention.value.weight[:, own] == 0).all(dim=1)
    for part in (attention.key, attention.value):
        _train(part.weight, but=((not_own,), (idle,), (slice(None), beside)))
    for part in (attention.query, attention.value):
        _train(part.bias, but=((not_own,), (idle,)))
    _train(pooler.dense.weight, but=((slice(None), own),))
    _train(pooler.dense.bias, but=())
    model.classifier.requires_grad_(True)


def _train(parameter: Tensor, but: tuple[tuple[slice | Tensor, ...], ...]) -> None:
    """Lets a training change a parameter but for some places."""
    mask = torch.ones_like(parameter)
    for place in but:
        mask[place] = 0
    train_where(parameter, mask)


def train_where(parameter: Tensor, mask: Tensor) -> None:
    """Lets a training change a parameter where a mask of its shape is 1, and not where it is 0."""
    parameter.requires_grad_(True)
    parameter.register_hook(lambda gradient: gradient * mask)  # type: ignore[no-untyped-call]


def _refusal(shape: MarkedShape) -> float:
    """What is in a query, with a minus, and in a key that it shall not attend to."""
    return math.sqrt(_APART * math.sqrt(shape.head))


def _weight(shape: MarkedShape) -> float:
    """What marks of usual size are multiplied by to be a refusal."""
    return _refusal(shape) / (SIZE * _DIMENSIONS)
