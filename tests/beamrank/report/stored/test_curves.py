"""The curves of a report against the evaluator over rankings that are made one by one."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from beamrank.config.run import stored_config
from beamrank.evaluation.evaluate import evaluate
from beamrank.evaluation.positions import supported
from beamrank.formats.qrels import read_qrels
from beamrank.ranking.aggregation import METHODS, aggregate, opponent_order, sample_sums, simulate_sample
from beamrank.ranking.rankings import doc_orders
from beamrank.report.curves import Curves, CurveSettings, write_csv
from beamrank.report.stored.scores import iter_stored
from tests.support.rankings import duo_ranking, mono_ranking
from tests.support.scored_outputs import ScoredOutput

OPPONENTS = (1, 3, 9)
TRIALS = 3


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    return ScoredOutput(tmp_path_factory.mktemp("made")).run()


@pytest.fixture(scope="module")
def config(output):
    return stored_config(output.plan.config, "here")


@pytest.fixture(scope="module")
def points(output, config):
    measures, left_out = supported(config.measures)
    assert not left_out
    curves = Curves(read_qrels(config.qrels), measures, CurveSettings.of(config, opponents=OPPONENTS, trials=TRIALS))
    for queries in iter_stored(output.plan, config):
        curves.add(queries)
    return list(curves.points())


def _tables(plan, stage):
    folder, manifest = plan.folder(stage), plan.sealed(stage)
    return pa.concat_tables([folder.read_part(receipt) for receipt in manifest.receipts])


def _assert_equal(points, rankings, config):
    expected = evaluate(doc_orders(rankings), read_qrels(config.qrels), config.measures).means
    assert {point.measure: point.value for point in points} == pytest.approx(expected, abs=1e-12)


def test_figure_2_equals_the_evaluator_at_every_k0(output, config, points):
    candidates, mono = _tables(output.plan, "retrieve"), _tables(output.plan, "mono")
    for k0 in range(config.mono.k + 1):
        scored = mono.filter(pc.less_equal(mono["rank"], k0))
        of_k0 = [point for point in points if point.figure == 2 and point.k0 == k0]
        assert {point.inferences for point in of_k0} == {k0}
        _assert_equal(of_k0, mono_ranking(candidates, scored), config)


def test_figure_3_equals_the_evaluator_for_every_k1_and_aggregation(output, config, points):
    candidates, mono, duo = (_tables(output.plan, stage) for stage in ("retrieve", "mono", "duo"))
    ranked = mono_ranking(candidates, mono)
    for k1 in range(config.duo.k + 1):
        if k1 == 1:
            continue
        for name in set(METHODS) - {"sample"}:
            found = [each for each in points if (each.figure, each.k1, each.aggregation) == (3, k1, name)]
            assert {each.inferences for each in found} == {k1 * (k1 - 1)}
            _assert_equal(found, duo_ranking(ranked, duo, name, k1=k1) if k1 else ranked, config)


def test_figure_3_of_sample_equals_the_evaluator_for_every_seed(output, config, points):
    candidates, mono, duo = (_tables(output.plan, stage) for stage in ("retrieve", "mono", "duo"))
    ranked = mono_ranking(candidates, mono)
    sampled = [each for each in points if each.aggregation == "sample" and each.k1]
    for k1 in range(2, config.duo.k + 1):
        for opponents in OPPONENTS:
            found = [each for each in sampled if (each.k1, each.opponents) == (k1, opponents)]
            for seed in range(TRIALS):
                ranking = duo_ranking(ranked, duo, "sample", k1=k1, opponents=opponents, seed=seed)
                _assert_equal([each for each in found if each.trial == seed], ranking, config)
            draws = [each.value for each in found if each.measure == "AP" and isinstance(each.trial, int)]
            summary = {each.trial: each.value for each in found if each.measure == "AP"}
            assert summary["mean"] == pytest.approx(np.mean(draws))
            assert summary["sd"] == pytest.approx(np.std(draws, ddof=1))
            # Both conventions of the horizontal axis: the caption's, and what the model is asked.
            assert {each.inferences_asked for each in found} == {k1 * min(opponents, k1 - 1)}
            assert {each.inferences for each in found} == {k1 * (min(opponents, k1) - 1)}


def test_sample_of_several_sizes_equals_the_aggregation():
    random = np.random.default_rng(2)
    docs = [f"d{number}" for number in range(20)]
    z = np.round(random.normal(scale=6, size=(20, 20)), 1).astype(np.float32)
    order = opponent_order("q", docs, 3)
    for opponents, scores in sample_sums(z, order, (1, 7, 19, 30)).items():
        assert np.array_equal(scores, aggregate(simulate_sample(z, "q", docs, opponents, 3), "sample"))


def test_csv_has_the_columns_of_the_contract(points):
    lines = write_csv(points).decode().splitlines()
    assert lines[0] == "figure,stage,k0,k1,aggregation,opponents,trial,inferences,inferences_asked,measure,value"
    assert len(lines) == len(points) + 1


@pytest.mark.parametrize(
    ("largest", "k1s", "opponents"),
    [(50, (10, 20, 30, 40, 50), (10, 20, 30, 40)), (10, tuple(range(2, 11)), (2, 4, 6, 8)), (2, (2,), (1, 2))],
)
def test_default_points_are_those_of_the_paper(config, largest, k1s, opponents):
    asked = config.model_copy(update={"duo": config.duo.model_copy(update={"k": largest})})
    settings = CurveSettings.of(asked)
    assert (settings.k1s, settings.opponents, settings.trials) == (k1s, opponents, 10)
