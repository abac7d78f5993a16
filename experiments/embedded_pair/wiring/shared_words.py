"""A new attention head that finds the words which query and doc share, and sums their idf.

The means of two texts say little about a rare name that occurs in both. So each word of the
vocabulary gets a random code in a few added dimensions, and its rarity (idf) beside it. In an early
layer, one added head lets a token of the query find the same word in the doc and copies that word's
idf; later, [CLS] takes the sum over all of them. This is BM25 without term counts and lengths.

LayerNorm subtracts from all dimensions a mean that differs from token to token. So every number is
written twice, once positive and once negative, and the difference is read: codes have equally many
bits of either sign, numbers a twin.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import BertForSequenceClassification
from transformers.models.bert.modeling_bert import BertLayer

from experiments.embedded_pair.wiring.segment_marks import (
    SIZE,
    MarkedShape,
    embeddings_of,
    inputs_of,
    keep_rows_apart,
    look_at,
    norms_of,
    shape_of,
)

# The weight of the rarest word of the vocabulary beside the cosine, if query and doc share it;
# others by their idf.
WORDS_SHARE = 0.15
CODE_BITS = 22
# The attention score of a word with itself, and the share of it that is subtracted for any two
# words: two words whose codes differ in two bits score .82 of it. A token that finds nothing
# attends to [SEP], which scores slightly above 0.
SAME, _OTHER, _NONE = 300.0, 0.9, 10.0
# Subtracts the mean from the bits of a code.
CENTERED = torch.eye(CODE_BITS) - 1 / CODE_BITS
# The head attends to [CLS] this much more than to each word of the query: it yields a sum, not a
# mean.
_SINK = 200.0


@dataclass(frozen=True)
class WordDims:
    """The dimensions of a hidden state that words use, from `first`; the twin of a number is the
    dimension after it.
    """

    first: int

    @property
    def code(self) -> slice:
        """A word's random code; [CLS] and [SEP] have none."""
        return slice(self.first, self.first + CODE_BITS)

    @property
    def idf(self) -> int:
        """A word's rarity."""
        return self.first + CODE_BITS

    @property
    def word(self) -> int:
        """The same number in all words, 0 in [CLS] and [SEP]."""
        return self.idf + 2

    @property
    def sep(self) -> int:
        """Positive in [SEP], 0 elsewhere."""
        return self.idf + 4

    @property
    def found(self) -> tuple[int, int]:
        """The idf of the same word in the first doc, and in the second doc if there is one."""
        return self.idf + 6, self.idf + 8

    @property
    def total(self) -> int:
        """In [CLS]: the sum of `found` over the query."""
        return self.idf + 10


def dims_of(shape: MarkedShape) -> WordDims:
    """The dimensions that words use in a BERT of this shape."""
    return WordDims(shape.words.start)


def rarities(ids: Iterable[list[int]], vocabulary: int) -> NDArray[np.float32]:
    """float32[vocabulary], the idf of every word over some texts, scaled to 0..1; `ids` are the
    words of each text.
    """
    texts, holders = 0, np.zeros(vocabulary)
    for each in ids:
        texts += 1
        holders[list(set(each))] += 1
    idf = np.log1p((texts - holders + 0.5) / (holders + 0.5)).astype(np.float32)
    shares: NDArray[np.float32] = idf / idf.max()
    return shares


def shared_rarity(inputs: Mapping[str, Tensor], rarity: Tensor, edges: tuple[int, int]) -> Tensor:
    """float[n], the summed rarity of the query's words that occur in the doc.

    Args:
        inputs: inputs of mono, as transformers takes them.
        rarity: float[vocabulary], idf.
        edges: the ids of [CLS] and [SEP].
    """
    ids, in_doc = inputs["input_ids"], inputs["token_type_ids"] == 1
    of_query = ~in_doc & inputs["attention_mask"].bool() & ~torch.isin(ids, torch.tensor(edges))
    found = ((ids[:, :, None] == ids[:, None, :]) & in_doc[:, None, :]).any(dim=2) & of_query
    return (rarity[ids] * found).sum(dim=1)


def read_number(states: Tensor, dim: int) -> Tensor:
    """Reads a number and its twin from hidden states, float[..., width] -> float[...]."""
    return (states[..., dim] - states[..., dim + 1]) / 2


@torch.no_grad()
def write_words(
    model: BertForSequenceClassification,
    shape: MarkedShape,
    rarity: Tensor,
    edges: tuple[int, int],
    generator: torch.Generator,
) -> None:
    """Writes every word's code and idf to the word embeddings.

    Args:
        model: a model whose other dimensions are complete.
        shape: where the dimensions are.
        rarity: float[vocabulary], idf.
        edges: the ids of [CLS] and [SEP].
        generator: draws the codes.
    """
    embeddings, dims, own = embeddings_of(model.bert), dims_of(shape), slice(0, shape.own)
    table = embeddings.word_embeddings.weight
    added = (
        embeddings.position_embeddings.weight[:, own].mean(dim=0)
        + embeddings.token_type_embeddings.weight[0, own]
    )
    # LayerNorm divides a token by its size; multiplying by that size first makes all words come out
    # alike.
    size = (table[:, own] + added).std(dim=1, correction=0)
    size = SIZE * size / size.mean()
    ranks = torch.rand(len(table), CODE_BITS, generator=generator).argsort(dim=1)
    table[:, dims.code] = torch.where(ranks < CODE_BITS // 2, size[:, None], -size[:, None])
    write_to(table, dims.idf, size * rarity)
    write_to(table, dims.word, size)
    table[list(edges), shape.words] = 0.0
    write_to(table[edges[1]], dims.sep, size[edges[1]])


def has_words(model: BertForSequenceClassification) -> bool:
    """Whether a model's word embeddings are laid out as `write_words` does it."""
    shape = shape_of(model)
    dims, table = dims_of(shape), embeddings_of(model.bert).word_embeddings.weight.detach()
    if dims.total + 2 > shape.width:
        return False
    sizes = table[:, dims.word]
    return bool((table[:, dims.code].abs() == sizes[:, None]).all() and sizes.any())


@torch.no_grad()
def find_words(
    layer: BertLayer,
    shape: MarkedShape,
    seen: Tensor,
    doc: int,
    states: Tensor,
    inputs: Mapping[str, Tensor],
) -> None:
    """Makes a layer's last head, whose weights are 0, find each token's word in the segments it
    sees and copy its idf.

    Args:
        layer: the layer.
        shape: where the dimensions are.
        seen: bool[segments, segments], whether tokens of a segment (row) see those of another
            (column).
        doc: 0 or 1, the doc whose `found` is written.
        states: float[n, t, width], the input of the layer.
        inputs: the real inputs that the states belong to.
    """
    dims, first, attention = dims_of(shape), shape.word_rows.start, layer.attention.self
    scale = math.sqrt(shape.head)
    real = states[inputs["attention_mask"].bool()]
    codes = real[:, dims.code] @ CENTERED
    size = codes.square().mean(dim=1).sqrt().median()
    for part in (attention.query, attention.key):
        part.weight[first : first + CODE_BITS, dims.code] = (
            math.sqrt(SAME * scale / CODE_BITS) / size * CENTERED
        )
    want_more(layer, shape, seen, first + CODE_BITS, _OTHER * SAME * scale, real)
    take_idf(layer, shape, doc, 1.0)


@torch.no_grad()
def want_more(
    layer: BertLayer, shape: MarkedShape, seen: Tensor, row: int, score: float, states: Tensor
) -> None:
    """Makes a layer's last head subtract a score from any two words, and attend to [SEP] where none
    score more.

    LayerNorm divides a token by its own deviation and shrinks the score of two words; what is
    subtracted shrinks alike. [SEP], which is not a word, always attends to [SEP]. The head is
    restricted to the segments that may be seen.

    Args:
        layer: the layer.
        shape: where the dimensions are.
        seen: bool[segments, segments], whether tokens of a segment (row) see those of another
            (column).
        row: the first of 2 + segments unused rows of query and key.
        score: what is subtracted from two words of mean size.
        states: float[n, width], tokens.
    """
    dims = dims_of(shape)
    words = read_number(states, dims.word)
    strength = math.sqrt(score) / float(words[words > words.max() / 8].median())
    read_to(layer.attention.self.query.weight[row], dims.word, strength)
    read_to(layer.attention.self.key.weight[row], dims.word, -strength)
    sep = mark_of_sep(states, dims)
    layer.attention.self.query.bias[row + 1] = _NONE * math.sqrt(
        layer.attention.self.attention_head_size
    )
    read_to(layer.attention.self.query.weight[row + 1], dims.sep, score / sep)
    read_to(layer.attention.self.key.weight[row + 1], dims.sep, 1 / sep)
    keep_rows_apart(layer, shape, slice(row + 2, row + 2 + shape.segments), seen)


@torch.no_grad()
def take_idf(layer: BertLayer, shape: MarkedShape, doc: int, share: float) -> None:
    """Makes a layer's last head add a share of the attended word's idf to `found` of a doc, 0
    or 1.
    """
    dims, first = dims_of(shape), shape.word_rows.start
    read_to(layer.attention.self.value.weight[first], dims.idf, 1.0)
    write_to(layer.attention.output.dense.weight[:, first], dims.found[doc], torch.tensor(share))


@torch.no_grad()
def sum_found(
    layer: BertLayer, shape: MarkedShape, states: Tensor, inputs: Mapping[str, Tensor]
) -> None:
    """Makes a layer's last head, whose weights are 0, sum `found` over the query; the second doc
    counts negative.

    [CLS] takes the sum to the last layer. The norms between divide the states of query words by
    sizes that differ from query to query, so there the same sum would weigh more in one query than
    in another.

    The second doc's sum is scaled to the size of the first's: it is found a layer later and passes
    fewer norms. A share of each word's own idf is subtracted, so that the sum is about 0 in the
    mean: later layers divide states by their size, and that must not change a sum that all docs of
    a query have.

    Args:
        layer: the layer.
        shape: where the dimensions are.
        states: float[n, t, width], the input of the layer.
        inputs: the real inputs that the states belong to; for duo, each pair of docs in both
            orders.
    """
    dims, first, attention = dims_of(shape), shape.word_rows.start, layer.attention.self
    real, scale = inputs["attention_mask"].bool(), math.sqrt(shape.head)
    # [CLS] is the sink: its states are much alike in all inputs, and the share of attention that
    # it gets is very sensitive to them.
    weights, bias = _tell_cls(states[..., : shape.own], real)
    attention.query.bias[first] = math.log(_SINK) * scale
    attention.key.weight[first, : shape.own] = weights
    attention.key.bias[first] = bias
    look_at(layer, shape, first + 1, segment=0)
    words = (inputs["token_type_ids"] == 0) & real
    found = [read_number(states[words], dim).sum() for dim in dims.found]
    read_to(attention.value.weight[first], dims.found[0], 1.0)
    if shape.segments == 3:
        read_to(attention.value.weight[first], dims.found[1], -float(found[0] / found[1]))
    else:
        share = found[0] / read_number(states[words], dims.idf).sum()
        read_to(attention.value.weight[first], dims.idf, -float(share))
    write_to(layer.attention.output.dense.weight[:, first], dims.total, torch.tensor(_SINK))


@torch.no_grad()
def raise_total(layer: BertLayer, shape: MarkedShape, factor: float) -> None:
    """Makes a layer's last head, whose weights are 0, multiply the sum in [CLS] by a factor."""
    dims, first = dims_of(shape), shape.word_rows.start
    look_at(layer, shape, first, segment=None)
    read_to(layer.attention.self.value.weight[first], dims.total, 1.0)
    write_to(layer.attention.output.dense.weight[:, first], dims.total, torch.tensor(factor))


@torch.no_grad()
def size_words(
    model: BertForSequenceClassification,
    shape: MarkedShape,
    inputs: Mapping[str, Tensor],
    layers: int,
) -> None:
    """Sets the norms' weights for the words' dimensions so that each keeps its size through the
    first layers.

    A norm divides each token by its own deviation. The mean weighs a token by the number that a
    dimension holds there, because [CLS] and [SEP] deviate much more than other tokens.

    Args:
        model: a model with words.
        shape: where the dimensions are.
        inputs: a batch of real inputs, as transformers takes them.
        layers: how many layers.
    """
    real, dims = inputs["attention_mask"].bool(), dims_of(shape)
    for norm in norms_of(model, layers):
        given = inputs_of(model, norm, inputs)[real]
        deviations = given.std(dim=1, correction=0)
        norm.weight[dims.code] = norm.weight[shape.places] = deviations.mean()
        for dim in (dims.idf, dims.word, dims.sep, *dims.found, dims.total):
            squares = read_number(given, dim).square()
            norm.weight[dim : dim + 2] = deviations @ squares / squares.sum().clamp(min=1e-12)


def _tell_cls(states: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Weights float[own] and a bias that map states to about 1 for [CLS] and 0 for other tokens, by
    least squares.

    Args:
        states: float[n, t, own].
        real: bool[n, t], which tokens are not padding.
    """
    is_cls = torch.zeros(real.shape, dtype=torch.float64)
    is_cls[:, 0] = 1.0
    known = torch.cat([states, torch.ones_like(states[..., :1])], dim=-1)[real].double()
    damped = known.T @ known + torch.eye(known.shape[1], dtype=known.dtype)
    weights = torch.linalg.solve(damped, known.T @ is_cls[real]).float()
    return weights[:-1], weights[-1]


def mark_of_sep(states: Tensor, dims: WordDims) -> float:
    """The number that tells [SEP] from other tokens: the mean over the [SEP]s among states,
    float[n, width].
    """
    marks = read_number(states, dims.sep)
    return float(marks[marks > marks.max() / 2].mean())


def read_to(row: Tensor, dim: int, factor: float) -> None:
    """Makes a row of weights, float[width], read a number times a factor."""
    row[dim], row[dim + 1] = factor / 2, -factor / 2


def write_to(places: Tensor, dim: int, value: Tensor) -> None:
    """Writes a number to its dimension and its twin: float[..., width] of states or tables,
    float[width] of weights.
    """
    places[..., dim], places[..., dim + 1] = value, -value
