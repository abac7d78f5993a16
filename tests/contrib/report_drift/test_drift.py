"""What changed since an earlier run: against plain loops over the rankings of both."""

import csv
import io

import numpy as np
import pytest

from beamrank.evaluation.compare import kendalls_tau, rank_biased_overlap
from beamrank.evaluation.evaluate import evaluate
from beamrank.formats.qrels import read_qrels
from beamrank.ranking.rankings import doc_orders
from beamrank.report.report import ReportSettings, gather
from contrib.report_drift.drift import find_drift, write_drift
from tests.support.scored_outputs import ScoredOutput

RUNS = ("candidates", "mono", "duo-sum")


def _rankings(output):
    runs = output.runs()
    found: dict[str, dict[str, list[str]]] = {run: {} for run in RUNS}
    for parts in runs.shards():
        for run, ranked in found.items():
            ranked |= {
                query_id: list(doc_ids)
                for query_id, doc_ids in doc_orders(runs.rankings(parts, run))
            }
    return found


def _drift(new, old):
    report = gather(new.runs(), ReportSettings(texts=False, curves=False))
    return find_drift(report, old.plan.output)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """An earlier run of q0 to q6, and one of q0 to q8 whose candidates are drawn anew."""
    folder = tmp_path_factory.mktemp("runs")
    old = ScoredOutput(folder / "old").run()
    new = ScoredOutput(folder / "new", topics=9, seed=6).run()
    return new, old


def test_topics_of_a_changed_top_ten_equal_a_plain_loop(outputs):
    new, old = outputs
    drift = _drift(new, old)
    now, before = _rankings(new), _rankings(old)
    assert [run.run for run in drift.runs] == list(RUNS)
    for run in drift.runs:
        expected: dict[str, tuple[str, ...]] = {}
        for query_id in new.query_ids:
            ranked, earlier = (list(each[run.run].get(query_id, ())) for each in (now, before))
            if query_id not in old.query_ids:
                expected[query_id] = ("new topic",)
            elif ranked[:10] != earlier[:10]:
                new_doc = {*ranked[:10]} - {*before["candidates"].get(query_id, ())}
                lost_doc = {*earlier[:10]} - {*now["candidates"].get(query_id, ())}
                expected[query_id] = (*["new doc"] * bool(new_doc), *["lost doc"] * bool(lost_doc))
        assert {
            each.query_id: tuple(c for c in each.causes if c != "new score") for each in run.changes
        } == expected
        both = [
            (now[run.run][each], before[run.run][each])
            for each in old.query_ids
            if now[run.run].get(each)
        ]
        assert run.topics == len(old.query_ids)
        assert run.rbo == pytest.approx(
            np.mean([rank_biased_overlap(one, other) for one, other in both])
        )
        taus = [kendalls_tau(one, other) for one, other in both]
        assert run.tau == pytest.approx(np.mean([tau for tau in taus if tau is not None]))


def test_measures_are_compared_over_the_topics_of_both_runs(outputs):
    new, old = outputs
    qrels = read_qrels(new.plan.config["qrels"]).of_topics({*old.query_ids})
    for run in _drift(new, old).runs:
        values = [
            evaluate(
                _rankings(each)[run.run].items(), qrels, ["RR@10", "nDCG@10"], old.query_ids
            ).means
            for each in outputs
        ]
        for name in ("RR@10", "nDCG@10"):
            assert run.comparisons[name].mean == pytest.approx(values[0][name], abs=1e-12)
            assert run.comparisons[name].baseline == pytest.approx(values[1][name], abs=1e-12)


def test_equal_runs_have_no_changes_and_equal_scores(outputs):
    drift = _drift(outputs[1], outputs[1])
    assert [
        (run.topics, list(run.changes), run.rbo, np.count_nonzero(run.score_changes))
        for run in drift.runs
    ] == [(7, [], pytest.approx(1.0), 0)] * 3
    assert drift.gone == []
    assert write_drift(drift) == b"run,query_id,causes,rbo,tau\n"


def test_scores_that_changed_alone_are_the_cause(tmp_path):
    """Same candidates, other scores of mono and duo."""
    old = ScoredOutput(tmp_path / "old").run()
    new = ScoredOutput(tmp_path / "new", spread=3.0).run()
    first, mono, _duo = _drift(new, old).runs
    assert list(first.changes) == []
    assert {cause for each in mono.changes for cause in each.causes} <= {"new score"}
    assert np.count_nonzero(mono.score_changes)


def test_topics_that_only_one_run_has_are_listed(outputs):
    new, old = outputs
    drift = _drift(old, new)
    assert drift.gone == ["q7", "q8"]
    rows = list(csv.DictReader(io.StringIO(write_drift(_drift(new, old)).decode())))
    assert [(row["run"], row["rbo"]) for row in rows if row["query_id"] == "q8"] == [
        (run, "") for run in RUNS
    ]


def test_an_earlier_run_that_was_stopped_is_compared_as_far_as_it_got(tmp_path):
    old = ScoredOutput(tmp_path / "old").run(stages=2)
    new = ScoredOutput(tmp_path / "new").run()
    assert [run.run for run in _drift(new, old).runs] == ["candidates", "mono"]
