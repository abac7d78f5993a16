"""Bigrams that query and doc share: a rare name is often two common words.

In the first layer, the head for words attends to the previous token and copies part of its word's
code. After the layers that find words, it finds the tokens with the same word and the same previous
word, and adds the idf again. These are the ordered pairs of the sequential dependence model
(Metzler and Croft 2005), beside the single words of `shared_words`. A token's position is written
beside the marks; the code of the previous word goes to the same dimensions, so much larger that the
position no longer matters.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import BertForSequenceClassification
from transformers.models.bert.modeling_bert import BertLayer

from experiments.embedded_pair.wiring.segment_marks import SIZE, MarkedShape, embeddings_of
from experiments.embedded_pair.wiring.shared_words import (
    CENTERED,
    CODE_BITS,
    SAME,
    dims_of,
    mark_of_sep,
    read_to,
    take_idf,
    want_more,
)

# How fast a position rotates, in radians per token, in each of five planes. Found by search: no two
# of 512 positions agree in more than 0.7 in the mean.
_TURNS = (0.023, 0.166, 0.415, 0.9, 1.765)
# The size of a position beside a word's code.
_PLACE = 0.1
# How much more a token attends to the previous one than to one that agrees in nothing. Less
# agreement than _NEAR counts as worse than none, because tokens with small states have larger
# positions.
_LOOK, _NEAR = 300.0, 0.85
# The bits of a code that are compared: those of the word itself, and those of the previous word.
_ITSELF, _AHEAD = slice(0, 16), slice(CODE_BITS - 11, CODE_BITS)
# As in `shared_words`, for two words together: one of the two is often the same.
_OTHER = 0.87
# The weight of a word after the same previous word as in the query, beside its weight as a single
# word.
_PAIR_SHARE = 0.5


@torch.no_grad()
def write_places(model: BertForSequenceClassification, shape: MarkedShape) -> None:
    """Writes each position, and a 1, to the position embeddings."""
    table = embeddings_of(model.bert).position_embeddings.weight
    angles = torch.arange(len(table))[:, None] * torch.tensor(_TURNS)[None]
    places = torch.cat([angles.cos(), angles.sin(), torch.ones(len(table), 1)], dim=1)
    table[:, shape.places] = (
        _PLACE * SIZE * math.sqrt(2.0) * places @ _directions(shape)[: places.shape[1]]
    )


@torch.no_grad()
def see_before(
    layer: BertLayer, shape: MarkedShape, states: Tensor, inputs: Mapping[str, Tensor]
) -> None:
    """Makes the first layer's last head, whose weights are 0, copy part of the code of the word
    before each token.

    Args:
        layer: the first layer, where all codes have one size.
        shape: where the dimensions are.
        states: float[n, t, width], the input of the layer.
        inputs: the real inputs that the states belong to.
    """
    dims, first, attention = dims_of(shape), shape.word_rows.start, layer.attention.self
    real = states[inputs["attention_mask"].bool()]
    scale, turns, free = math.sqrt(shape.head), torch.tensor(_TURNS), _directions(shape)
    directions = free[: 2 * len(turns) + 1]
    size = (real[:, shape.places] @ directions[:-1].T).square().sum(dim=1).sqrt().median()
    asked = math.sqrt(_LOOK * scale) / size
    rows = slice(first, first + len(directions))
    attention.key.weight[rows, shape.places] = asked * directions
    attention.query.weight[rows, shape.places] = asked * _just_before(turns) @ directions
    # [SEP] attends to [SEP], which has no code: the word before it is not part of a bigram.
    strength = math.sqrt(2 * _LOOK * scale) / mark_of_sep(real, dims)
    read_to(attention.query.weight[rows.stop], dims.sep, strength)
    read_to(attention.key.weight[rows.stop], dims.sep, strength)
    taken = CENTERED[_AHEAD]
    bits = (real[:, dims.code] @ taken.T).square().mean(dim=1).sqrt().median()
    attention.value.weight[first : first + len(taken), dims.code] = taken
    layer.attention.output.dense.weight[shape.places, first : first + len(taken)] = (
        SIZE / bits * free[: len(taken)].T
    )


@torch.no_grad()
def find_bigrams(
    layer: BertLayer,
    shape: MarkedShape,
    seen: Tensor,
    doc: int,
    states: Tensor,
    inputs: Mapping[str, Tensor],
) -> None:
    """Makes a layer's last head find each token with the same previous word, and add a share of its
    idf to `found`.

    The arguments are those of `find_words`.
    """
    dims, first, attention = dims_of(shape), shape.word_rows.start, layer.attention.self
    real, scale = states[inputs["attention_mask"].bool()], math.sqrt(shape.head)
    before = _directions(shape)[: len(CENTERED[_AHEAD])]
    row = first
    for read, places in ((CENTERED[_ITSELF], dims.code), (before, shape.places)):
        size = (real[:, places] @ read.T).square().sum(dim=1).sqrt().median()
        rows = slice(row, row + len(read))
        for part in (attention.query, attention.key):
            part.weight[rows, places] = math.sqrt(SAME * scale) / size * read
        row = rows.stop
    want_more(layer, shape, seen, row, _OTHER * 2 * SAME * scale, real)
    take_idf(layer, shape, doc, _PAIR_SHARE)


def _just_before(turns: Tensor) -> Tensor:
    """float[2 k + 1, 2 k + 1]: maps a position to that of the previous token, and its 1 to what
    opposes all tokens.
    """
    cosines, sines = turns.cos().diag(), turns.sin().diag()
    turned = torch.zeros(2 * len(turns) + 1, 2 * len(turns) + 1)
    turned[:-1, :-1] = torch.cat(
        [torch.cat([cosines, sines], dim=1), torch.cat([-sines, cosines], dim=1)]
    )
    turned[-1, -1] = -_NEAR * len(turns)
    return turned


def _directions(shape: MarkedShape) -> Tensor:
    """float[n - 1, n], orthonormal directions of mean 0 in the dimensions for positions: LayerNorm
    keeps them.
    """
    count = shape.places.stop - shape.places.start
    directions: Tensor = torch.linalg.qr(
        torch.ones(count, 1, dtype=torch.float64), mode="complete"
    ).Q
    return directions.T[1:].float()
