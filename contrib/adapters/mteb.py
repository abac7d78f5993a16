"""A cross-encoder of mteb: `mteb.evaluate(MtebCrossEncoder("cross-encoder/..."), tasks)`."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt
from mteb.models import ModelMeta

from beamrank.storage.documents import digest
from models.checkpoints.sources import hub_id
from models.reranker import Reranker

# A call's texts and tokens are in memory.
_PAIRS_AT_ONCE = 1 << 14


class MtebCrossEncoder:
    """A `beamrank.Reranker` behind mteb's CrossEncoderProtocol."""

    def __init__(
        self,
        model_name: str | Reranker,
        revision: str | None = None,
        device: str | None = None,
        **options: Any,
    ) -> None:
        """Loads the checkpoint.

        Args:
            model_name: a `beamrank.Reranker` of kind mono, or what its first argument can be.
            revision: of a Hugging Face id.
            device: as for `beamrank.Reranker`.
            **options: as for `beamrank.Reranker`.
        """
        if isinstance(model_name, Reranker):
            self.reranker = model_name
        else:
            reference = f"{model_name}@{revision}" if revision else model_name
            self.reranker = Reranker(reference, device=device or "auto", **options)
        engine = self.reranker.engine
        name = (
            hub_id(engine.checkpoint.reference)
            or f"beamrank/{os.path.basename(engine.checkpoint.folder)}"
        )
        # mteb keeps results by name and revision: what decides scores is in it.
        decides = digest([engine.checkpoint.digest, self.reranker.limits, self.reranker.dtype])
        self.mteb_model_meta = ModelMeta.create_empty(
            overwrites={"name": name, "revision": decides}
        )

    def predict(
        self, inputs1: Iterable[Mapping[str, Any]], inputs2: Iterable[Mapping[str, Any]], **_: Any
    ) -> npt.NDArray[np.float32]:
        """The log-odds of pairs, float32[n].

        Args:
            inputs1: batches with the queries in "text".
            inputs2: batches with the docs; as many.

        Raises:
            DataError: there are not as many docs as queries, or one is no text.
        """
        pairs: Iterator[Sequence[str]] = zip(_texts(inputs1), _texts(inputs2), strict=True)
        scores = [np.empty(0, np.float32)]
        while batch := list(islice(pairs, _PAIRS_AT_ONCE)):
            scores.append(self.reranker.score(batch))
        return np.concatenate(scores)


def _texts(batches: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    return chain.from_iterable(batch["text"] for batch in batches)
