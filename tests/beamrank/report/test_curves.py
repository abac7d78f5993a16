"""The curves of a report against the evaluator over rankings that are made one by one."""

from collections.abc import Sequence

import numpy as np
import pytest

from beamrank.evaluation.evaluate import evaluate
from beamrank.evaluation.measures import by_position
from beamrank.formats.qrels import read_qrels
from beamrank.ranking.aggregation import METHODS
from beamrank.ranking.rankings import doc_orders
from beamrank.ranking.variants import Depths
from beamrank.report.curves import Curves, write_csv
from tests.support.scored_outputs import ScoredOutput

OPPONENTS = (1, 3)
TRIALS = 3


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return ScoredOutput(tmp_path_factory.mktemp("made")).run().runs()


@pytest.fixture(scope="module")
def curves(runs):
    measures, left_out = by_position(runs.config.measures)
    assert not left_out
    depths = Depths(opponents=OPPONENTS, trials=TRIALS)
    curves = Curves(read_qrels(runs.config.qrels).relevance, measures, runs.finished, depths)
    for parts in runs.shards():
        curves.add(parts)
    return curves.found()


def _assert_equal(points, runs, stage, k=None, **settings):
    """The points of one variant have the measures of its ranking."""
    varied = next(each for each in runs.all.values() if each[0].name == stage)[1]
    chosen = type(varied)(**{**vars(varied), **settings})
    order: dict[str, Sequence[str]] = {}
    for parts in runs.shards():
        order |= doc_orders(chosen.rank(parts.before(stage), parts.part(stage), k))
    expected = evaluate(order.items(), read_qrels(runs.config.qrels), runs.config.measures).means
    assert {point.measure: point.value for point in points} == pytest.approx(expected, abs=1e-12)


def test_figure_2_equals_the_evaluator(runs, curves):
    for k0 in (0, 1, 5, 8):
        points = [point for point in curves["mono"] if point.variant.k0 == k0]
        assert {(point.figure, point.stage) for point in points} == {(2, "mono" if k0 else "first")}
        _assert_equal(points, runs, "mono", k0)


def test_figure_3_equals_the_evaluator_for_every_aggregation(runs, curves):
    for k1 in (0, 2, 5):
        for name in set(METHODS) - {"sample"}:
            points = [
                each
                for each in curves["duo"]
                if (each.variant.k1, each.variant.aggregation) == (k1, name)
            ]
            assert {(each.figure, each.stage, each.variant.k0) for each in points} == {
                (3, "duo" if k1 else "mono", 8)
            }
            _assert_equal(points, runs, "duo", k1, aggregation=name)


def test_figure_3_of_sample_equals_the_evaluator_for_every_seed(runs, curves):
    for k1, opponents in ((2, 1), (4, 3), (5, 1)):
        points = [
            each
            for each in curves["duo"]
            if (each.variant.k1, each.variant.opponents) == (k1, opponents)
        ]
        for seed in range(TRIALS):
            drawn = [each for each in points if each.variant.trial == seed]
            _assert_equal(drawn, runs, "duo", k1, aggregation="sample", drawn=(opponents, seed))
        values = {each.variant.trial: each.value for each in points if each.measure == "AP"}
        draws = [values[seed] for seed in range(TRIALS)]
        assert values["mean"] == pytest.approx(np.mean(draws))
        assert values["sd"] == pytest.approx(np.std(draws, ddof=1))


def test_csv_has_the_columns_of_the_contract(curves):
    points = [point for each in curves.values() for point in each]
    lines = write_csv(points).decode().splitlines()
    assert lines[0] == (
        "figure,stage,k0,k1,aggregation,opponents,trial,inferences,inferences_asked,measure,value"
    )
    assert len(lines) == len(points) + 1
