"""The maps from scores to probabilities, against scikit-learn; their reliability; thresholds."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.calibration import _sigmoid_calibration  # type: ignore[import-untyped]
from sklearn.isotonic import IsotonicRegression  # type: ignore[import-untyped]

from beamrank.errors import DataError
from contrib.calibration.fit import (
    METHODS,
    Judged,
    find_threshold,
    fit_isotonic,
    fit_platt,
    held_out,
    lowest_score,
    measure,
    split_topics,
)

_SLOPE, _INTERCEPT = 0.5, -1.0


@pytest.fixture(scope="module")
def judged() -> Judged:
    """Scores with ties, and labels with known probabilities."""
    random = np.random.default_rng(3)
    scores = np.round(random.normal(0, 4, 6000), 1)
    relevant = random.random(6000) < expit(_SLOPE * scores + _INTERCEPT)
    return Judged(scores, relevant, np.repeat(np.arange(200), 30), 200)


@pytest.fixture
def fold_of() -> np.ndarray:
    return split_topics(np.random.default_rng(1).integers(0, 1 << 60, 200).astype(np.uint64), 5)


def test_platt_is_that_of_scikit_learn(judged):
    slope, intercept = fit_platt(judged)
    assert [-slope, -intercept] == pytest.approx(
        _sigmoid_calibration(judged.scores, judged.relevant), rel=1e-3
    )
    assert (slope, intercept) == pytest.approx((_SLOPE, _INTERCEPT), abs=0.1)


def test_isotonic_is_that_of_scikit_learn(judged):
    theirs = IsotonicRegression(out_of_bounds="clip").fit(judged.scores, judged.relevant)
    asked = np.linspace(-20, 20, 999)
    np.testing.assert_allclose(fit_isotonic(judged)(asked), theirs.predict(asked), atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_calibrated_probabilities_are_reliable_on_held_out_topics(judged, fold_of, method):
    raw = measure(judged, expit(judged.scores))
    reliability = measure(judged, held_out(judged, fold_of, METHODS[method].fit))
    best = float(np.mean((judged.relevant - expit(_SLOPE * judged.scores + _INTERCEPT)) ** 2))
    assert best == pytest.approx(reliability.brier.value, abs=0.003)
    assert reliability.calibration_error.value < 0.03 < 0.1 < raw.calibration_error.low
    assert reliability.brier.low < reliability.brier.value < reliability.brier.high < raw.brier.low
    assert sum(one.docs for one in reliability.bins) == len(judged.scores)
    assert all(
        one.relevant.low - 0.03 <= one.probability <= one.relevant.high + 0.03
        for one in reliability.bins
    )


def test_intervals_widen_where_the_docs_of_a_topic_agree(judged):
    errors = np.square(expit(judged.scores) - judged.relevant)
    topics = np.empty(6000, np.int64)
    topics[np.argsort(errors)] = np.arange(6000) // 30
    together = measure(
        Judged(judged.scores, judged.relevant, topics, 200), expit(judged.scores)
    ).brier
    apart = measure(judged, expit(judged.scores)).brier
    assert together.value == pytest.approx(apart.value)
    assert together.high - together.low > 3 * (apart.high - apart.low)


def test_folds_share_the_topics_out_by_their_hashes():
    hashes = np.array([5, 1, 9, 7, 3, 8], np.uint64)
    assert split_topics(hashes, 3).tolist() == [2, 0, 2, 0, 1, 1]
    assert split_topics(hashes[::-1], 3).tolist() == [1, 1, 0, 2, 0, 2]


def test_scores_that_fall_with_relevance_are_refused(judged):
    upside_down = Judged(-judged.scores, judged.relevant, judged.topics, judged.count)
    with pytest.raises(DataError, match="`beamrank doctor --checkpoint`"):
        fit_platt(upside_down)


@pytest.mark.parametrize("wanted", [0.5, 0.8])
def test_threshold_keeps_its_promise_on_held_out_topics(judged, fold_of, wanted):
    threshold = find_threshold(judged, fold_of, wanted, fit_platt(judged))
    assert threshold.score is not None
    above = judged.scores >= threshold.score
    assert (
        judged.relevant[above].mean()
        >= wanted
        > judged.relevant[judged.scores >= threshold.score - 0.1].mean()
    )
    assert threshold.precision.low <= wanted + 0.02
    assert threshold.precision.high >= wanted - 0.02
    assert threshold.docs_per_topic == pytest.approx(above.sum() / 200, rel=0.1)
    assert threshold.recall == pytest.approx(
        judged.relevant[above].sum() / judged.relevant.sum(), rel=0.1
    )


def test_threshold_that_a_few_docs_reach_is_luck():
    scores, relevant = np.arange(30.0), np.arange(30) >= 25
    assert lowest_score(Judged(scores, relevant, np.zeros(30, np.int64), 1), 0.9) is None
    assert lowest_score(Judged(scores, relevant, np.zeros(30, np.int64), 1), 0.5) == 20
