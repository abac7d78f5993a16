"""The embedded pair as it is wired: a mono made of the bi-encoder, a duo made of the mono."""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from beamrank.errors import ConfigError, DataError
from beamrank.stages.plan import MAX_DOC_TOKENS
from beamrank.storage.local_writes import new_folder
from experiments.embedded_pair.assemble import Example, assemble_mono, principal_axes
from experiments.embedded_pair.contrast import make_duo
from experiments.embedded_pair.distil import TEMPERATURE, load_mono
from experiments.embedded_pair.imitation import Imitation, imitate_states
from experiments.embedded_pair.mining import Embed
from experiments.embedded_pair.pruning import prune_units
from experiments.embedded_pair.teacher import embed_texts, encoder_inputs, load_encoder
from experiments.embedded_pair.words import has_words, rarities, shared_rarity
from models.checkpoints.files import CONFIG
from models.tokenizer.bert import BertTokenizer, load_tokenizer
from models.training.data.encoding import InputEncoder, Texts
from models.training.data.examples import Group
from models.training.initial_model import save_checkpoint
from models.training.loop.tasks import Scorer

_T = TypeVar("_T")
EncoderOf = Callable[[BertTokenizer], InputEncoder]

_UNITS = 512
# Of these duo has heads for the first part.
_AXES = (128, 64)
# Texts that pruning and axes are fitted to; inputs that duo's score is fitted to; groups that mono's is fitted to, and
# how many docs of each; groups that sizes are set by.
_TEXTS, _INPUTS = 1600, 800
_GROUPS, _DOCS = 400, 4
_SIZED = 16
# What the vocabulary's rarest word counts beside the cosine if it is in common; another by its idf.
_WORDS_SHARE = 0.2
# Pairs that are sorted by length together.
_SORTED = 512


def is_bi_encoder(folder: str) -> bool:
    """Whether a folder holds an encoder alone, not a classifier."""
    config = json.loads(Path(folder, CONFIG).read_text(encoding="utf-8"))
    return bool(config.get("architectures") == ["BertModel"])


def check_wired(mono: str) -> None:
    """Raises unless a folder's mono is wired as here: a duo is made of no other, nor is another trained further.

    Raises:
        ConfigError: it is another.
    """
    model = load_mono(mono)
    if model.config.type_vocab_size != 2 or not has_words(model):
        raise ConfigError(
            f"{mono} is no mono that this version wired: what stands in its dimensions is not known, and would be "
            "read wrongly. Make one of the bi-encoder first, with `python -m experiments.embedded_pair mono`"
        )


def make_mono_start(
    bi_encoder: str, groups: Sequence[Group], encoder: EncoderOf, imitation: Imitation, folder: str, seed: int
) -> None:
    """Prunes a bi-encoder, makes a mono of it, and writes that with the bi-encoder's tokenizer.

    Args:
        bi_encoder: its folder.
        groups: what will be trained on; a sample of it is what the pruning loses least on.
        encoder: makes inputs of texts.
        imitation: how its layers are trained to give what they gave before they were pruned.
        folder: where to.
        seed: decides new weights, and what is trained on.

    Raises:
        DataError: there are too few groups.
    """
    tokenizer = load_tokenizer(bi_encoder)
    model = load_encoder(bi_encoder)
    texts = _sample([text for group in groups for text in (group.query, group.docs[0])], _TEXTS)
    if len(texts) < sum(_AXES):
        raise DataError(
            f"there are {len(texts)} texts of {len(groups)} questions, and the {sum(_AXES)} directions in which "
            "embeddings are compared are found in no fewer: give more --questions, --articles or --files"
        )
    prune_units(model, [inputs for _, inputs in encoder_inputs(tokenizer, texts)], _UNITS)
    generator = torch.Generator().manual_seed(seed)
    axes = principal_axes(torch.from_numpy(embed_texts(bi_encoder, texts)), _AXES, generator)
    docs = sorted({doc for group in groups for doc in group.docs})
    rarity = torch.from_numpy(rarities(tokenizer.encode(docs, MAX_DOC_TOKENS).ids.to_pylist(), model.config.vocab_size))
    embed = functools.partial(embed_texts, bi_encoder)
    edges = (tokenizer.cls_id, tokenizer.sep_id)
    examples = make_examples(_sample(groups, _GROUPS), encoder(tokenizer), embed, rarity, edges)
    pairs = [(group.query, doc) for group in _sample(groups, _SIZED) for doc in group.docs[:_DOCS]]
    sized = mixed_batch(encoder(tokenizer), pairs)
    batches = imitation_batches(groups, encoder(tokenizer), imitation.pairs, seed)
    imitate = functools.partial(imitate_states, encoder=load_encoder(bi_encoder), batches=batches, imitation=imitation)
    mono = assemble_mono(model, axes, rarity, edges, sized, examples, generator, imitate)
    _save(mono, bi_encoder, folder)


def imitation_batches(
    groups: Sequence[Group], encoder: InputEncoder, count: int, seed: int
) -> list[Mapping[str, Tensor]]:
    """So many of the groups' pairs in batches of about one length, these in a random order."""
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
    groups: Sequence[Group], encoder: InputEncoder, embed: Embed, rarity: Tensor, edges: tuple[int, int]
) -> list[Example]:
    """Inputs of mono with what they should score: the bi-encoder's cosine, and the idf of words in common.

    Args:
        groups: queries and docs.
        encoder: makes inputs of them.
        embed: texts to the bi-encoder's unit vectors.
        rarity: float[vocabulary], idf.
        edges: the ids of [CLS] and [SEP].
    """
    pairs = [(number, doc) for number, group in enumerate(groups) for doc in range(_DOCS)]
    inputs = [(groups[number].query, groups[number].docs[doc]) for number, doc in pairs]
    queries, docs = (torch.from_numpy(embed([pair[place] for pair in inputs])) for place in (0, 1))
    numbers, cosines = torch.tensor([number for number, _ in pairs]), (queries * docs).sum(dim=1)
    examples = []
    for batch in encoder.batches(inputs):
        rows = torch.from_numpy(batch.rows)
        scores = cosines[rows] + _WORDS_SHARE * shared_rarity(batch.tensors, rarity, edges)
        examples.append(Example(batch.tensors, numbers[rows], TEMPERATURE * scores))
    return examples


def make_duo_start(mono: str, groups: Sequence[Group], encoder: EncoderOf, folder: str) -> None:
    """Makes a duo of a mono, and writes it with the mono's tokenizer. Arguments as for `make_mono_start`."""
    model = load_mono(mono)
    tokenizer = load_tokenizer(mono)
    encode = encoder(tokenizer)
    triples = _triples(_sample(groups, _INPUTS // 4))
    batches = list(encode.batches(triples))
    score = Scorer(model, encode, "cpu", torch.float32)
    with torch.inference_mode():
        firsts, seconds = (score([(triple[0], triple[place]) for triple in triples]) for place in (1, 2))
    rows = torch.cat([torch.from_numpy(batch.rows) for batch in batches])
    sized = mixed_batch(encode, _triples(_sample(groups, _SIZED)))
    inputs, margins = [batch.tensors for batch in batches], (firsts - seconds)[rows]
    _save(make_duo(model, tokenizer.cls_id, sized, inputs, margins), mono, folder)


def mixed_batch(encoder: InputEncoder, inputs: Sequence[Texts]) -> dict[str, Tensor]:
    """Inputs of any lengths as one batch."""
    batches = [batch.tensors for batch in encoder.batches(inputs)]
    width = max(batch["attention_mask"].shape[1] for batch in batches)
    return {
        name: torch.cat([F.pad(batch[name], (0, width - batch[name].shape[1])) for batch in batches])
        for name in batches[0]
    }


def _triples(groups: Sequence[Group]) -> list[Texts]:
    """Two pairs of each group's docs, in both orders."""
    orders = ((0, 1), (1, 0), (2, 3), (3, 2))
    return [(group.query, group.docs[one], group.docs[other]) for group in groups for one, other in orders]


def _sample(values: Sequence[_T], count: int) -> list[_T]:
    return list(values[:: max(1, len(values) // count)])[:count]


def _save(model: PreTrainedModel, tokenizer: str, folder: str) -> None:
    with new_folder(folder) as temporary:
        save_checkpoint(model, tokenizer, str(temporary), "float32")
