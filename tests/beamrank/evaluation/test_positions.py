"""Measures from the positions of judged docs, against ir_measures."""

import numpy as np
import pytest

from beamrank.evaluation.evaluate import CurveEvaluator, Evaluator, evaluate
from beamrank.evaluation.measures import by_position
from beamrank.formats.qrels import qrels_of
from benchmarks.differential.evaluation import check

MEASURES = [
    *("RR", "RR@3", "RR(rel=2)@5", "P@3", "P(rel=2)@7", "R@2", "R(rel=3)@9", "Success@1", "Success(rel=2)@4"),
    *("AP", "AP@4", "AP(rel=2)", "nDCG", "nDCG@5", "Judged@1", "Judged@10"),
]
DOCS = [f"d{number}" for number in range(12)]


@pytest.fixture(scope="module")
def drawn():
    """Judgments of -1 to 3, and five rankings of each topic's candidates, of which some have none or one."""
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
    return {query_id: [docs[each] for each in orders[point]] for query_id, (docs, orders) in rankings.items()}


def test_means_of_many_rankings_equal_ir_measures(drawn):
    qrels, rankings = drawn
    measures, others = by_position(MEASURES)
    assert not others
    curves = CurveEvaluator(qrels, measures)
    for query_id, (docs, orders) in rankings.items():
        places = np.argsort(np.array(orders), axis=1).T + 1
        curves.add(query_id, docs, places.__getitem__)
    curves.add("not judged", ["d1"], lambda docs: docs[:, None] + 1)
    for point in range(5):
        expected = evaluate(_orders(rankings, point).items(), qrels, MEASURES).means
        assert {name: means[point] for name, means in curves.means().items()} == pytest.approx(expected, abs=1e-12)


def test_evaluator_by_position_equals_ir_measures(drawn):
    qrels, rankings = drawn
    names = [*MEASURES, "Bpref", "NumQ", "NumRet", "Judged@10"]
    evaluator = Evaluator(qrels, names, fast=True)
    evaluator.add(_orders(rankings, 0).items())
    found, expected = evaluator.evaluation(), evaluate(_orders(rankings, 0).items(), qrels, names)
    assert found.means == pytest.approx(expected.means, abs=1e-12)
    assert found.notes == expected.notes
    assert list(found.per_query) == list(expected.per_query)
    for query_id, values in expected.per_query.items():
        assert found.per_query[query_id] == pytest.approx(values, abs=1e-12)


def test_measures_that_need_more_than_positions_are_named():
    assert by_position(["RR@10", "Bpref", "nDCG(gains={1:3})@5"])[1] == ["Bpref", "nDCG(gains={1:3})@5"]


def test_random_runs_have_the_values_of_pytrec_eval_and_ir_measures(tmp_path):
    assert sum(check(seed, tmp_path) for seed in range(40)) > 4000
