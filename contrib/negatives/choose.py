"""The docs of a ranking that are hard negatives of a relevant one: the filters of published mining
recipes.

Names and meanings are as in `mine_hard_negatives` of sentence-transformers. A relative margin of
0.05 is TopK-PercPos (95 %) of NV-Retriever (Moreira et al. 2024), an absolute one TopK-MarginPos.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamrank.errors import ConfigError
from beamrank.ranking.rankings import Ranking
from beamrank.storage.documents import hashes64

Strategy = Literal["top", "random"]
# So many candidates more, in place of docs whose text turns out to be a copy.
_SPARE = 8
_ID, _SCORE = pa.string(), pa.float64()
_COLUMNS = {
    "query_id": _ID,
    "positive": _ID,
    "score": _SCORE,
    "doc_ids": pa.list_(_ID),
    "scores": pa.list_(_SCORE),
}
GROUPS = pa.schema(_COLUMNS)
"""A row is a positive with the docs that may become its negatives, in the order in which they are
taken.
"""


@dataclass(frozen=True)
class Rules:
    """The choice of a positive's negatives, and of a row's values.

    Attributes:
        rel: the lowest label of a positive; all other docs can be negatives.
        range_min: so many first docs that pass the other filters are passed over.
        range_max: docs below this rank are passed over; positives have none.
        max_score: of a negative.
        absolute_margin: a negative's score is at least this much below the positive's.
        relative_margin: it is at least this share of the positive's magnitude below it.
        num_negatives: how many of a positive.
        sampling_strategy: the first ones, or some by a hash of the ids.
        seed: draws others.
        output_format: a name in `contrib.negatives.table.FORMATS`.
        output_scores, ids: whether there are columns of scores and of ids.
    """

    rel: int = 1
    range_min: int = 0
    range_max: int | None = None
    max_score: float | None = None
    absolute_margin: float | None = None
    relative_margin: float | None = None
    num_negatives: int = 3
    sampling_strategy: Strategy = "top"
    seed: int = 0
    output_format: str = "triplet"
    output_scores: bool = True
    ids: bool = False

    def __post_init__(self) -> None:
        if self.range_max is not None and self.range_max - self.range_min < self.num_negatives:
            raise ConfigError(
                f"--range-min {self.range_min} and --range-max {self.range_max} leave fewer than "
                f"--num-negatives {self.num_negatives} docs: widen the range, or take fewer"
            )

    def groups(
        self,
        query_id: str,
        ranking: Ranking | None,
        judged: Mapping[str, int],
        counts: Counter[str],
    ) -> Iterator[dict[str, Any]]:
        """A row of `GROUPS` for each positive that the last stage of the ranking scored.

        Counts positives, positives without a score, and the docs that each filter takes.
        """
        positives = {doc_id for doc_id, level in judged.items() if level >= self.rel}
        doc_ids = () if ranking is None else ranking.doc_ids[: ranking.scored]
        relevant = np.array([doc_id in positives for doc_id in doc_ids], np.bool_)
        counts["positives"] += len(positives)
        counts["not scored"] += len(positives) - int(relevant.sum())
        if ranking is None or not relevant.any():
            return
        scores, order = ranking.own_scores, self._order(query_id, doc_ids)
        for place in np.flatnonzero(relevant).tolist():
            kept = ~relevant
            for name, passes in self._filters(scores, scores[place], kept):
                counts[name] += int((kept & ~passes).sum())
                kept &= passes
            places = order[kept[order]][: self.num_negatives + _SPARE]
            others = [doc_ids[at] for at in places.tolist()]
            values = (query_id, doc_ids[place], scores[place], others, scores[places])
            yield dict(zip(GROUPS.names, values, strict=True))

    def _order(self, query_id: str, doc_ids: tuple[str, ...]) -> NDArray[np.int64]:
        """The places of docs in the order in which they are taken, int64[n]; the same in any
        shard.
        """
        if self.sampling_strategy == "top":
            return np.arange(len(doc_ids))
        # No id holds white space.
        return np.argsort(
            hashes64(f"{self.seed} {query_id} {doc_id}" for doc_id in doc_ids), kind="stable"
        )

    def _filters(
        self, scores: NDArray[np.float64], positive: float, kept: NDArray[np.bool_]
    ) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """The name of each filter and which docs pass it, bool[n]; `kept` are the docs that passed
        the filters before.
        """
        if self.range_max is not None:
            yield "--range-max", np.cumsum(kept) <= self.range_max
        if self.absolute_margin is not None:
            yield "--absolute-margin", scores + self.absolute_margin <= positive
        if self.relative_margin is not None:
            yield "--relative-margin", scores <= positive - abs(positive) * self.relative_margin
        if self.max_score is not None:
            yield "--max-score", scores <= self.max_score
        yield "--range-min", np.cumsum(kept) > self.range_min
