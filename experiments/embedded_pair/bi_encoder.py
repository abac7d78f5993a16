"""The bi-encoder that the embedded pair is made of: how it is loaded, and the embeddings that it
gives.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import BertModel

from models.checkpoints.files import CONFIG
from models.tokenizers.bert import BertTokenizer, load_bert

Embed = Callable[[list[str]], NDArray[np.float32]]

_BATCH_SIZE = 32
_MAX_TOKENS = 128


def is_bi_encoder(folder: str) -> bool:
    """Whether a folder holds an encoder without a classifier."""
    config = json.loads(Path(folder, CONFIG).read_text(encoding="utf-8"))
    return bool(config.get("architectures") == ["BertModel"])


def load_encoder(folder: str) -> BertModel:
    """Loads the bi-encoder in float32, for inference."""
    model: BertModel = BertModel.from_pretrained(
        folder, add_pooling_layer=False, dtype=torch.float32
    )
    model.train(False)
    return model


def embed_texts(folder: str, texts: list[str]) -> NDArray[np.float32]:
    """The bi-encoder's embeddings, float32[texts, width]: the mean over tokens, as unit vectors.

    Raises:
        PreflightError: the folder has no BERT tokenizer.
    """
    model = load_encoder(folder)
    vectors = np.empty((len(texts), model.config.hidden_size), np.float32)
    for rows, inputs in encoder_inputs(load_bert(folder), texts):
        with torch.inference_mode():
            hidden = model(**inputs).last_hidden_state
        mean = (hidden * inputs["attention_mask"].unsqueeze(-1)).sum(dim=1)
        vectors[rows] = F.normalize(mean, dim=-1).numpy()
    return vectors


def encoder_inputs(
    tokenizer: BertTokenizer, texts: list[str]
) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Yields batches of [CLS] text [SEP] of similar lengths: their rows, and the inputs of the
    bi-encoder.
    """
    special, column = tokenizer.special, tokenizer.encode(texts, _MAX_TOKENS - 2)
    inputs = [[special.cls_id, *ids, special.sep_id] for ids in column.ids.to_pylist()]
    order = sorted(range(len(texts)), key=lambda number: len(inputs[number]))
    for start in range(0, len(order), _BATCH_SIZE):
        rows = order[start : start + _BATCH_SIZE]
        batch = [torch.tensor(inputs[number]) for number in rows]
        ids = pad_sequence(batch, batch_first=True, padding_value=special.pad_id)
        mask = pad_sequence([torch.ones_like(each) for each in batch], batch_first=True)
        yield rows, {"input_ids": ids, "attention_mask": mask}
