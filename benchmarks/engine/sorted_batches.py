"""OpenVINO, used directly, on inputs that are sorted by length and cut into batches, which are
padded to their longest; as many batches at a time as there are threads.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.engine.texts import Texts
from benchmarks.peers import log_odds_of

if TYPE_CHECKING:
    import torch

_BATCH_SIZE = 16

Log = npt.NDArray[np.float32]
Arrays = npt.NDArray[np.int64]
"""Token ids, attention mask and token types of a batch, int64[3, b, n]."""
Forward = Callable[[Arrays], Log]
"""The logits of a batch, float32[b, labels]."""


class Scored(NamedTuple):
    """Log-odds, and how many tokens were computed with and without padding; 0 if that is not
    known.
    """

    log_odds: Log
    computed_tokens: int = 0
    tokens: int = 0


def batch_size(count: int, streams: int) -> int:
    """The inputs of a batch: several batches for each stream, so that all are busy and padding is
    small.
    """
    return min(_BATCH_SIZE, max(1, count // (4 * streams)))


class SortedBatches:
    """Scores texts with a function of batches."""

    def __init__(self, folder: str, forward: Forward, streams: int) -> None:
        """Takes the checkpoint's folder, for its tokenizer; the function; and how many batches it
        takes at a time.
        """
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._forward, self._streams = forward, streams

    def __call__(self, texts: Sequence[Texts]) -> Scored:
        rows, batches = zip(*self.batches(texts), strict=True)
        log_odds = np.empty(len(texts), np.float32)
        with ThreadPoolExecutor(self._streams) as pool:
            for some, logits in zip(rows, pool.map(self._forward, batches), strict=True):
                log_odds[some] = log_odds_of(logits)
        masks = [mask for _, mask, _ in batches]
        return Scored(log_odds, sum(mask.size for mask in masks), int(sum(map(np.sum, masks))))

    def batches(self, texts: Sequence[Texts]) -> Iterator[tuple[list[int], Arrays]]:
        """The rows and arrays of each batch, the longest first."""
        inputs = self._encode(texts)
        order = sorted(range(len(inputs)), key=lambda row: -len(inputs[row][0]))
        size = batch_size(len(order), self._streams)
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            arrays = np.zeros((3, len(rows), len(inputs[rows[0]][0])), np.int64)
            arrays[0] = self._tokenizer.pad_token_id
            for place, row in enumerate(rows):
                ids, types = inputs[row]
                arrays[:, place, : len(ids)] = ids, [1] * len(ids), types
            yield rows, arrays

    def _encode(self, texts: Sequence[Texts]) -> list[tuple[list[int], list[int]]]:
        """Token ids and token types of each input; with three texts as duoBERT has them, cut at
        512.
        """
        columns = [list(column) for column in zip(*texts, strict=True)]
        if len(columns) == 2:
            pairs = self._tokenizer(
                *columns, truncation=True, max_length=512, return_token_type_ids=True
            )
            return list(zip(pairs["input_ids"], pairs["token_type_ids"], strict=True))
        encoded = (
            self._tokenizer(column, add_special_tokens=False)["input_ids"] for column in columns
        )
        cls, sep = self._tokenizer.cls_token_id, self._tokenizer.sep_token_id
        inputs = []
        for query, one, other in zip(*encoded, strict=True):
            parts = [[cls, *query[:62], sep], [*one[:223], sep], [*other[:223], sep]]
            types = [kind for kind, part in enumerate(parts) for _ in part]
            inputs.append(([*chain(*parts)], types))
        return inputs


def openvino_engine(folder: str, threads: int) -> SortedBatches:
    """OpenVINO in bfloat16, as many streams as threads."""
    import openvino
    import torch

    ids = torch.full((2, 150), 7)
    mask = torch.ones_like(ids)
    # A mask of ones alone would be traced as none.
    mask[1, 100:] = 0
    model = openvino.convert_model(
        _load(folder),
        example_input=(ids, mask, torch.zeros_like(ids)),
        input=[openvino.PartialShape([-1, -1])] * 3,
    )
    settings = {
        "INFERENCE_PRECISION_HINT": "bf16",
        "NUM_STREAMS": threads,
        "INFERENCE_NUM_THREADS": threads,
    }
    compiled = openvino.Core().compile_model(model, "CPU", settings)

    def forward(arrays: Arrays) -> Log:
        logits: Log = compiled.create_infer_request().infer(list(arrays))[0].copy()
        return logits

    return SortedBatches(folder, forward, threads)


def _load(folder: str) -> "torch.nn.Module":
    """Transformers' classifier from the three arrays to logits."""
    import torch
    from transformers import AutoModelForSequenceClassification

    model: Any = AutoModelForSequenceClassification.from_pretrained(
        folder, attn_implementation="sdpa", dtype="float32"
    )
    with_types = model.config.model_type == "bert"

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model.eval()

        def forward(
            self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor
        ) -> torch.Tensor:
            more = {"token_type_ids": types} if with_types else {}
            logits: torch.Tensor = self.model(input_ids=ids, attention_mask=mask, **more).logits
            return logits

    return Classifier()
