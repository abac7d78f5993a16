"""Means: exact, so that neither the order of topics nor the cut of shards changes a bit."""

from fractions import Fraction

import numpy as np
import pytest

from beamrank.evaluation.evaluate import CurveEvaluator, Evaluator, ExactSum
from beamrank.evaluation.measures import by_position
from beamrank.formats.qrels import qrels_of

MEASURES = ["RR@10", "nDCG@10", "AP", "R@20", "NumRet"]


@pytest.fixture(scope="module")
def rankings():
    """Queries with 30 candidates, 3 of them relevant."""
    rng = np.random.default_rng(3)
    found = {f"q{number}": [f"d{doc}" for doc in rng.permutation(30)] for number in range(700)}
    return found, qrels_of({query_id: dict.fromkeys(rng.choice(docs, 3), 1) for query_id, docs in found.items()})


@pytest.mark.parametrize("fast", [False, True])
def test_means_have_the_same_bits_in_any_order_and_shards(rankings, fast):
    found, qrels = rankings
    means, per_query = set(), []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(list(found)).tolist()
        evaluator = Evaluator(qrels, MEASURES, fast=fast)
        for shard in np.array_split(order, seed + 1):
            evaluator.add((query_id, found[query_id]) for query_id in shard.tolist())
        evaluation = evaluator.evaluation(by_id=True)
        means.add(tuple(evaluation.means.values()))
        per_query.append(list(evaluation.rows()))
    assert len(means) == 1
    assert all(each == per_query[0] for each in per_query)
    assert next(iter(means))[0] == float(
        sum(Fraction(value) for _, name, value in per_query[0] if name == "RR@10") / 700
    )


def test_curves_have_the_same_bits_in_any_order(rankings):
    found, qrels = rankings
    measures, _ = by_position(MEASURES[:4])
    means = set()
    for seed in range(4):
        evaluator = CurveEvaluator(qrels, measures)
        for query_id in np.random.default_rng(seed).permutation(list(found)).tolist():
            evaluator.add(query_id, found[query_id], lambda indices: np.stack([indices + 1, 30 - indices], axis=1))
        means.add(tuple(each.tobytes() for each in evaluator.means().values()))
    assert len(means) == 1


def test_sums_are_exact():
    values = np.random.default_rng(0).random((1000, 2)) * [1, 1e-9]
    total = ExactSum()
    for each in values:
        total.add(each)
    for found, column in zip(total.over(1000), values.T, strict=True):
        assert found == pytest.approx(float(sum(map(Fraction, column.tolist())) / 1000), rel=1e-9, abs=2**-62)
    ones = ExactSum()
    for _ in range(3):
        ones.add(np.array([1.0, 0.1]))
    assert ones.over(3).tolist() == [1.0, 0.1]
