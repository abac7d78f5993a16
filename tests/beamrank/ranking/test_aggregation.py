"""The eight aggregations against double loops written from the papers' equations."""

import hashlib
import math

import numpy as np
import pytest

from beamrank.errors import ConfigError, DataError
from beamrank.ranking.aggregation import (
    METHODS,
    aggregate,
    opponent_order,
    pair_inferences,
    sampled_opponents,
    simulate_sample,
)
from benchmarks.differential.ranking import aggregate_by_hand


def _matrix(count: int, seed: int = 0, spread: float = 3.0) -> np.ndarray:
    z = np.random.default_rng(seed).normal(0, spread, (count, count)).astype(np.float32)
    np.fill_diagonal(z, np.nan)
    return z


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("count", [2, 3, 10, 50])
def test_aggregation_equals_the_double_loop_of_the_equations(method, count):
    z = _matrix(count, seed=count)
    scores = aggregate(z, method)
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, aggregate_by_hand(z.tolist(), method), rtol=1e-12)


def test_min_and_max_are_log_odds():
    z = np.array([[np.nan, 40, 41], [-40, np.nan, 1], [2, 3, np.nan]], dtype=np.float32)
    assert aggregate(z, "min").tolist() == [40, -40, 2]
    assert aggregate(z, "max").tolist() == [41, 1, 3]


def test_binary_counts_only_log_odds_above_zero():
    z = np.array([[np.nan, 0, 1e-6], [0, np.nan, -1], [-1e-6, 1, np.nan]], dtype=np.float32)
    assert aggregate(z, "binary").tolist() == [1, 0, 1]


def test_log_sums_are_finite_for_large_log_odds():
    z = np.array([[np.nan, 200], [200, np.nan]], dtype=np.float32)
    assert aggregate(z, "sym_log_sum").tolist() == [-200, -200]
    assert aggregate(-z, "log_sum").tolist() == [-200, -200]


@pytest.mark.parametrize("method", METHODS)
def test_aggregation_of_one_candidate_is_zero(method):
    assert aggregate(np.full((1, 1), np.nan, dtype=np.float32), method).tolist() == [0]
    assert aggregate(np.zeros((0, 0), dtype=np.float32), method).tolist() == []


@pytest.mark.parametrize("method", METHODS)
def test_diagonal_is_ignored(method):
    z = _matrix(5)
    filled = z.copy()
    np.fill_diagonal(filled, 99)
    assert aggregate(filled, method).tolist() == aggregate(z, method).tolist()


@pytest.mark.parametrize("method", METHODS)
def test_aggregation_ignores_the_order_of_opponents(method):
    z = _matrix(40, seed=7)
    order = np.random.default_rng(1).permutation(40)
    assert (
        aggregate(z[np.ix_(order, order)], method).tolist() == aggregate(z, method)[order].tolist()
    )


@pytest.mark.parametrize("method", [method for method in METHODS if method != "sample"])
def test_missing_pair_is_an_error(method):
    z = _matrix(4)
    z[0, 1] = np.nan
    with pytest.raises(DataError, match=rf"1 .*12 .*{method}"):
        aggregate(z, method)


@pytest.mark.parametrize("method", METHODS)
def test_infinite_log_odds_is_an_error(method):
    z = _matrix(4)
    z[0, 1] = np.inf
    with pytest.raises(DataError, match="infinite"):
        aggregate(z, method)


def test_unknown_aggregation_lists_the_known_ones():
    with pytest.raises(
        ConfigError, match="sum, binary, min, max, sample, sym_sum, log_sum, sym_log_sum"
    ):
        aggregate(_matrix(2), "mean")


def test_matrix_that_is_not_square_is_an_error():
    with pytest.raises(DataError, match=r"\(2, 3\)"):
        aggregate(np.zeros((2, 3), dtype=np.float32), "sum")


def test_sampled_opponents_are_the_smallest_digests():
    doc_ids = [f"doc-{i}" for i in range(12)]
    asked = sampled_opponents("q1", doc_ids, opponents=5, seed=3)
    assert asked.sum(axis=1).tolist() == [5] * 12
    assert not asked.diagonal().any()
    for i, doc_id in enumerate(doc_ids):
        others = sorted(
            (other for other in doc_ids if other != doc_id),
            key=lambda other: hashlib.sha256(f"3\0q1\0{doc_id}\0{other}".encode()).hexdigest(),
        )
        assert {doc_ids[j] for j in np.flatnonzero(asked[i])} == set(others[:5])


def test_sampled_opponents_depend_only_on_ids_and_seed():
    doc_ids = ["é", "b", "c", "d", "e", "f"]
    order = [3, 0, 5, 1, 4, 2]
    asked = sampled_opponents("q", doc_ids, 2, seed=0)
    shuffled = sampled_opponents("q", [doc_ids[i] for i in order], 2, seed=0)
    assert (shuffled == asked[np.ix_(order, order)]).all()
    assert (sampled_opponents("q", doc_ids, 2, seed=1) != asked).any()
    assert (sampled_opponents("q2", doc_ids, 2, seed=0) != asked).any()


@pytest.mark.parametrize("doc_ids", [[], ["a"], ["a", "b"]])
def test_order_of_no_opponents_is_of_positions_too(doc_ids):
    order = opponent_order("q", doc_ids, 0)
    assert (order.dtype, order.shape) == (np.int64, (len(doc_ids), max(len(doc_ids) - 1, 0)))


@pytest.mark.parametrize(
    ("candidates", "k", "opponents", "pairs"),
    [(5, 3, None, 6), (2, 3, None, 2), (5, 4, 2, 8), (5, 3, 9, 6), (0, 3, 1, 0)],
)
def test_pairs_of_a_query_are_counted(candidates, k, opponents, pairs):
    assert pair_inferences(candidates, k, opponents) == pairs


@pytest.mark.parametrize("opponents", [3, 4, 100])
def test_sample_with_all_opponents_is_sum(opponents):
    z = _matrix(4)
    sampled = simulate_sample(z, "q", list("abcd"), opponents, seed=0)
    np.testing.assert_array_equal(sampled, z)
    assert aggregate(sampled, "sample").tolist() == aggregate(z, "sum").tolist()


def test_simulate_sample_sums_over_the_drawn_opponents():
    z = _matrix(6)
    doc_ids = list("abcdef")
    sampled = simulate_sample(z, "q", doc_ids, 2, seed=4)
    assert sampled.dtype == np.float32
    asked = sampled_opponents("q", doc_ids, 2, seed=4)
    expected = [
        sum(1 / (1 + math.exp(-z[i, j])) for j in np.flatnonzero(asked[i])) for i in range(6)
    ]
    np.testing.assert_allclose(aggregate(sampled, "sample"), expected, rtol=1e-6)
