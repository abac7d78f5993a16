"""The embedded pair from groups of questions and passages: a mono from the bi-encoder, a duo from
the mono.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import BertForSequenceClassification

from beamrank.errors import ConfigError, DataError
from beamrank.notes import Progress
from beamrank.ranking.input_layout import MAX_DOC_TOKENS, InputLimits
from experiments.embedded_pair.bi_encoder import BiEncoder, Embeds, encoder_inputs, load_encoder
from experiments.embedded_pair.wiring import make_duo as duo
from experiments.embedded_pair.wiring.layer_distillation import distil_layers
from experiments.embedded_pair.wiring.make_mono import Example, make_mono, principal_axes
from experiments.embedded_pair.wiring.pruning import prune_units
from experiments.embedded_pair.wiring.shared_words import (
    WORDS_SHARE,
    has_words,
    rarities,
    shared_rarity,
)
from models.scoring.backends.torch import resolve_dtype
from models.tokenizers.bert import BertTokenizer, load_bert
from models.training.data.groups import Group, InputEncoder, Texts
from models.training.tasks import score

_T = TypeVar("_T")

_MAX_QUERY_LENGTH = 34
_TOKEN_BUDGET = 4096
_UNITS = 512
# Duo has heads for the first part only.
_AXES = (128, 64)
# How many texts pruning and axes are fitted on, how many inputs duo's score is fitted on, how many
# groups mono's score is fitted on with how many docs each, and how many groups set the sizes.
_TEXTS, _INPUTS = 1600, 800
_GROUPS, _DOCS = 400, 4
_SIZED = 16
_TEMPERATURE = 20.0
# The weight of `combine` after a strong first stage. After a dense run of all-MiniLM-L6-v2, .3, .5,
# .7 and .8 differ by .002 nDCG@10 on 50 of NFCorpus' dev queries, with the mono that commit
# 7c2814b3 makes.
_COMBINE_WEIGHT = 0.5
# Pairs that are sorted by length together.
_SORTED = 512


def wired_mono(
    bi_encoder: str,
    groups: Sequence[Group],
    max_length: int,
    distilled: int,
    seed: int,
    progress: Progress,
) -> BertForSequenceClassification:
    """Prunes a bi-encoder, wires it into a mono, and distils its layers.

    Args:
        bi_encoder: its folder.
        groups: what to fit on.
        max_length: tokens of an input.
        distilled: how many pairs the layers are distilled on.
        seed: decides new weights, and the order of the pairs.
        progress: receives each step of the distillation.

    Raises:
        DataError: there are too few groups.
    """
    texts = _sample([text for group in groups for text in (group.query, group.docs[0])], _TEXTS)
    if len(texts) < sum(_AXES):
        raise DataError(
            f"{len(groups)} questions give {len(texts)} texts, and embeddings are compared in "
            f"{sum(_AXES)} directions, which need as many texts: give more --questions, "
            "--articles or --files"
        )
    tokenizer, model = load_bert(bi_encoder), load_encoder(bi_encoder)
    encoder, embeds = make_encoder(tokenizer, max_length), BiEncoder(bi_encoder)
    prune_units(model, [inputs for _, inputs in encoder_inputs(tokenizer, texts)], _UNITS)
    generator = torch.Generator().manual_seed(seed)
    axes = principal_axes(torch.from_numpy(embeds.docs(texts)), _AXES, generator)
    docs = sorted({doc for group in groups for doc in group.docs})
    rarity = torch.from_numpy(
        rarities(tokenizer.encode(docs, MAX_DOC_TOKENS).ids.to_pylist(), model.config.vocab_size)
    )
    edges = (tokenizer.special.cls_id, tokenizer.special.sep_id)
    examples = make_examples(_sample(groups, _GROUPS), encoder, embeds, rarity, edges)
    pairs = [(group.query, doc) for group in _sample(groups, _SIZED) for doc in group.docs[:_DOCS]]
    distil = functools.partial(
        distil_layers,
        encoder=load_encoder(bi_encoder),
        batches=distillation_batches(groups, encoder, distilled, seed),
        dtype=getattr(torch, resolve_dtype("auto", "cpu")),
        progress=progress,
    )
    mono = make_mono(
        model, axes, rarity, edges, mixed_batch(encoder, pairs), examples, generator, distil
    )
    mono.config.update({"beamrank": {"combine_weight": _COMBINE_WEIGHT}})
    return mono


def wired_duo(mono: str, groups: Sequence[Group], max_length: int) -> BertForSequenceClassification:
    """Wires a duo from a mono of `wired_mono`, a folder; z_ij is fitted on the groups.

    Raises:
        ConfigError: the folder holds another mono.
    """
    model: BertForSequenceClassification = BertForSequenceClassification.from_pretrained(
        mono, dtype=torch.float32
    )
    model.train(False)
    check_wired(model, mono)
    tokenizer = load_bert(mono)
    encoder = make_encoder(tokenizer, max_length)
    triples = _triples(_sample(groups, _INPUTS // 4))
    batches = list(encoder.batches(triples))
    with torch.inference_mode():
        firsts, seconds = (
            score(model, encoder, [(triple[0], triple[place]) for triple in triples])
            for place in (1, 2)
        )
    rows = torch.cat([torch.from_numpy(batch.rows) for batch in batches])
    sized = mixed_batch(encoder, _triples(_sample(groups, _SIZED)))
    tensors = [batch.tensors for batch in batches]
    return duo.make_duo(model, tokenizer.special.cls_id, sized, tensors, (firsts - seconds)[rows])


def check_wired(model: BertForSequenceClassification, folder: str) -> None:
    """Checks that a mono has the dimensions which the wiring of a duo reads.

    Raises:
        ConfigError: it does not.
    """
    if model.config.type_vocab_size != 2 or not has_words(model):
        raise ConfigError(
            f"{folder} is not a mono of this recipe, so the meaning of its dimensions is unknown: "
            "make one from the bi-encoder first, with `python -m experiments.embedded_pair mono`"
        )


def make_encoder(tokenizer: BertTokenizer, max_length: int) -> InputEncoder:
    """Lays out inputs as the pair reads them."""
    return InputEncoder(
        tokenizer, InputLimits("original", _MAX_QUERY_LENGTH, max_length), _TOKEN_BUDGET
    )


def distillation_batches(
    groups: Sequence[Group], encoder: InputEncoder, count: int, seed: int
) -> list[Mapping[str, Tensor]]:
    """A random choice of `count` of the groups' pairs, in batches of similar lengths, the batches
    in random order.
    """
    rng = np.random.default_rng(seed)
    pairs = [(group.query, doc) for group in groups for doc in group.docs]
    chosen = [pairs[number] for number in rng.permutation(len(pairs))[:count]]
    batches = [
        batch.tensors
        for first in range(0, len(chosen), _SORTED)
        for batch in encoder.batches(chosen[first : first + _SORTED])
    ]
    return [batches[number] for number in rng.permutation(len(batches))]


def make_examples(
    groups: Sequence[Group],
    encoder: InputEncoder,
    embeds: Embeds,
    rarity: Tensor,
    edges: tuple[int, int],
) -> list[Example]:
    """Inputs of mono with the scores that it should give: the bi-encoder's cosine plus the idf of
    shared words.

    Args:
        groups: queries and docs.
        encoder: lays out the inputs.
        embeds: the bi-encoder.
        rarity: float[vocabulary], idf.
        edges: the ids of [CLS] and [SEP].
    """
    pairs = [(number, doc) for number, group in enumerate(groups) for doc in range(_DOCS)]
    inputs = [(groups[number].query, groups[number].docs[doc]) for number, doc in pairs]
    queries = torch.from_numpy(embeds.queries([query for query, _ in inputs]))
    docs = torch.from_numpy(embeds.docs([doc for _, doc in inputs]))
    numbers, cosines = torch.tensor([number for number, _ in pairs]), (queries * docs).sum(dim=1)
    examples = []
    for batch in encoder.batches(inputs):
        rows = torch.from_numpy(batch.rows)
        scores = cosines[rows] + WORDS_SHARE * shared_rarity(batch.tensors, rarity, edges)
        examples.append(Example(batch.tensors, numbers[rows], _TEMPERATURE * scores))
    return examples


def mixed_batch(encoder: InputEncoder, inputs: Sequence[Texts]) -> dict[str, Tensor]:
    """Inputs of any lengths as one batch."""
    batches = [batch.tensors for batch in encoder.batches(inputs)]
    width = max(batch["attention_mask"].shape[1] for batch in batches)
    return {
        name: torch.cat(
            [F.pad(batch[name], (0, width - batch[name].shape[1])) for batch in batches]
        )
        for name in batches[0]
    }


def _triples(groups: Sequence[Group]) -> list[Texts]:
    """Two pairs of each group's docs, in both orders."""
    orders = ((0, 1), (1, 0), (2, 3), (3, 2))
    return [
        (group.query, group.docs[one], group.docs[other])
        for group in groups
        for one, other in orders
    ]


def _sample(values: Sequence[_T], count: int) -> list[_T]:
    return list(values[:: max(1, len(values) // count)])[:count]
