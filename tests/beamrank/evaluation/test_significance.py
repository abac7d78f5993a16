"""The tests of a difference and their corrections, against computations by hand and other
libraries.
"""

import math

import numpy as np
import pytest
from scipy.stats import permutation_test

from beamrank.evaluation.evaluate import evaluate
from beamrank.evaluation.significance import (
    CORRECTIONS,
    TESTS,
    comparable,
    compare_all,
    compare_evaluations,
    compare_values,
    corrected,
    randomization_test,
)
from beamrank.formats.qrels import qrels_of

QRELS = qrels_of({"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 1}})
GOOD = {"q1": ["a", "x"], "q2": ["b", "x"], "q3": ["x", "y", "z", "c"]}
POOR = {"q1": ["x", "a"], "q2": ["b"]}


def test_t_test_equals_the_textbook():
    run, baseline = [0.5, 1.0, 0.25, 0.0], [0.25, 0.5, 0.5, 0.0]
    differences = [0.25, 0.5, -0.25, 0.0]
    mean = sum(differences) / 4
    deviation = math.sqrt(sum((each - mean) ** 2 for each in differences) / 3)
    found = compare_values(run, baseline)
    assert (found.mean, found.baseline, found.difference) == pytest.approx((0.4375, 0.3125, 0.125))
    # Student's t with 3 degrees of freedom: its 97.5 % quantile, and its distribution function in
    # closed form.
    assert found.high - found.difference == pytest.approx(3.182446305 * deviation / 2)
    assert found.difference - found.low == pytest.approx(3.182446305 * deviation / 2)
    x = mean / (deviation / 2) / math.sqrt(3)
    assert found.p_value == pytest.approx(1 - 2 / math.pi * (x / (1 + x * x) + math.atan(x)))
    assert (found.better, found.equal, found.worse) == (2, 1, 1)


def test_equal_runs_have_no_p_value():
    found = compare_values([0.5, 1.0], [0.5, 1.0])
    assert (found.difference, found.low, found.high, found.p_value, found.equal) == (
        0,
        0,
        0,
        None,
        2,
    )
    assert [test(np.array([0.5, 1.0]), np.array([0.5, 1.0])) for test in TESTS.values()] == [
        None,
        None,
    ]


def test_randomization_test_counts_every_assignment_of_signs():
    """Differences .3, .2 and .1: only all plus and all minus give a sum as large as .6."""
    run, baseline = np.array([0.5, 0.5, 0.5, 0.7]), np.array([0.2, 0.3, 0.4, 0.7])
    assert randomization_test(run, baseline) == 2 / 8
    assert randomization_test(run, baseline[[1, 0, 2, 3]]) == 2 / 8
    assert randomization_test(baseline, run) == 2 / 8


@pytest.mark.parametrize("topics", [7, 12, 60])
def test_randomization_test_equals_scipy(topics):
    random = np.random.default_rng(topics)
    run, baseline = random.choice([0, 0.25, 0.5, 1], size=(2, topics))
    theirs = permutation_test(
        (run - baseline,),
        np.mean,
        permutation_type="samples",
        n_resamples=9999,
        rng=np.random.default_rng(1),
    )
    exact = np.count_nonzero(run != baseline) <= 13
    found = randomization_test(run, baseline)
    assert found == pytest.approx(float(theirs.pvalue), abs=1e-9 if exact else 0.02)
    assert found == randomization_test(run, baseline)


def test_corrections_equal_published_values():
    """The first are those of `multipletests` in statsmodels 0.15.0."""
    assert CORRECTIONS["holm"]([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert CORRECTIONS["holm"]([0.5, 0.6]) == [1, 1]
    assert CORRECTIONS["bonferroni"]([0.01, 0.04, 0.3]) == pytest.approx([0.03, 0.12, 0.9])
    assert CORRECTIONS["none"]([0.01, 0.04]) == [0.01, 0.04]


def test_undefined_p_value_stays_undefined_and_counts_as_a_test():
    assert corrected([0.01, None, 0.02], "holm") == pytest.approx([0.02, None, 0.02])
    assert corrected([], "holm") == []


def test_differences_that_are_equal_up_to_rounding_give_no_warning(recwarn):
    assert compare_values([0.3, 0.7, 0.9], [0.3 - 0.1, 0.7 - 0.1, 0.9 - 0.1]).p_value == 0
    assert not recwarn.list


def test_constant_difference_has_p_value_0():
    found = compare_values([0.5, 1.0], [0.25, 0.75])
    assert (found.difference, found.low, found.high, found.p_value, found.better) == (
        0.25,
        0.25,
        0.25,
        0,
        2,
    )


def test_topics_are_paired_by_id():
    run = evaluate(GOOD.items(), QRELS, ["RR", "P@1", "NumRelRet"])
    baseline = evaluate(dict(reversed(POOR.items())).items(), QRELS, ["RR", "P@1", "NumRelRet"])
    found = compare_evaluations(run, baseline)
    assert list(found) == ["RR", "P@1"]
    assert (found["RR"].better, found["RR"].equal, found["RR"].worse) == (2, 1, 0)
    assert found["RR"].difference == pytest.approx((0.5 + 0 + 0.25) / 3)
    assert found["RR"].difference == pytest.approx(run.means["RR"] - baseline.means["RR"])


def test_comparison_needs_two_topics():
    qrels = qrels_of({"q1": {"a": 1}})
    assert (
        compare_evaluations(
            evaluate(GOOD.items(), qrels, ["RR"]), evaluate(POOR.items(), qrels, ["RR"])
        )
        == {}
    )


def test_p_values_of_runs_are_corrected_together():
    runs = [np.array([0.0, 0.5, 0.0, 0.25]), np.array([1.0, 0.5, 0.75, 1.0])]
    baselines = [np.array([1.0, 1.0, 0.5, 1.0])] * 2
    found = compare_all(runs, baselines)
    alone = [compare_values(*pair) for pair in zip(runs, baselines, strict=True)]
    assert [each.difference for each in found] == [each.difference for each in alone]
    assert [each.p_value for each in found] == corrected([each.p_value for each in alone], "holm")
    assert [each.p_value != other.p_value for each, other in zip(found, alone, strict=True)] == [
        True,
        False,
    ]


def test_only_means_over_two_topics_can_be_compared():
    assert comparable(["NumRet", "RR", "P_1"], 2) == ["RR", "P@1"]
    assert comparable(["RR"], 1) == []
