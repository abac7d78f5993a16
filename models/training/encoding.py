"""Texts to tensors: the start model's tokenizer, its bi-encoder, and the input layouts of mono and duo."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from transformers import BertModel

from beamrank.errors import PreflightError

_QUERY_TOKENS = 32
_TEXTS_AT_A_TIME = 32
_TEACHER_TOKENS = 128


class Layout:
    """Lays out [CLS] query [SEP] doc [SEP], or [CLS] query [SEP] doc [SEP] doc [SEP], with token types 0, 1, 2."""

    def __init__(self, folder: str, max_doc_tokens: int) -> None:
        """Reads `tokenizer.json` from a model's folder; a doc is cut to `max_doc_tokens`.

        Raises:
            PreflightError: the folder has no `tokenizer.json`, or its vocabulary no [CLS] or [SEP].
        """
        path = Path(folder) / "tokenizer.json"
        if not path.is_file():
            raise PreflightError(f"no model with a fast tokenizer stands in {folder}: {path.name} is not there")
        self.tokenizer = Tokenizer.from_file(str(path))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.folder = Path(folder)
        self._cls, self._sep = self._special("[CLS]"), self._special("[SEP]")
        self._max_doc_tokens = max_doc_tokens

    def lay_out(self, query: str, *docs: str) -> tuple[list[int], list[int]]:
        """The ids and token types of one input."""
        ids = [self._cls, *self._tokenize(query, _QUERY_TOKENS), self._sep]
        types = [0] * len(ids)
        for number, doc in enumerate(docs, start=1):
            part = [*self._tokenize(doc, self._max_doc_tokens), self._sep]
            ids += part
            types += [number] * len(part)
        return ids, types

    def _special(self, token: str) -> int:
        number: int | None = self.tokenizer.token_to_id(token)
        if number is None:
            raise PreflightError(f"the vocabulary in {self.folder} has no {token}: it is not BERT's")
        return number

    def _tokenize(self, text: str, limit: int) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids[:limit]


def pad(inputs: Sequence[tuple[list[int], list[int]]]) -> dict[str, Tensor]:
    """A batch as `input_ids`, `token_type_ids` and `attention_mask`: int64[inputs, longest]."""
    longest = max(len(ids) for ids, _ in inputs)
    rows = [(ids + [0] * (longest - len(ids)), types + [0] * (longest - len(ids))) for ids, types in inputs]
    mask = [[1] * len(ids) + [0] * (longest - len(ids)) for ids, _ in inputs]
    return {
        "input_ids": torch.tensor([ids for ids, _ in rows]),
        "token_type_ids": torch.tensor([types for _, types in rows]),
        "attention_mask": torch.tensor(mask),
    }


def embed_texts(folder: str, texts: list[str]) -> NDArray[np.float32]:
    """The bi-encoder's embeddings: the mean over tokens, as unit vectors, float32[texts, width]."""
    layout = Layout(folder, _TEACHER_TOKENS)
    model = BertModel.from_pretrained(folder, add_pooling_layer=False).train(False)
    inputs = [_as_passage(layout, text) for text in texts]
    order = sorted(range(len(texts)), key=lambda number: len(inputs[number][0]))
    vectors = np.empty((len(texts), model.config.hidden_size), np.float32)
    for start in range(0, len(order), _TEXTS_AT_A_TIME):
        chosen = order[start : start + _TEXTS_AT_A_TIME]
        batch = pad([inputs[number] for number in chosen])
        with torch.inference_mode():
            hidden = model(**batch).last_hidden_state
        mean = (hidden * batch["attention_mask"].unsqueeze(-1)).sum(dim=1)
        vectors[chosen] = F.normalize(mean, dim=-1).numpy()
    return vectors


def _as_passage(layout: Layout, text: str) -> tuple[list[int], list[int]]:
    ids = layout.tokenizer.encode(text).ids
    ids = [*ids[: _TEACHER_TOKENS - 1], ids[-1]] if len(ids) > _TEACHER_TOKENS else ids
    return ids, [0] * len(ids)
