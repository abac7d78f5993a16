"""Measures from the positions of judged docs, against ir_measures; and means, which are exact in
any order.
"""

from fractions import Fraction

import numpy as np
import pytest

from beamrank.evaluation.evaluate import CurveEvaluator, Evaluator, ExactSum, evaluate
from beamrank.evaluation.measures import by_position
from beamrank.formats.qrels import qrels_of
from benchmarks.differential.evaluation import check

MEASURES = [
    *(
        "RR",
        "RR@3",
        "RR(rel=2)@5",
        "P@3",
        "P(rel=2)@7",
        "R@2",
        "R(rel=3)@9",
        "Success@1",
        "Success(rel=2)@4",
    ),
    *("AP", "AP@4", "AP(rel=2)", "nDCG", "nDCG@5", "Judged@1", "Judged@10"),
]
DOCS = [f"d{number}" for number in range(12)]


@pytest.fixture(scope="module")
def drawn():
    """Judgments of -1 to 3, and five rankings of each topic's candidates, of which some have none
    or one.
    """
    random = np.random.default_rng(4)
    relevance, rankings = {"missing": {"d0": 1}, "negative": {"d1": -1}}, {}
    for number in range(30):
        judged = random.choice([*DOCS, "x", "y"], random.integers(1, 9), replace=False)
        relevance[f"q{number}"] = {str(doc_id): int(random.integers(-1, 4)) for doc_id in judged}
    for number, query_id in enumerate(each for each in relevance if each != "missing"):
        docs = [str(each) for each in random.choice(DOCS, min(number, len(DOCS)), replace=False)]
        rankings[query_id] = docs, [random.permutation(len(docs)) for _ in range(5)]
    return qrels_of(relevance), rankings


def _orders(rankings, point):
    return {
        query_id: [docs[each] for each in orders[point]]
        for query_id, (docs, orders) in rankings.items()
    }


def test_means_of_many_rankings_equal_ir_measures(drawn):
    qrels, rankings = drawn
    measures, others = by_position(MEASURES)
    assert not others
    curves = CurveEvaluator(qrels.relevance, measures)
    for query_id, (docs, orders) in rankings.items():
        places = np.argsort(np.array(orders), axis=1).T + 1
        curves.add(query_id, docs, places.__getitem__)
    curves.add("not judged", ["d1"], lambda docs: docs[:, None] + 1)
    for point in range(5):
        expected = evaluate(_orders(rankings, point).items(), qrels, MEASURES).means
        assert {name: means[point] for name, means in curves.means().items()} == pytest.approx(
            expected, abs=1e-12
        )


def test_measures_that_need_more_than_positions_are_named():
    assert by_position(["RR@10", "Bpref", "nDCG(gains={1:3})@5"])[1] == [
        "Bpref",
        "nDCG(gains={1:3})@5",
    ]


def test_random_runs_have_the_values_of_pytrec_eval_and_ir_measures(tmp_path):
    assert sum(check(seed, tmp_path) for seed in range(15)) > 1500


_MEANS = ["RR@10", "nDCG@10", "AP", "R@20", "NumRet"]


@pytest.fixture(scope="module")
def rankings():
    """Queries with 30 candidates, 3 of them relevant."""
    rng = np.random.default_rng(3)
    found = {f"q{number}": [f"d{doc}" for doc in rng.permutation(30)] for number in range(700)}
    return found, qrels_of(
        {query_id: dict.fromkeys(rng.choice(docs, 3), 1) for query_id, docs in found.items()}
    )


@pytest.mark.parametrize("fast", [False, True])
def test_means_have_the_same_bits_in_any_order_and_shards(rankings, fast):
    found, qrels = rankings
    means, per_query = set(), []
    for seed in range(2):
        order = np.random.default_rng(seed).permutation(list(found)).tolist()
        evaluator = Evaluator(qrels, _MEANS, fast=fast)
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
    measures, _ = by_position(_MEANS[:4])
    means = set()
    for seed in range(2):
        evaluator = CurveEvaluator(qrels.relevance, measures)
        for query_id in np.random.default_rng(seed).permutation(list(found)).tolist():
            evaluator.add(
                query_id,
                found[query_id],
                lambda indices: np.stack([indices + 1, 30 - indices], axis=1),
            )
        means.add(tuple(each.tobytes() for each in evaluator.means().values()))
    assert len(means) == 1


def test_sums_are_exact():
    values = np.random.default_rng(0).random((1000, 2)) * [1, 1e-9]
    total = ExactSum()
    for each in values:
        total.add(each)
    for found, column in zip(total.over(1000), values.T, strict=True):
        assert found == pytest.approx(
            float(sum(map(Fraction, column.tolist())) / 1000), rel=1e-9, abs=2**-62
        )
    ones = ExactSum()
    for _ in range(3):
        ones.add(np.array([1.0, 0.1]))
    assert ones.over(3).tolist() == [1.0, 0.1]
