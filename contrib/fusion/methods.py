"""Fusion of runs: reciprocal ranks (RRF), and sums of scores (CombSUM, CombMNZ, weighted).

A new method or normalization is a function and its line in `METHODS` or `NORMALIZATIONS`.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from beamrank.errors import ConfigError
from beamrank.formats.run_order import Run

Scores: TypeAlias = NDArray[np.float64]
Ranking: TypeAlias = list[tuple[str, float]]

_RRF_CONSTANT = 60
# As in ranx: a run that gives all docs of a query the same score does not rank them, and each gets
# 0.
_SMALLEST_SPREAD = 1e-9
# The scores of a run are float32: with larger weights their sum could overflow.
_LARGEST_WEIGHT = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Method:
    """A fusion method.

    Attributes:
        combine: a doc's fused score, from its values in the runs that hold it.
        reads_ranks: whether these values are ranks, from 1, in place of scores.
        takes_weights: whether each run's scores are multiplied by a weight.
    """

    combine: Callable[[Sequence[float]], float]
    reads_ranks: bool = False
    takes_weights: bool = False


def reciprocal_ranks(ranks: Sequence[float]) -> float:
    """RRF: the sum of 1 / (60 + rank). Cormack, Clarke and Büttcher, SIGIR 2009."""
    return math.fsum(1 / (_RRF_CONSTANT + rank) for rank in ranks)


def score_sum(scores: Sequence[float]) -> float:
    """CombSUM: the sum of the scores. Fox and Shaw, TREC-2, 1994."""
    return math.fsum(scores)


def score_sum_times_runs(scores: Sequence[float]) -> float:
    """CombMNZ: CombSUM times the number of runs that hold the doc. Fox and Shaw, TREC-2, 1994."""
    return len(scores) * math.fsum(scores)


# Sums are exactly rounded, so that a tie does not depend on the order of the runs.
METHODS: dict[str, Method] = {
    "rrf": Method(reciprocal_ranks, reads_ranks=True),
    "combsum": Method(score_sum),
    "combmnz": Method(score_sum_times_runs),
    "wsum": Method(score_sum, takes_weights=True),
}


def min_max(scores: Scores) -> Scores:
    """From 0 for the lowest score to 1 for the highest."""
    return np.asarray((scores - scores.min()) / max(np.ptp(scores), _SMALLEST_SPREAD))


def z_score(scores: Scores) -> Scores:
    """Mean 0 and standard deviation 1, so that a doc which a run lacks counts like an average
    one.
    """
    return np.asarray((scores - scores.mean()) / max(scores.std(), _SMALLEST_SPREAD))


# Each takes the scores that one run gives the docs of one query.
NORMALIZATIONS: dict[str, Callable[[Scores], Scores]] = {
    "min-max": min_max,
    "z": z_score,
    "none": lambda scores: scores,
}


class Fused(Mapping[str, Ranking]):
    """Fused runs: a query's docs with their fused scores, best first, made when they are read."""

    def __init__(self, runs: Sequence[Run], rank: Callable[[str], Ranking]) -> None:
        self._query_ids = dict.fromkeys(query_id for run in runs for query_id in run.order)
        self._rank = rank

    def __getitem__(self, query_id: str) -> Ranking:
        return self._rank(query_id)

    def __iter__(self) -> Iterator[str]:
        return iter(self._query_ids)

    def __len__(self) -> int:
        return len(self._query_ids)


def fuse(
    runs: Sequence[Run],
    method: str,
    *,
    weights: Sequence[float] = (),
    norm: str | None = None,
    k: int | None = None,
) -> Fused:
    """Fuses runs: each query's docs with their fused scores, best first.

    A doc that a run lacks gets nothing from it. Fused scores that tie are in the order of the first
    run, then of the docs that the second run adds, and so on. Queries are in the order in which the
    runs have them.

    Args:
        runs: two or more.
        method: a name in `METHODS`.
        weights: of the runs, for a method that takes weights.
        norm: a name in `NORMALIZATIONS`, for a method that reads scores; default: min-max.
        k: how many docs of a query are kept; default: all.
    """
    chosen = METHODS[method]
    normalize = NORMALIZATIONS[norm or next(iter(NORMALIZATIONS))]

    def rank(query_id: str) -> Ranking:
        values: dict[str, list[float]] = {}
        for position, run in enumerate(runs):
            doc_ids = run.order.get(query_id)
            if doc_ids:
                weight = weights[position] if weights else 1.0
                values_of_run: NDArray[Any] = np.arange(1, len(doc_ids) + 1)
                if not chosen.reads_ranks:
                    values_of_run = weight * normalize(run.scores[query_id].astype(np.float64))
                for doc_id, value in zip(doc_ids, values_of_run.tolist(), strict=True):
                    values.setdefault(doc_id, []).append(value)
        ranking = [(doc_id, chosen.combine(own_values)) for doc_id, own_values in values.items()]
        ranking.sort(key=lambda row: -row[1])
        return ranking[:k]

    return Fused(runs, rank)


def check_fusion(runs: int, method: str, weights: Sequence[float], norm: str | None) -> None:
    """Checks the arguments of `fuse` before any run is read.

    Raises:
        ConfigError: there are fewer than two runs, or the arguments do not fit the method.
    """
    if runs < 2:
        raise ConfigError("there is nothing to fuse: give two runs or more")
    if METHODS[method].reads_ranks and norm is not None:
        raise ConfigError(
            f"method {method} reads ranks, which need no normalization: leave out the normalization"
        )
    if not METHODS[method].takes_weights and weights:
        takers = ", ".join(name for name, other in METHODS.items() if other.takes_weights)
        raise ConfigError(f"method {method} takes no weights: leave them out, or choose {takers}")
    if METHODS[method].takes_weights and len(weights) != runs:
        raise ConfigError(
            f"method {method} needs a weight for each run: {runs} runs, {len(weights)} weights"
        )
    if not all(abs(weight) <= _LARGEST_WEIGHT for weight in weights):
        raise ConfigError(
            f"weights must be numbers that float32 holds, not {', '.join(map(str, weights))}"
        )
