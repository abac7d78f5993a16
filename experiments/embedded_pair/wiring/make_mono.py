"""A monoBERT made of a bi-encoder's weights, whose score approximates a given one without training
on labels.

The bi-encoder's layers come first and read query and doc apart (`segment_marks`), with one more
head that finds shared words (`shared_words`) and bigrams (`bigrams`). In one more layer, [CLS]
gathers the mean of each segment. The classifier reads the distance of the two means and the sum
over the shared words.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, BertModel
from transformers.models.bert.modeling_bert import BertLayer

from experiments.embedded_pair.wiring.bigrams import find_bigrams, see_before, write_places
from experiments.embedded_pair.wiring.segment_marks import (
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
from experiments.embedded_pair.wiring.shared_words import (
    dims_of,
    find_words,
    raise_total,
    read_number,
    size_words,
    sum_found,
    write_words,
)

# How much larger than [CLS]'s own state the means are made. The words' sum is raised less: the norm
# divides by it too, and docs with many shared words would seem farther away.
_MEANS, WORDS = 250.0, 150.0
# GELU(x) + GELU(-x) is nearly proportional to x^2 for inputs of this size.
_SMALL = 0.4
# The standard deviation of the written distance. The last norm would squeeze everything else if it
# were much larger.
_WRITTEN = 0.3
# The pooler's units that carry the score, and the share of tanh's range that it uses.
_CARRIERS, _RANGE = 8, 0.2

# Writes the weights of a layer's last head, given the layer and its input states.
Head = Callable[[BertLayer, Tensor], None]


@dataclass(frozen=True)
class Example:
    """A batch of inputs of mono with the scores that it should give.

    Attributes:
        inputs: the batch, as transformers takes it.
        groups: int[n], equal for inputs of one query.
        scores: float[n], log-odds.
    """

    inputs: Mapping[str, Tensor]
    groups: Tensor
    scores: Tensor


def make_mono(
    encoder: BertModel,
    axes: Tensor,
    rarity: Tensor,
    edges: tuple[int, int],
    inputs: Mapping[str, Tensor],
    examples: Sequence[Example],
    generator: torch.Generator,
    distil: Callable[[BertForSequenceClassification, MarkedShape], None] | None = None,
) -> BertForSequenceClassification:
    """Makes the model.

    Args:
        encoder: the bi-encoder, whose embedding of a text is the mean over its tokens.
        axes: float[k, own], orthonormal rows: the directions in which embeddings are compared; 2 k
            <= intermediate size.
        rarity: float[vocabulary], idf.
        edges: the ids of [CLS] and [SEP].
        inputs: real inputs of mixed lengths, as transformers takes them, for setting sizes.
        examples: real inputs with the scores to fit.
        generator: draws the new weights.
        distil: trains the copied layers to reproduce the bi-encoder's states.
    """
    model, shape = wire_apart(encoder, edges[0])
    layers, across = layers_of(model.bert), ~torch.eye(2, dtype=torch.bool)
    write_places(model, shape)
    write_words(model, shape, rarity, edges, generator)
    size_marks(model, shape, inputs, len(layers) - 1)
    if distil:
        size_words(model, shape, inputs, len(layers) - 1)
        distil(model, shape)
        size_marks(model, shape, inputs, len(layers) - 1)
    heads: list[Head] = [
        lambda layer, states: see_before(layer, shape, states, inputs),
        lambda layer, states: find_words(layer, shape, across, 0, states, inputs),
        lambda layer, states: find_bigrams(layer, shape, across, 0, states, inputs),
        lambda layer, states: sum_found(layer, shape, states, inputs),
    ]
    write_heads(model, shape, heads, inputs)
    _gather_means(layers[-1], shape, axes, _sizes_of_means(model, shape, axes, inputs), generator)
    raise_total(layers[-1], shape, WORDS)
    axis = torch.arange(len(axes))
    write_distance(layers[-1], shape, axis, shape.own // 2 + axis, nearness=1.0)
    size_distance(model, shape, [each.inputs for each in examples])
    assert model.bert.pooler is not None
    model.bert.pooler.dense.weight.data.normal_(0.0, 0.02, generator=generator)
    groups, scores = (
        torch.cat([getattr(each, name) for each in examples]) for name in ("groups", "scores")
    )
    read_score(model, shape, [each.inputs for each in examples], groups, scores)
    return model


def wire_apart(
    encoder: BertModel, cls_id: int
) -> tuple[BertForSequenceClassification, MarkedShape]:
    """A mono that reads query and doc apart with a bi-encoder's layers; it has no words, and its
    last layer is 0.
    """
    shape = MarkedShape(encoder.config.hidden_size, encoder.config.num_attention_heads, segments=2)
    model = new_classifier(encoder.config, shape, encoder.config.num_hidden_layers + 1)
    copy_embeddings(model, encoder, shape)
    types = embeddings_of(encoder).token_type_embeddings.weight.detach()
    embeddings_of(model.bert).token_type_embeddings.weight.data[:, : shape.own] = types[0]
    mark_tokens(model, shape, cls_id)
    for new, old in zip(layers_of(model.bert)[:-1], layers_of(encoder), strict=True):
        copy_layer(new, old, shape, torch.arange(shape.own))
        keep_apart(new, shape, torch.eye(2, dtype=torch.bool))
    refresh(model, shape)
    return model, shape


@torch.no_grad()
def write_heads(
    model: BertForSequenceClassification,
    shape: MarkedShape,
    heads: Sequence[Head],
    inputs: Mapping[str, Tensor],
) -> None:
    """Writes the last head of each of the first layers, and sets the sizes of the words'
    dimensions.

    Args:
        model: a model whose first layers are complete otherwise.
        shape: where the dimensions are.
        heads: what writes the head, for the first layer, the second, ...
        inputs: real inputs of mixed lengths.
    """
    layers = layers_of(model.bert)
    for number, (write, part) in enumerate(
        zip(heads, [embeddings_of(model.bert), *layers], strict=False)
    ):
        size_words(model, shape, inputs, number)
        write(layers[number], outputs_of(model, part, inputs))
    size_words(model, shape, inputs, len(layers) - 1)


def new_classifier(
    config: BertConfig, shape: MarkedShape, layers: int
) -> BertForSequenceClassification:
    """A classifier with marks whose weights are all 0."""
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=config.vocab_size,
            hidden_size=shape.width,
            num_hidden_layers=layers,
            num_attention_heads=shape.heads + 1,
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
def copy_embeddings(
    model: BertForSequenceClassification, source: BertModel, shape: MarkedShape
) -> None:
    """Copies the word embeddings, position embeddings and norm."""
    new, old = embeddings_of(model.bert), embeddings_of(source)
    new.word_embeddings.weight[:, : shape.own] = old.word_embeddings.weight[:, : shape.own]
    new.position_embeddings.weight[:, : shape.own] = old.position_embeddings.weight[:, : shape.own]
    copy_norm(new.LayerNorm, old.LayerNorm, shape)


@torch.no_grad()
def copy_layer(new: BertLayer, old: BertLayer, shape: MarkedShape, old_rows: Tensor) -> None:
    """Copies the bi-encoder's part of a layer.

    Args:
        new: the layer to write to.
        old: a layer without marks, or with marks of another number of segments.
        shape: where the marks of `new` are.
        old_rows: int[own], the rows of query, key and value in `old` that are not marks.
    """
    rows, own = shape.own_rows(), shape.own
    old_head = old.attention.self.attention_head_size
    for name in ("query", "key", "value"):
        to, source = getattr(new.attention.self, name), getattr(old.attention.self, name)
        # Attention divides scores by the root of a head's dimensions, of which there are more now.
        scale = math.sqrt(shape.head / old_head) if name == "query" else 1.0
        to.weight[rows, :own] = scale * source.weight[old_rows, :own]
        to.bias[rows] = scale * source.bias[old_rows]
    new.attention.output.dense.weight[:own, rows] = old.attention.output.dense.weight[:own][
        :, old_rows
    ]
    new.intermediate.dense.weight[:, :own] = old.intermediate.dense.weight[:, :own]
    new.intermediate.dense.bias.copy_(old.intermediate.dense.bias)
    new.output.dense.weight[:own] = old.output.dense.weight[:own]
    for to, source in ((new.attention.output, old.attention.output), (new.output, old.output)):
        to.dense.bias[:own] = source.dense.bias[:own]
        copy_norm(to.LayerNorm, source.LayerNorm, shape)


@torch.no_grad()
def copy_norm(new: nn.LayerNorm, old: nn.LayerNorm, shape: MarkedShape) -> None:
    """Copies a norm. The marks, nearly 0, lower the variance over all dimensions by their share of
    the width.
    """
    new.weight[: shape.own] = old.weight[: shape.own] * math.sqrt(old.weight.shape[0] / shape.width)
    new.bias[: shape.own] = old.bias[: shape.own]


def _sizes_of_means(
    model: BertForSequenceClassification,
    shape: MarkedShape,
    axes: Tensor,
    inputs: Mapping[str, Tensor],
) -> list[float]:
    """The mean size, along the axes, of the mean over query and [CLS], and of that over doc and
    [CLS].
    """
    states = outputs_of(model, layers_of(model.bert)[-2], inputs)[..., : shape.own]
    sizes = []
    for segment in (0, 1):
        of = inputs["attention_mask"].bool() & (inputs["token_type_ids"] == segment)
        of[:, 0] = True
        means = (states * of.unsqueeze(-1)).sum(dim=1) / of.sum(dim=1, keepdim=True)
        sizes.append(float((means @ axes.T).norm(dim=1).mean()))
    return sizes


@torch.no_grad()
def _gather_means(
    layer: BertLayer,
    shape: MarkedShape,
    axes: Tensor,
    sizes: Sequence[float],
    generator: torch.Generator,
) -> None:
    """Half of the heads gather the mean over the query, the others that over the doc, each along
    its part of the axes.

    [CLS] gets a random query vector that matches no key, so that later fine-tuning can turn the
    mean into a weighted one.
    """
    per_segment = shape.heads // 2
    all_axes = torch.cat([axes, torch.zeros(per_segment * shape.own_head - len(axes), shape.own)])
    for head in range(shape.heads):
        segment, part = divmod(head, per_segment)
        rows, taken = (
            shape.head_rows(head),
            slice(part * shape.own_head, (part + 1) * shape.own_head),
        )
        look_at(layer, shape, shape.mark_rows(head).start, segment)
        layer.attention.self.query.bias[rows].normal_(generator=generator)
        layer.attention.self.value.weight[rows, : shape.own] = all_axes[taken] / sizes[segment]
        to = slice(head * shape.own_head, (head + 1) * shape.own_head)
        layer.attention.output.dense.weight[to, rows] = _MEANS * torch.eye(shape.own_head)
    layer.attention.output.LayerNorm.weight[shape.own :] = 0.0
    total = dims_of(shape).total
    layer.attention.output.LayerNorm.weight[total : total + 2] = 1.0


@torch.no_grad()
def write_distance(
    layer: BertLayer,
    shape: MarkedShape,
    query: Tensor,
    doc: Tensor,
    nearness: float,
    pull: float = 1.0,
    first: int = 0,
) -> None:
    """Makes a layer write |a - pull b|^2 of the means that [CLS] gathered to the marks' dimensions,
    two units a square.

    With a pull of 1 it is an inner product, because the norm before it divides by |a|^2 + |b|^2.

    Args:
        layer: a layer in which these units are 0.
        shape: where the dimensions are.
        query: int[k], the dimensions of a.
        doc: int[k], the dimensions of b.
        nearness: the factor; above 0, a nearer doc gets a larger number.
        pull: the factor of b.
        first: the first of the 2 k units.
    """
    up, down = layer.intermediate.dense.weight, layer.output.dense.weight
    for sign in (1.0, -1.0):
        units = first + torch.arange(len(query))
        up[units, query] = sign * _SMALL
        up[units, doc] = -sign * pull * _SMALL
        down[shape.marks, first : first + len(query)] = -nearness * _score_signs(shape)[
            :, None
        ].expand(-1, len(query))
        first += len(query)


@torch.no_grad()
def size_distance(
    model: BertForSequenceClassification,
    shape: MarkedShape,
    batches: Sequence[Mapping[str, Tensor]],
) -> None:
    """Scales the written distance to a mean of 0 and a small deviation."""
    written, signs = layers_of(model.bert)[-1].output.dense, _score_signs(shape)
    sums = torch.cat(
        [outputs_of(model, written, inputs)[:, 0, shape.marks] * signs for inputs in batches]
    )
    deviation = sums.mean(dim=1).std() / _WRITTEN
    written.weight[shape.marks] /= deviation
    written.bias[shape.marks] = -sums.mean() / deviation * signs


@torch.no_grad()
def read_score(
    model: BertForSequenceClassification,
    shape: MarkedShape,
    batches: Sequence[Mapping[str, Tensor]],
    groups: Tensor,
    scores: Tensor,
) -> None:
    """Makes the classifier read the distance and the words, weighted by least squares to known
    scores within a group.

    Args:
        model: a model that is complete otherwise.
        shape: where the dimensions are.
        batches: real inputs.
        groups: int[n], equal for inputs that are compared.
        scores: float[n], log-odds.
    """
    states = torch.cat(
        [outputs_of(model, layers_of(model.bert)[-1], inputs)[:, 0] for inputs in batches]
    )
    signs, total = _score_signs(shape), dims_of(shape).total
    read = torch.stack(
        [(states[:, shape.marks] * signs).mean(dim=1), read_number(states, total)], dim=1
    )
    weights = torch.linalg.lstsq(_within(read, groups), _within(scores[:, None], groups)).solution[
        :, 0
    ]
    fitted = read @ weights
    assert model.bert.pooler is not None
    pooler, scale = model.bert.pooler.dense, _RANGE / fitted.std()
    pooler.weight[:_CARRIERS] = 0.0
    pooler.weight[:_CARRIERS, shape.marks] = scale * weights[0] / len(signs) * signs
    pooler.weight[:_CARRIERS, total] = scale * weights[1] / 2
    pooler.weight[:_CARRIERS, total + 1] = -scale * weights[1] / 2
    pooler.bias[:_CARRIERS] = -scale * fitted.mean()
    model.classifier.weight[:, :_CARRIERS] = torch.tensor([[-0.5], [0.5]]) / (_CARRIERS * scale)


def _within(values: Tensor, groups: Tensor) -> Tensor:
    """Values, float[n, c], minus the mean of their group."""
    means = torch.zeros(int(groups.max()) + 1, values.shape[1])
    counts = groups.bincount().clamp(min=1)[:, None]
    return values - (means.index_add(0, groups, values) / counts)[groups]


def _score_signs(shape: MarkedShape) -> Tensor:
    return shape.patterns()[0]


def _orthonormal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """float[rows, columns], random orthonormal rows."""
    orthonormal: Tensor = torch.linalg.qr(torch.randn(columns, rows, generator=generator)).Q
    return orthonormal.T


def principal_axes(embeddings: Tensor, counts: Sequence[int], generator: torch.Generator) -> Tensor:
    """float[sum of counts, d]: the principal directions of embeddings, float[n, d], rotated to
    equal variance.

    They are rotated within parts of `counts` directions, the largest first: duo has room for the
    first part only.
    """
    directions: Tensor = torch.linalg.svd(embeddings, full_matrices=False).Vh[: sum(counts)]
    turned = [
        _orthonormal(len(part), len(part), generator) @ part
        for part in torch.split(directions, list(counts))
    ]
    return torch.cat(turned)
