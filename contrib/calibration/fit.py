"""Calibration: maps from scores to probabilities, how reliable they are on held-out topics, and
thresholds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression, minimize
from scipy.special import expit

from beamrank.errors import DataError

Floats = NDArray[np.float64]
_BINS = 10
_RESAMPLES = 1000
_INTERVAL = (2.5, 97.5)
# Below so many docs a precision is luck.
_LEAST_FOUND = 10


@dataclass(frozen=True)
class Judged:
    """The n docs of judged topics that a stage scored.

    Attributes:
        scores: float64[n].
        relevant: bool[n].
        topics: int64[n], the number of each doc's topic, from 0.
        count: of the topics.
    """

    scores: Floats
    relevant: NDArray[np.bool_]
    topics: NDArray[np.int64]
    count: int

    def of(self, rows: NDArray[np.bool_]) -> "Judged":
        """Some of the docs."""
        return Judged(self.scores[rows], self.relevant[rows], self.topics[rows], self.count)

    def by_topic(self, *values: NDArray[Any]) -> Floats:
        """Sums over the docs of each topic: float64[topics, values]."""
        return np.stack([np.bincount(self.topics, value, self.count) for value in values], axis=1)


class Calibration(Protocol):
    """A map from scores to probabilities that never falls."""

    def __call__(self, scores: Floats) -> Floats: ...
    def as_object(self) -> dict[str, Any]: ...


class Platt(NamedTuple):
    """p = 1 / (1 + exp(-(slope * score + intercept)))."""

    slope: float
    intercept: float

    def __call__(self, scores: Floats) -> Floats:
        return np.asarray(expit(self.slope * scores + self.intercept))

    def as_object(self) -> dict[str, Any]:
        return self._asdict()


class Isotonic(NamedTuple):
    """Linear between the scores at which the probability changes, constant outside them."""

    scores: Floats
    probabilities: Floats

    def __call__(self, scores: Floats) -> Floats:
        return np.asarray(np.interp(scores, self.scores, self.probabilities))

    def as_object(self) -> dict[str, Any]:
        return {"scores": self.scores.tolist(), "probabilities": self.probabilities.tolist()}


def fit_platt(judged: Judged) -> Platt:
    """Logistic regression on the score, with the smoothed labels of Platt, 1999."""
    positive = int(judged.relevant.sum())
    labels = np.where(
        judged.relevant, (positive + 1) / (positive + 2), 1 / (len(judged.relevant) - positive + 2)
    )
    middle, spread = float(judged.scores.mean()), float(judged.scores.std()) or 1.0
    x = (judged.scores - middle) / spread

    def loss(parameters: Floats) -> tuple[float, Floats]:
        z = parameters[0] * x + parameters[1]
        error = expit(z) - labels
        return float(np.mean(np.logaddexp(0, z) - labels * z)), np.array(
            [np.mean(error * x), np.mean(error)]
        )

    slope, intercept = minimize(loss, np.array([0.0, 0.0]), jac=True, method="BFGS").x.tolist()
    if slope <= 0:
        raise DataError(
            "relevant docs have no higher scores than others, so no probability follows from "
            "these scores: `beamrank doctor --checkpoint` tells whether the model ranks at all"
        )
    return Platt(slope / spread, intercept - slope * middle / spread)


def fit_isotonic(judged: Judged) -> Isotonic:
    """The never falling map with the least squared error."""
    scores, places, counts = np.unique(judged.scores, return_inverse=True, return_counts=True)
    shares = np.bincount(places, judged.relevant) / counts
    fitted = isotonic_regression(shares, weights=counts).x
    change = np.diff(fitted) != 0
    kept = np.concatenate([[True], change]) | np.concatenate([change, [True]])
    return Isotonic(scores[kept], fitted[kept])


class Method(NamedTuple):
    """A way to fit a map, and how many relevant docs, and how many others, it needs."""

    fit: Callable[[Judged], Calibration]
    least: int


METHODS = {"platt": Method(fit_platt, 30), "isotonic": Method(fit_isotonic, 200)}


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval, by a bootstrap over topics."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Bin:
    """Some docs: how many, their mean probability, and the share of relevant ones."""

    docs: int
    probability: float
    relevant: Interval


@dataclass(frozen=True)
class Reliability:
    """How far probabilities agree with judgments.

    Attributes:
        brier: the mean squared error.
        calibration_error: the expected one: the distance between the probability and the share of
            relevant docs, in the mean over ten bins.
        bins: with as many docs each.
    """

    brier: Interval
    calibration_error: Interval
    bins: list[Bin]


@dataclass(frozen=True)
class Threshold:
    """The lowest score at which the docs above it have a wanted precision.

    Attributes:
        wanted: the precision.
        score: None where no score reaches it.
        probability: of the score.
        precision: on held-out topics, of docs above the threshold that the other topics give; None
            without any.
        recall: the share of their relevant docs that is above it.
        docs_per_topic: how many docs of a topic are above it.
    """

    wanted: float
    score: float | None
    probability: float | None
    precision: Interval | None
    recall: float
    docs_per_topic: float


def split_topics(hashes: NDArray[np.uint64], folds: int) -> NDArray[np.int64]:
    """The fold of each topic: int64[topics]; it follows from their hashes, and folds are equally
    large.
    """
    fold_of = np.empty(len(hashes), np.int64)
    fold_of[np.argsort(hashes, kind="stable")] = np.arange(len(hashes)) % folds
    return fold_of


def held_out(
    judged: Judged, fold_of: NDArray[np.int64], fit: Callable[[Judged], Calibration]
) -> Floats:
    """The probability of each doc by a map that was fitted without its topic's fold: float64[n]."""
    probabilities = np.empty_like(judged.scores)
    for rows in _folds(judged, fold_of):
        probabilities[rows] = fit(judged.of(~rows))(judged.scores[rows])
    return probabilities


def measure(judged: Judged, probabilities: Floats) -> Reliability:
    """Compares probabilities with judgments."""
    edges = np.unique(np.quantile(probabilities, np.linspace(0, 1, _BINS + 1)[1:-1]))
    used, place = np.unique(
        np.searchsorted(edges, probabilities, side="right"), return_inverse=True
    )
    sums = judged.by_topic(
        np.square(probabilities - judged.relevant),
        *(
            value * (place == number)
            for number in range(len(used))
            for value in (np.ones_like(probabilities), probabilities, judged.relevant)
        ),
    )

    def figures(totals: Floats) -> Floats:
        """[r, 1 + 3 bins] -> [r, 2 + bins]: Brier score, calibration error, the share of relevant
        docs in each bin.
        """
        docs, expected, relevant = (totals[:, start::3] for start in (1, 2, 3))
        count = docs.sum(axis=1)
        error = np.abs(expected - relevant).sum(axis=1) / count
        # A draw may leave a bin empty.
        with np.errstate(invalid="ignore"):
            return np.column_stack([totals[:, 0] / count, error, relevant / docs])

    brier, error, *shares = _intervals(sums, figures)
    totals = sums.sum(axis=0)
    bins = [
        Bin(int(docs), float(expected / docs), share)
        for docs, expected, share in zip(totals[1::3], totals[2::3], shares, strict=True)
    ]
    return Reliability(brier, error, bins)


def find_threshold(
    judged: Judged, fold_of: NDArray[np.int64], wanted: float, calibration: Calibration
) -> Threshold:
    """The threshold by all topics, and what one that is chosen in the same way does on topics that
    it has not seen.
    """
    above = np.zeros(len(judged.scores), np.bool_)
    for rows in _folds(judged, fold_of):
        lowest = lowest_score(judged.of(~rows), wanted)
        if lowest is not None:
            above |= rows & (judged.scores >= lowest)
    sums = judged.by_topic(above & judged.relevant, above)
    hits, docs = sums.sum(axis=0).tolist()
    precision = None
    if docs:
        with np.errstate(invalid="ignore"):
            (precision,) = _intervals(sums, lambda totals: totals[:, :1] / totals[:, 1:])
    recall, score = hits / float(judged.relevant.sum()), lowest_score(judged, wanted)
    probability = None if score is None else float(calibration(np.array([score]))[0])
    return Threshold(wanted, score, probability, precision, recall, docs / judged.count)


def lowest_score(judged: Judged, wanted: float) -> float | None:
    """The lowest score such that the wanted share of the docs with it or a higher one is
    relevant.
    """
    order = np.argsort(-judged.scores, kind="stable")
    scores = judged.scores[order]
    precision = np.cumsum(judged.relevant[order]) / np.arange(1, len(scores) + 1)
    ends = np.append(np.diff(scores) != 0, True)
    ends[: _LEAST_FOUND - 1] = False
    reached = np.flatnonzero(ends & (precision >= wanted))
    return float(scores[reached[-1]]) if len(reached) else None


def _folds(judged: Judged, fold_of: NDArray[np.int64]) -> Iterator[NDArray[np.bool_]]:
    """The docs of each fold: bool[n]."""
    for fold in range(int(fold_of.max()) + 1):
        yield fold_of[judged.topics] == fold


def _intervals(sums: Floats, figures: Callable[[Floats], Floats]) -> list[Interval]:
    """Figures of the sums over topics, [r, sums] -> [r, figures], with intervals over draws of as
    many topics.
    """
    topics = len(sums)
    shares = np.full(topics, 1 / topics)
    drawn = np.random.default_rng(0).multinomial(topics, shares, _RESAMPLES)
    values = figures(sums.sum(axis=0, keepdims=True))[0]
    low, high = np.nanpercentile(
        figures(np.stack([row @ sums for row in drawn])), _INTERVAL, axis=0
    )
    return [Interval(*map(float, ends)) for ends in zip(values, low, high, strict=True)]
