"""Words that follow each other in the query and in the doc too: a rare name is often two common words.

In the first layer the head for words looks at the token before and takes part of its word's code; after the layers that
find words, it finds the tokens that have the same word before them as well as the same word, and takes the idf again.
That is the ordered pairs of the sequential dependence model (Metzler and Croft 2005), beside `words`' single ones.

Where a token stands is written beside the marks; what stands before it comes to the same dimensions, and so much larger
that what was there is no more seen.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import BertForSequenceClassification
from transformers.models.bert.modeling_bert import BertLayer

from experiments.embedded_pair.marks import SIZE, MarkedShape, embeddings_of
from experiments.embedded_pair.words import (
    CENTERED,
    CODE_BITS,
    SAME,
    dims_of,
    mark_of_sep,
    read_to,
    take_idf,
    want_more,
)

# How fast a place turns, in radians a token, in each of five planes: by a search for turns by which two tokens of
# 512 agree in no more than 0.7 on the mean.
_TURNS = (0.023, 0.166, 0.415, 0.9, 1.765)
# How large a place is beside a word's code.
_PLACE = 0.1
# How much more a token attends to the one before than to one that agrees in nothing; less agreement than this is worse
# than none, for tokens of small states say louder where they stand.
_LOOK, _NEAR = 300.0, 0.85
# Of a code, the bits that are compared of the word itself, and of the one before.
_ITSELF, _AHEAD = slice(0, 16), slice(CODE_BITS - 11, CODE_BITS)
# As for `words`, of the two together: of two words one is often the same.
_OTHER = 0.87
# What a word counts that follows the same word as in the query, beside what it counts by itself.
_PAIR_SHARE = 0.5


@torch.no_grad()
def write_places(model: BertForSequenceClassification, shape: MarkedShape) -> None:
    """Writes to the table of positions where each token stands, and a 1."""
    table = embeddings_of(model.bert).position_embeddings.weight
    angles = torch.arange(len(table))[:, None] * torch.tensor(_TURNS)[None]
    places = torch.cat([angles.cos(), angles.sin(), torch.ones(len(table), 1)], dim=1)
    table[:, shape.places] = _PLACE * SIZE * math.sqrt(2.0) * places @ _directions(shape)[: places.shape[1]]


@torch.no_grad()
def see_before(layer: BertLayer, shape: MarkedShape, states: Tensor, inputs: Mapping[str, Tensor]) -> None:
    """Makes a layer's last head take part of the code of the word before each token.

    Args:
        layer: the first, for there all codes are of one size; the head's weights are 0.
        shape: where dimensions are.
        states: float[n, t, width], what the layer is given.
        inputs: the real inputs that this is of.
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
    # [SEP] looks at [SEP], which has no code: what stands before it is no word of a pair.
    strength = math.sqrt(2 * _LOOK * scale) / mark_of_sep(real, dims)
    read_to(attention.query.weight[rows.stop], dims.sep, strength)
    read_to(attention.key.weight[rows.stop], dims.sep, strength)
    taken = CENTERED[_AHEAD]
    bits = (real[:, dims.code] @ taken.T).square().mean(dim=1).sqrt().median()
    attention.value.weight[first : first + len(taken), dims.code] = taken
    layer.attention.output.dense.weight[shape.places, first : first + len(taken)] = SIZE / bits * free[: len(taken)].T


@torch.no_grad()
def find_phrases(
    layer: BertLayer, shape: MarkedShape, seen: Tensor, doc: int, states: Tensor, inputs: Mapping[str, Tensor]
) -> None:
    """Makes a layer's last head find each token that follows the same word, and add a share of its idf to the found.

    Arguments as for `find_words`.
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
    """float[2 k + 1, 2 k + 1]: makes of a place that of the token before, and of its 1 what is against all."""
    cosines, sines = turns.cos().diag(), turns.sin().diag()
    turned = torch.zeros(2 * len(turns) + 1, 2 * len(turns) + 1)
    turned[:-1, :-1] = torch.cat([torch.cat([cosines, sines], dim=1), torch.cat([-sines, cosines], dim=1)])
    turned[-1, -1] = -_NEAR * len(turns)
    return turned


def _directions(shape: MarkedShape) -> Tensor:
    """float[n - 1, n], orthonormal: directions of the dimensions for places, of mean 0: no norm takes away of them."""
    count = shape.places.stop - shape.places.start
    directions: Tensor = torch.linalg.qr(torch.ones(count, 1, dtype=torch.float64), mode="complete").Q
    return directions.T[1:].float()
