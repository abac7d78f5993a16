"""The agreement of rankings, against published values and a computation by the definition."""

import numpy as np
import pytest

from beamrank.evaluation.agreement import METHODS, agreement, kendalls_tau, overlap, rank_biased_overlap


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("abcdefg", "abcdefg", 1),
        ("abcde", "bcdae", 0.828),  # the README of b4ny4n/rankmeasures
        ("abcdefg", "bacdefg", 0.9),  # the doctest of dlukes/rbo
        # rbo 0.1.3 on PyPI
        ("abcdefg", "zcavwxybe", 0.38985537696428574),
        ("zcavwxybe", "abc", 0.59380840125),
        ("abc", "xyz", 0),
    ],
)
def test_rbo_equals_published_values(one, other, expected):
    assert rank_biased_overlap(one, other) == pytest.approx(expected, abs=1e-12)
    assert rank_biased_overlap(other, one) == pytest.approx(expected, abs=1e-12)


def test_rbo_equals_equation_32():
    random = np.random.default_rng(0)
    for _ in range(20):
        s, long = sorted(random.integers(1, 30, size=2).tolist())
        short_list, long_list = random.permutation(40)[:s].tolist(), random.permutation(40)[:long].tolist()
        p = random.uniform(0.1, 0.99)
        x = {d: len({*short_list[:d]} & {*long_list[:d]}) for d in range(1, long + 1)}
        sums = sum(x[d] / d * p**d for d in x) + sum(x[s] * (d - s) / s / d * p**d for d in range(s + 1, long + 1))
        expected = (1 - p) / p * sums + ((x[long] - x[s]) / long + x[s] / s) * p**long
        assert rank_biased_overlap(short_list, long_list, p) == pytest.approx(expected)


def test_tau_counts_pairs_of_shared_docs():
    """Of the pairs of a, b, c two have the same order and one has not."""
    assert kendalls_tau("abxc", "ybac") == pytest.approx(1 / 3)
    assert kendalls_tau("abc", "cba") == pytest.approx(-1)
    assert kendalls_tau("ab", "ax") is None


def test_overlap_divides_by_the_longer_list():
    assert overlap("abcd", "cxab", 2) == 0
    assert overlap("abcd", "bxab", 2) == 1 / 2
    assert overlap("ab", "abc", 10) == 2 / 3


def test_agreement_is_a_mean_over_the_topics_of_both_runs():
    found = agreement({"q1": "abc", "q2": "ab", "q3": "a"}, {"q2": "ba", "q1": "abc", "q4": "a"})
    assert found.topics == 2
    assert found.means == {"RBO": pytest.approx((1 + 0.9) / 2), "tau": 0, "overlap@10": 1}


def test_agreement_of_runs_without_a_common_topic_is_undefined():
    found = agreement({"q1": "abc"}, {"q2": "abc"})
    assert (found.topics, found.means) == (0, dict.fromkeys(METHODS))
