"""Measures of many rankings of the same candidates at once, from the positions of a query's judged docs.

The values are those of ir_measures up to the last digits, in NumPy: a curve has thousands of rankings of a query.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from beamrank.evaluation.measures import Measure, parse_measures
from beamrank.formats.qrels import Qrels

Floats: TypeAlias = NDArray[np.float64]
Positions: TypeAlias = NDArray[np.int64]

_NO_CUTOFF = 1 << 40


@dataclass(frozen=True)
class JudgedPositions:
    """Where p rankings of the same n candidates have a query's j judged docs.

    Attributes:
        levels: int64[j], their relevance.
        positions: int64[j, p], from 1.
        depth: n.
        all_levels: the relevance of all judged docs of the query, candidates or not.
    """

    levels: Positions
    positions: Positions
    depth: int
    all_levels: Positions

    def values(self, measure: Measure) -> Floats:
        """A measure of each ranking. float64[p]."""
        cutoff, rel = measure.params.get("cutoff", _NO_CUTOFF), measure.params.get("rel", 1)
        return np.asarray(_MEASURES[measure.NAME](self, cutoff, rel), np.float64)

    def hits(self, cutoff: int, rel: int) -> NDArray[np.bool_]:
        """Which relevant docs are within a cutoff. bool[j, p]."""
        return np.asarray((self.levels >= rel)[:, None] & (self.positions <= cutoff))

    def relevant(self, rel: int) -> int:
        """How many docs of the query are relevant; at least 1."""
        return max(int((self.all_levels >= rel).sum()), 1)


def judged_positions(
    judgments: Mapping[str, int], doc_ids: Sequence[str], positions: Callable[[Positions], Positions]
) -> JudgedPositions:
    """Positions of the judged docs among candidates; `positions` maps the indices of j of them to int64[j, p]."""
    indices = np.array([index for index, doc_id in enumerate(doc_ids) if doc_id in judgments], np.int64)
    levels = np.array([judgments[doc_ids[index]] for index in indices], np.int64)
    return JudgedPositions(levels, positions(indices), len(doc_ids), np.array(list(judgments.values()), np.int64))


def supported(names: Sequence[str]) -> tuple[dict[str, Measure], list[str]]:
    """The measures that can be computed from positions, by name, and the names of the others."""
    measures = parse_measures(names)
    found = {
        name: measure
        for name, measure in measures.items()
        if measure.NAME in _MEASURES and set(measure.params) <= {"cutoff", "rel"}
    }
    return found, [name for name in measures if name not in found]


class CurveEvaluator:
    """The means of measures for each point of a curve: each point is a ranking of every query."""

    def __init__(self, qrels: Qrels, measures: Mapping[str, Measure]) -> None:
        """Takes the judgments, and measures that are `supported`."""
        self._qrels, self._measures = qrels, measures
        self._sums: dict[str, Floats] = {}

    def add(self, query_id: str, doc_ids: Sequence[str], positions: Callable[[Positions], Positions]) -> None:
        """Takes the rankings of a query's candidates (see `judged_positions`); without judgments it does not count."""
        judgments = self._qrels.relevance.get(query_id)
        if judgments is not None:
            judged = judged_positions(judgments, doc_ids, positions)
            for name, measure in self._measures.items():
                self._sums[name] = self._sums.get(name, 0.0) + judged.values(measure)

    def means(self) -> dict[str, Floats]:
        """float64[p] by measure, over all judged topics; empty before a query was added."""
        return {name: total / max(len(self._qrels.relevance), 1) for name, total in self._sums.items()}


def _reciprocal_rank(judged: JudgedPositions, cutoff: int, rel: int) -> Any:
    return np.where(judged.hits(cutoff, rel), 1.0 / judged.positions, 0.0).max(axis=0, initial=0.0)


def _precision(judged: JudgedPositions, cutoff: int, rel: int) -> Any:
    return judged.hits(cutoff, rel).sum(axis=0) / cutoff


def _recall(judged: JudgedPositions, cutoff: int, rel: int) -> Any:
    return judged.hits(cutoff, rel).sum(axis=0) / judged.relevant(rel)


def _success(judged: JudgedPositions, cutoff: int, rel: int) -> Any:
    return judged.hits(cutoff, rel).any(axis=0)


def _average_precision(judged: JudgedPositions, cutoff: int, rel: int) -> Any:
    found = np.sort(judged.positions[judged.levels >= rel], axis=0)
    precisions = np.arange(1, len(found) + 1)[:, None] / found
    return np.where(found <= cutoff, precisions, 0.0).sum(axis=0) / judged.relevant(rel)


def _ndcg(judged: JudgedPositions, cutoff: int, _rel: int) -> Any:
    gains = np.maximum(judged.levels, 0)[:, None]
    found = np.where(judged.positions <= cutoff, gains / np.log2(judged.positions + 1), 0.0).sum(axis=0)
    ideal = np.sort(np.maximum(judged.all_levels, 0))[::-1][:cutoff]
    best = float((ideal / np.log2(np.arange(2, len(ideal) + 2))).sum())
    return found / best if best else np.zeros_like(found)


def _judged(judged: JudgedPositions, cutoff: int, _rel: int) -> Any:
    return (judged.positions <= cutoff).sum(axis=0) / max(min(cutoff, judged.depth), 1)


_MEASURES: dict[str, Callable[[JudgedPositions, int, int], Any]] = {
    "RR": _reciprocal_rank,
    "P": _precision,
    "R": _recall,
    "Success": _success,
    "AP": _average_precision,
    "nDCG": _ndcg,
    "Judged": _judged,
}
