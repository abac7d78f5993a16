"""A monoBERT made of a bi-encoder's weights: before any training its score is nearly the bi-encoder's cosine.

The bi-encoder's layers come first, query and doc apart (see `marks`). A layer follows in which tokens look at like
tokens of the other segment, and which writes nothing until it is trained. In the last one [CLS] gathers the mean of
either segment, and the inner products of the two are what the head reads.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, BertModel
from transformers.models.bert.modeling_bert import BertLayer

from models.training.embedded.marks import (
    MarkedShape,
    embeddings_of,
    keep_apart,
    layers_of,
    look_at,
    mark_tokens,
    outputs_of,
    refresh,
    size_marks,
)

# Like tokens score about so much more than unlike ones in the layer that compares them.
_LIKENESS = 10.0
# The means are made this much larger than what [CLS] itself says. A query's mean is the larger one, for [CLS] is in it.
_MEANS, _QUERY_SHARE = 20.0, 0.4
# GELU(x) + GELU(-x) is about proportional to x^2 for inputs of about this size.
_SMALL = 0.4
# Hidden units of the pooler that carry the score, and how much of tanh's range it takes.
_CARRIERS, _RANGE = 8, 0.2
_SCORE_DEVIATION = 3.0


def assemble_mono(
    encoder: BertModel, axes: Tensor, inputs: Mapping[str, Tensor], generator: torch.Generator
) -> BertForSequenceClassification:
    """Makes the model.

    Args:
        encoder: the bi-encoder: its embedding of a text is the mean over its tokens.
        axes: float[k, d], orthonormal rows: the directions of embeddings that are compared; 4 k <= intermediate size.
        inputs: a batch of real inputs of mono, as transformers takes them, that sizes are set by.
        generator: decides the new weights.
    """
    shape = MarkedShape(encoder.config.hidden_size, encoder.config.num_attention_heads, segments=2)
    model = new_classifier(encoder.config, shape, encoder.config.num_hidden_layers + 2)
    apart, across = torch.eye(2, dtype=torch.bool), ~torch.eye(2, dtype=torch.bool)
    layers = layers_of(model.bert)
    copy_embeddings(model, encoder, shape)
    types = embeddings_of(encoder).token_type_embeddings.weight.detach()
    embeddings_of(model.bert).token_type_embeddings.weight.data[:, : shape.own] = types[0]
    mark_tokens(model, shape)
    for new, old in zip(layers[:-2], layers_of(encoder), strict=True):
        copy_layer(new, old, shape, torch.arange(shape.own))
        keep_apart(new, shape, apart)
        refresh(new, shape)
    size_marks(model, shape, inputs, len(layers) - 2)
    states = outputs_of(model, layers[-3], inputs)[inputs["attention_mask"].bool()]
    _compare_tokens(layers[-2], shape, states, generator)
    keep_apart(layers[-2], shape, across)
    size_marks(model, shape, inputs, len(layers) - 1)
    _gather_means(layers[-1], shape, axes, generator)
    _multiply(layers[-1], shape, len(axes))
    _read_score(model, shape, inputs, generator)
    return model


def new_classifier(config: BertConfig, shape: MarkedShape, layers: int) -> BertForSequenceClassification:
    """A classifier with marks whose layers are all zeros."""
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=config.vocab_size,
            hidden_size=shape.width,
            num_hidden_layers=layers,
            num_attention_heads=shape.heads,
            intermediate_size=config.intermediate_size,
            max_position_embeddings=config.max_position_embeddings,
            type_vocab_size=shape.segments,
            layer_norm_eps=config.layer_norm_eps,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            id2label={0: "not_relevant", 1: "relevant"},
            label2id={"not_relevant": 0, "relevant": 1},
        )
    )
    for name, parameter in model.named_parameters():
        if not name.endswith("LayerNorm.weight"):
            parameter.data.zero_()
    model.train(False)
    return model


@torch.no_grad()
def copy_embeddings(model: BertForSequenceClassification, source: BertModel, shape: MarkedShape) -> None:
    """Copies words, positions and norm of a model's embeddings."""
    new, old = embeddings_of(model.bert), embeddings_of(source)
    new.word_embeddings.weight[:, : shape.own] = old.word_embeddings.weight[:, : shape.own]
    new.position_embeddings.weight[:, : shape.own] = old.position_embeddings.weight[:, : shape.own]
    copy_norm(new.LayerNorm, old.LayerNorm, shape)


@torch.no_grad()
def copy_layer(new: BertLayer, old: BertLayer, shape: MarkedShape, old_rows: Tensor) -> None:
    """Copies what a layer does to the dimensions that are no marks.

    Args:
        new: the layer to write to.
        old: a layer with marks of another number of segments, or without marks.
        shape: where the marks of `new` are.
        old_rows: int[own], the rows of query, key and value in `old` that are no marks.
    """
    rows, own = shape.own_rows(), shape.own
    old_head = old.attention.self.query.weight.shape[0] / shape.heads
    for name in ("query", "key", "value"):
        to, source = getattr(new.attention.self, name), getattr(old.attention.self, name)
        # Scores are divided by the root of a head's dimensions, of which there are more now.
        scale = math.sqrt(shape.head / old_head) if name == "query" else 1.0
        to.weight[rows, :own] = scale * source.weight[old_rows, :own]
        to.bias[rows] = scale * source.bias[old_rows]
    new.attention.output.dense.weight[:own, rows] = old.attention.output.dense.weight[:own][:, old_rows]
    new.intermediate.dense.weight[:, :own] = old.intermediate.dense.weight[:, :own]
    new.intermediate.dense.bias.copy_(old.intermediate.dense.bias)
    new.output.dense.weight[:own] = old.output.dense.weight[:own]
    for to, source in ((new.attention.output, old.attention.output), (new.output, old.output)):
        to.dense.bias[:own] = source.dense.bias[:own]
        copy_norm(to.LayerNorm, source.LayerNorm, shape)


@torch.no_grad()
def copy_norm(new: nn.LayerNorm, old: nn.LayerNorm, shape: MarkedShape) -> None:
    """Copies a norm; the marks, all but 0, make the variance over all dimensions smaller by their share of these."""
    new.weight[: shape.own] = old.weight[: shape.own] * math.sqrt(old.weight.shape[0] / shape.width)
    new.bias[: shape.own] = old.bias[: shape.own]


@torch.no_grad()
def _compare_tokens(layer: BertLayer, shape: MarkedShape, states: Tensor, generator: torch.Generator) -> None:
    """Queries and keys are the same random projections, so that like tokens find each other; norms change little."""
    attention = layer.attention.self
    for head in range(shape.heads):
        rows = shape.head_rows(head)
        projection = _orthonormal(shape.own_head, shape.own, generator)
        projection -= projection.mean(dim=1, keepdim=True)
        projected = states[:, : shape.own] @ projection.T
        scale = math.sqrt(_LIKENESS * math.sqrt(shape.head) / projected.square().sum(dim=1).mean())
        attention.query.weight[rows, : shape.own] = scale * projection
        attention.key.weight[rows, : shape.own] = scale * projection
        attention.value.weight[rows, : shape.own] = _orthonormal(shape.own_head, shape.own, generator)
    layer.intermediate.dense.weight.normal_(0.0, 0.02, generator=generator)
    for norm in (layer.attention.output.LayerNorm, layer.output.LayerNorm):
        norm.weight.fill_(states.std(dim=1, correction=0).mean())
        norm.bias[: shape.own] = states.mean()


@torch.no_grad()
def _gather_means(layer: BertLayer, shape: MarkedShape, axes: Tensor, generator: torch.Generator) -> None:
    """Half of the heads take the mean over the query, the others that over the doc, each its part of the axes."""
    per_segment = shape.heads // 2
    wanted = per_segment * shape.own_head
    directions = torch.cat([axes, _orthonormal(max(0, wanted - len(axes)), shape.own, generator)])[:wanted]
    for head in range(shape.heads):
        segment, part = divmod(head, per_segment)
        rows = shape.head_rows(head)
        look_at(layer, shape, head, segment)
        layer.attention.self.value.weight[rows, : shape.own] = directions[
            part * shape.own_head : (part + 1) * shape.own_head
        ]
        scale = _MEANS * (_QUERY_SHARE if segment == 0 else 1.0)
        to = slice(head * shape.own_head, (head + 1) * shape.own_head)
        layer.attention.output.dense.weight[to, rows] = scale * torch.eye(shape.own_head)
    layer.attention.output.LayerNorm.weight[shape.marks] = 0.0


@torch.no_grad()
def _multiply(layer: BertLayer, shape: MarkedShape, axes: int) -> None:
    """The products ((a + b)^2 - (a - b)^2) / 4 of all axes, a square in two units; their sum goes where marks were."""
    up, down = layer.intermediate.dense.weight, layer.output.dense.weight
    signs = _score_signs(shape)
    for number, (sign, product) in enumerate(((1, 1), (-1, 1), (1, -1), (-1, -1))):
        units, axis = number * axes + torch.arange(axes), torch.arange(axes)
        up[units, axis] = sign * _SMALL
        up[units, shape.own // 2 + axis] = sign * product * _SMALL
        down[shape.marks, units[0] : units[-1] + 1] = (product / _SMALL**2 * signs)[:, None].expand(-1, axes)


@torch.no_grad()
def _read_score(
    model: BertForSequenceClassification, shape: MarkedShape, inputs: Mapping[str, Tensor], generator: torch.Generator
) -> None:
    """Log-odds with a mean of 0 and a standard deviation of 3 over the batch."""
    written = layers_of(model.bert)[-1].output.dense
    signs = _score_signs(shape)
    scores = (outputs_of(model, written, inputs)[:, 0, shape.marks] * signs).mean(dim=1)
    written.weight[shape.marks] /= scores.std()
    written.bias[shape.marks] = -scores.mean() / scores.std() * signs
    assert model.bert.pooler is not None
    pooler, classifier = model.bert.pooler.dense, model.classifier
    pooler.weight.normal_(0.0, 0.02, generator=generator)
    pooler.weight[:_CARRIERS] = 0.0
    pooler.weight[:_CARRIERS, shape.marks] = _RANGE / len(signs) * signs
    half = _SCORE_DEVIATION / (_CARRIERS * _RANGE) / 2
    classifier.weight[:, :_CARRIERS] = torch.tensor([[-half], [half]])


def _score_signs(shape: MarkedShape) -> Tensor:
    return shape.patterns()[0]


def _orthonormal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """float[rows, columns], random orthonormal rows."""
    if not rows:
        return torch.zeros(0, columns)
    orthonormal: Tensor = torch.linalg.qr(torch.randn(columns, rows, generator=generator)).Q
    return orthonormal.T


def principal_axes(embeddings: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """float[count, d]: where embeddings, float[n, d], are largest, turned so that each is as large."""
    directions: Tensor = torch.linalg.svd(embeddings, full_matrices=False).Vh[:count]
    return _orthonormal(count, count, generator) @ directions
