"""Measures from the positions of a query's judged docs alone, for many rankings at once.

The measures are those of `beamrank.evaluation`, in NumPy: a curve has thousands of rankings of the same candidates.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from beamrank.evaluation.measures import Measure, parse_measures
from beamrank.report.stored.scores import Floats, Positions

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


def supported(names: Sequence[str]) -> tuple[dict[str, Measure], list[str]]:
    """The measures that can be computed from positions, by name, and the names of the others."""
    measures = parse_measures(names)
    found = {
        name: measure
        for name, measure in measures.items()
        if measure.NAME in _MEASURES and set(measure.params) <= {"cutoff", "rel"}
    }
    return found, [name for name in measures if name not in found]


def values(measure: Measure, judged: JudgedPositions) -> Floats:
    """The measure of each ranking. float64[p]."""
    cutoff, rel = measure.params.get("cutoff", _NO_CUTOFF), measure.params.get("rel", 1)
    return _MEASURES[measure.NAME](judged, cutoff, rel)


def judged_positions(
    judgments: Mapping[str, int], doc_ids: Sequence[str], positions: Callable[[Positions], Positions]
) -> JudgedPositions:
    """Positions of the judged docs among candidates.

    Args:
        judgments: the relevance of a query's docs.
        doc_ids: the candidates.
        positions: from the indices of j candidates to int64[j, p].
    """
    indices = np.array([index for index, doc_id in enumerate(doc_ids) if doc_id in judgments], np.int64)
    levels = np.array([judgments[doc_ids[index]] for index in indices], np.int64)
    return JudgedPositions(levels, positions(indices), len(doc_ids), np.array(list(judgments.values()), np.int64))


def _hits(judged: JudgedPositions, cutoff: int, rel: int) -> Any:
    """Which relevant docs are within the cutoff. bool[j, p]."""
    return (judged.levels >= rel)[:, None] & (judged.positions <= cutoff)


def _reciprocal_rank(judged: JudgedPositions, cutoff: int, rel: int) -> Floats:
    found = np.where(_hits(judged, cutoff, rel), 1.0 / judged.positions, 0.0)
    return np.asarray(found.max(axis=0, initial=0.0))


def _precision(judged: JudgedPositions, cutoff: int, rel: int) -> Floats:
    return np.asarray(_hits(judged, cutoff, rel).sum(axis=0) / cutoff)


def _recall(judged: JudgedPositions, cutoff: int, rel: int) -> Floats:
    return np.asarray(_hits(judged, cutoff, rel).sum(axis=0) / max(int((judged.all_levels >= rel).sum()), 1))


def _success(judged: JudgedPositions, cutoff: int, rel: int) -> Floats:
    return np.asarray(_hits(judged, cutoff, rel).any(axis=0).astype(np.float64))


def _average_precision(judged: JudgedPositions, cutoff: int, rel: int) -> Floats:
    relevant = np.sort(judged.positions[judged.levels >= rel], axis=0)
    precisions = np.arange(1, len(relevant) + 1)[:, None] / relevant
    found = np.where(relevant <= cutoff, precisions, 0.0).sum(axis=0)
    return np.asarray(found / max(int((judged.all_levels >= rel).sum()), 1))


def _ndcg(judged: JudgedPositions, cutoff: int, _rel: int) -> Floats:
    gains = np.maximum(judged.levels, 0)[:, None]
    found = np.where(judged.positions <= cutoff, gains / np.log2(judged.positions + 1), 0.0).sum(axis=0)
    ideal = np.sort(np.maximum(judged.all_levels, 0))[::-1][:cutoff]
    best = float((ideal / np.log2(np.arange(2, len(ideal) + 2))).sum())
    return np.asarray(found / best if best else np.zeros_like(found))


def _judged(judged: JudgedPositions, cutoff: int, _rel: int) -> Floats:
    return np.asarray((judged.positions <= cutoff).sum(axis=0) / max(min(cutoff, judged.depth), 1))


_MEASURES: dict[str, Callable[[JudgedPositions, int, int], Floats]] = {
    "RR": _reciprocal_rank,
    "P": _precision,
    "R": _recall,
    "Success": _success,
    "AP": _average_precision,
    "nDCG": _ndcg,
    "Judged": _judged,
}
