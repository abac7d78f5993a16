"""The bi-encoder whose cosines the embedded pair learns from."""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import BertModel

from models.tokenizer.bert import BertTokenizer, load_tokenizer

_TEXTS_AT_A_TIME = 32
_TOKENS = 128


def load_encoder(folder: str) -> BertModel:
    """The bi-encoder, ready to read."""
    model: BertModel = BertModel.from_pretrained(folder, add_pooling_layer=False, dtype=torch.float32)
    model.train(False)
    return model


def embed_texts(folder: str, texts: list[str]) -> NDArray[np.float32]:
    """The bi-encoder's embeddings: the mean over tokens, as unit vectors, float32[texts, width].

    Raises:
        PreflightError: the folder has no BERT tokenizer.
    """
    model = load_encoder(folder)
    vectors = np.empty((len(texts), model.config.hidden_size), np.float32)
    for rows, inputs in encoder_inputs(load_tokenizer(folder), texts):
        with torch.inference_mode():
            hidden = model(**inputs).last_hidden_state
        mean = (hidden * inputs["attention_mask"].unsqueeze(-1)).sum(dim=1)
        vectors[rows] = F.normalize(mean, dim=-1).numpy()
    return vectors


def encoder_inputs(tokenizer: BertTokenizer, texts: list[str]) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Yields batches of [CLS] text [SEP], of about one length each: their rows, and what the bi-encoder takes."""
    inputs = [
        [tokenizer.cls_id, *ids, tokenizer.sep_id] for ids in tokenizer.encode(texts, _TOKENS - 2).ids.to_pylist()
    ]
    order = sorted(range(len(texts)), key=lambda number: len(inputs[number]))
    for start in range(0, len(order), _TEXTS_AT_A_TIME):
        rows = order[start : start + _TEXTS_AT_A_TIME]
        batch = [torch.tensor(inputs[number]) for number in rows]
        ids = pad_sequence(batch, batch_first=True, padding_value=tokenizer.pad_id)
        mask = pad_sequence([torch.ones_like(each) for each in batch], batch_first=True)
        yield rows, {"input_ids": ids, "attention_mask": mask}
