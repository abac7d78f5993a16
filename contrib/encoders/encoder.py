"""An encoder of sentence-transformers that scores pairs of texts."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import sentence_transformers
import torch

from beamrank.errors import PreflightError
from contrib.encoders.checkpoint import CLASSES
from models.architectures.transformers import without_bars
from models.checkpoints.checkpoint import check_process
from models.scoring.backends.torch import devices_here

# Of a text: one, or one for each of its tokens.
_Vectors: TypeAlias = torch.Tensor
_Encode: TypeAlias = Callable[..., Sequence[_Vectors]]

_GPU_BATCH = 32
# So that all encoders give a dense tensor a text.
_OPTIONS: dict[str, dict[str, Any]] = {
    "dense": {"convert_to_tensor": True},
    "sparse": {"convert_to_sparse_tensor": False},
    "late": {},
}


class Encoder:
    """A loaded encoder, which computes in float32.

    On a CPU a batch is one text: how a product of few rows rounds depends on their number, so that
    texts of the same length would change each other's last bits too.
    """

    def __init__(self, stage: str, folder: str, device: str, threads: int) -> None:
        """Loads a checkpoint on one device; on a CPU so many texts are encoded at a time, a thread
        each. Raises PreflightError where sentence-transformers cannot load it.
        """
        check_process("load")
        make = getattr(sentence_transformers, CLASSES[stage])
        try:
            with without_bars():
                model = make(
                    folder,
                    device=devices_here(device)[0],
                    local_files_only=True,
                    model_kwargs={"dtype": torch.float32},
                )
        # Its modules raise errors of any type.
        except Exception as error:
            raise PreflightError(
                f"sentence-transformers cannot load {folder}: {error}. Load it in Python as "
                f"{make.__name__}, which says more"
            ) from error
        self._model = model.float()
        # A tokenizer serves one thread at a time.
        self._model.preprocess = _one_at_a_time(model.preprocess)
        self._batch, self._streams = (1, threads) if device == "cpu" else (_GPU_BATCH, 1)
        self._options = {"batch_size": self._batch, "show_progress_bar": False, **_OPTIONS[stage]}

    def score(
        self,
        queries: Sequence[str],
        docs: Sequence[str],
        pairs: Sequence[tuple[int, int]],
        done: Callable[[int], None],
    ) -> npt.NDArray[np.float32]:
        """The similarities, float32[n], of n pairs of a query and a doc, given by their numbers.

        Every text is encoded once, and the vectors of a doc are not kept. `done` is called with the
        number of pairs that were scored.
        """
        check_process("score")
        scores = np.empty(len(pairs), np.float32)
        rows: dict[int, list[int]] = defaultdict(list)
        for row, (_, doc) in enumerate(pairs):
            rows[doc].append(row)

        def score_docs(numbers: Sequence[int]) -> int:
            for doc, vectors in self._encoded(self._model.encode_document, docs, numbers):
                for row in rows[doc]:
                    query = of_query[pairs[row][0]]
                    scores[row] = self._model.similarity_pairwise([query], [vectors]).item()
            return sum(len(rows[doc]) for doc in numbers)

        # torch keeps the number of its own threads for each thread that calls it.
        with ThreadPoolExecutor(self._streams, "encoder", torch.set_num_threads, (1,)) as pool:
            encode = self._model.encode_query
            batches = pool.map(
                lambda numbers: self._encoded(encode, queries, numbers), self._cut(queries)
            )
            of_query = {query: vectors for batch in batches for query, vectors in batch}
            for count in pool.map(score_docs, self._cut(docs)):
                done(count)
        return scores

    def _cut(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of texts, in batches of about one length."""
        order = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
        return [order[start : start + self._batch] for start in range(0, len(order), self._batch)]

    def _encoded(
        self, encode: _Encode, texts: Sequence[str], numbers: Sequence[int]
    ) -> list[tuple[int, _Vectors]]:
        vectors = encode([texts[number] for number in numbers], **self._options)
        return list(zip(numbers, vectors, strict=True))


def _one_at_a_time(function: Callable[..., Any]) -> Callable[..., Any]:
    lock = Lock()

    def locked(*arguments: Any, **options: Any) -> Any:
        with lock:
            return function(*arguments, **options)

    return locked
