"""The scores of runs by the label of the doc."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# By label; None is that of docs without judgment.
Scores: TypeAlias = dict[int | None, NDArray[np.float32]]


class ScoreDistributions:
    """Keeps the scores of runs whose queries arrive one by one."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[int | None, list[NDArray[np.float32]]]] = {}

    def add(self, doc_ids: Sequence[str], judgments: Mapping[str, int], scores: Mapping[str, NDArray[Any]]) -> None:
        """Takes the scores of a query's docs, by run; NaN is a missing one, and no picture has an infinite one."""
        judged = np.array([place for place, doc_id in enumerate(doc_ids) if doc_id in judgments], np.int64)
        levels = np.array([judgments[doc_ids[place]] for place in judged], np.int64)
        unjudged = np.ones(len(doc_ids), bool)
        unjudged[judged] = False
        for run, values in scores.items():
            self._keep(run, None, values[unjudged])
            for label in set(levels.tolist()):
                self._keep(run, label, values[judged[levels == label]])

    def _keep(self, run: str, label: int | None, values: NDArray[Any]) -> None:
        found = values[np.isfinite(values)].astype(np.float32)
        if len(found):
            self._kept.setdefault(run, {}).setdefault(label, []).append(found)

    def found(self) -> dict[str, Scores]:
        """The scores by run and label."""
        return {
            run: {label: np.concatenate(parts) for label, parts in by_label.items()}
            for run, by_label in self._kept.items()
        }
