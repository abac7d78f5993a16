"""What the training of the embedded pair begins with: a mono made of the bi-encoder, a duo made of the trained mono."""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor
from transformers import BertForSequenceClassification, PreTrainedModel

from models.checkpoint_sources import CONFIG
from models.tokenizer import BertTokenizer, load_tokenizer
from models.training.embedded.assemble import assemble_mono, principal_axes
from models.training.embedded.contrast import make_duo
from models.training.embedded.pruning import prune_units
from models.training.embedded.teacher import embed_texts, encoder_inputs, load_encoder
from models.training.encoding import InputEncoder, Texts
from models.training.groups import Group
from models.training.start import save_checkpoint

_T = TypeVar("_T")
EncoderOf = Callable[[BertTokenizer], InputEncoder]

_UNITS = 512
_AXES = 128
# Texts that pruning and axes are fitted to, and inputs that sizes are set by.
_TEXTS, _INPUTS = 1600, 128


def is_bi_encoder(folder: str) -> bool:
    """Whether a folder holds an encoder alone, not a classifier."""
    architectures: list[str] = json.loads(Path(folder, CONFIG).read_text(encoding="utf-8"))["architectures"]
    return architectures == ["BertModel"]


def make_mono_start(bi_encoder: str, groups: Sequence[Group], encoder: EncoderOf, folder: str, seed: int) -> None:
    """Prunes a bi-encoder, makes a mono of it, and writes that with the bi-encoder's tokenizer.

    Args:
        bi_encoder: its folder.
        groups: what will be trained on; a sample of it is what the pruning loses least on.
        encoder: makes inputs of texts.
        folder: where to.
        seed: decides new weights.
    """
    tokenizer = load_tokenizer(bi_encoder)
    model = load_encoder(bi_encoder)
    texts = _sample([text for group in groups for text in (group.query, group.docs[0])], _TEXTS)
    prune_units(model, [inputs for _, inputs in encoder_inputs(tokenizer, texts)], _UNITS)
    generator = torch.Generator().manual_seed(seed)
    axes = principal_axes(torch.from_numpy(embed_texts(bi_encoder, texts)), _AXES, generator)
    inputs = [(group.query, doc) for group in _sample(groups, _INPUTS // 4) for doc in group.docs[:4]]
    mono = assemble_mono(model, axes, _batch(encoder(tokenizer), inputs), generator)
    _save(mono, bi_encoder, folder)


def make_duo_start(mono: str, groups: Sequence[Group], encoder: EncoderOf, folder: str) -> None:
    """Makes a duo of a trained mono, and writes it with the mono's tokenizer. Arguments as for `make_mono_start`."""
    model = BertForSequenceClassification.from_pretrained(mono, dtype=torch.float32).train(False)
    chosen = _sample(groups, _INPUTS // 2)
    inputs = [(group.query, *group.docs[place : place + 2]) for group in chosen for place in (0, 2)]
    _save(make_duo(model, _batch(encoder(load_tokenizer(mono)), inputs)), mono, folder)


def _sample(values: Sequence[_T], count: int) -> list[_T]:
    return list(values[:: max(1, len(values) // count)])[:count]


def _batch(encoder: InputEncoder, inputs: Sequence[Texts]) -> dict[str, Tensor]:
    """The largest of the batches that the encoder makes of the inputs."""
    return max(encoder.batches(inputs), key=lambda batch: len(batch.rows)).tensors


def _save(model: PreTrainedModel, tokenizer: str, folder: str) -> None:
    temporary = f"{folder}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    os.makedirs(temporary)
    save_checkpoint(model, tokenizer, temporary, "float32")
    os.replace(temporary, folder)
