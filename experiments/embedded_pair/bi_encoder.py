"""The bi-encoders that the embedded pair is made of and learns from: how they are loaded, and the
embeddings that they give.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import BertModel

from models.checkpoints.files import CONFIG
from models.scoring.backends.torch import resolve_dtype
from models.tokenizers.bert import BertTokenizer

_BATCH_SIZE = 16
_MAX_TOKENS = 128
# Inputs are padded to multiples of it: oneDNN compiles its kernels for each shape.
_WIDTHS = 32


class Embeds(Protocol):
    """Maps texts to unit vectors, float32[texts, width]."""

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of queries."""

    def docs(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of docs."""


class BiEncoder:
    """A bi-encoder in a folder of sentence-transformers, which names its pooling and prompts."""

    def __init__(self, folder: str) -> None:
        """Loads it; texts are cut at 128 tokens."""
        self._model = SentenceTransformer(folder, device="cpu", local_files_only=True)
        self._model.max_seq_length = _MAX_TOKENS
        self._dtype: torch.dtype = getattr(torch, resolve_dtype("auto", "cpu"))

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of queries, with the prompt for queries."""
        return self._embed(self._model.encode_query, texts)

    def docs(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of docs, with the prompt for docs."""
        return self._embed(self._model.encode_document, texts)

    def _embed(self, encode: Callable[..., Any], texts: Sequence[str]) -> NDArray[np.float32]:
        with torch.autocast("cpu", self._dtype, enabled=self._dtype != torch.float32):
            vectors: NDArray[np.float32] = encode(
                list(texts),
                batch_size=_BATCH_SIZE,
                show_progress_bar=False,
                normalize_embeddings=True,
            )
        return vectors


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


def encoder_inputs(
    tokenizer: BertTokenizer, texts: list[str], max_tokens: int = _MAX_TOKENS
) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Yields batches of [CLS] text [SEP] of similar lengths: their rows, and the inputs of the
    bi-encoder.
    """
    special, column = tokenizer.special, tokenizer.encode(texts, max_tokens - 2)
    inputs = [[special.cls_id, *ids, special.sep_id] for ids in column.ids.to_pylist()]
    order = sorted(range(len(texts)), key=lambda number: len(inputs[number]))
    for start in range(0, len(order), _BATCH_SIZE):
        rows = order[start : start + _BATCH_SIZE]
        batch = [torch.tensor(inputs[number]) for number in rows]
        ids = pad_sequence(batch, batch_first=True, padding_value=special.pad_id)
        ids = F.pad(ids, (0, -ids.shape[1] % _WIDTHS), value=special.pad_id)
        lengths = torch.tensor([len(each) for each in batch])
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        yield rows, {"input_ids": ids, "attention_mask": mask}
