"""The rows of stages from stored parts, against counts by hand and other libraries; the answer at
the top of a report.
"""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from beamrank.evaluation.evaluate import evaluate
from beamrank.evaluation.significance import compare_values, corrected
from beamrank.formats.qrels import read_qrels
from beamrank.ranking.rankings import Ranking, doc_orders
from beamrank.ranking.variants import Depths
from beamrank.report import stage_rows
from beamrank.report.page import report_part
from beamrank.report.report import Report, ReportSettings, gather
from beamrank.report.stage_rows import StageReader, StageRow, answer_words
from tests.support.scored_outputs import ScoredOutput

_SETTINGS = ReportSettings(texts=False, queries=0, changes=0, depths=Depths((), (), (2,), 1))


def _gather(output: ScoredOutput) -> Report:
    return gather(output.runs(), _SETTINGS)


def _rankings(output: ScoredOutput, stage: str, k: int | None = None) -> dict[str, Ranking]:
    """After a stage, as if it had scored only k docs."""
    runs = output.runs()
    found: dict[str, Ranking] = {}
    (ranker,) = (each for each in runs.stages if each.name == stage)
    for parts in runs.shards():
        found |= parts.rank(ranker, k)
    return found


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> ScoredOutput:
    return ScoredOutput(tmp_path_factory.mktemp("made"), topics=40).run()


@pytest.fixture(scope="module")
def report(output: ScoredOutput) -> Report:
    return _gather(output)


def test_orders_and_scores_are_counted_by_topic(output: ScoredOutput, report: Report) -> None:
    names = ["retrieve", "mono", "duo"]
    rankings = {name: _rankings(output, name) for name in names}
    relevance = read_qrels(output.plan.config["qrels"]).relevance
    for row, before in zip(report.stages, [None, *names], strict=False):
        ranked = {
            query_id: ranking
            for query_id, ranking in rankings[row.stage].items()
            if ranking.scored > 1
        }
        reordered = sum(
            before is not None and rankings[before][query_id].doc_ids != ranking.doc_ids
            for query_id, ranking in ranked.items()
        )
        judged = backwards = 0
        for query_id, ranking in ranked.items():
            scored = ranking.doc_ids[: ranking.scored]
            levels = relevance.get(query_id, {})
            above = below = 0
            for first, better in enumerate(scored):
                for worse in scored[first + 1 :]:
                    difference = (levels.get(better, 0) > 0) - (levels.get(worse, 0) > 0)
                    above += difference > 0
                    below += difference < 0
            judged += above + below > 0
            backwards += below > above
        assert (row.topics, row.reordered) == (len(ranked), reordered)
        assert (row.judged, row.reversed) == (judged, backwards)
        assert row.one_score == 0
    assert [row.before for row in report.stages] == [None, "candidates", "mono"]
    assert 0 < report.stages[1].reversed < report.stages[1].judged


def test_comparisons_are_those_of_the_main_measure(output: ScoredOutput, report: Report) -> None:
    qrels = read_qrels(output.plan.config["qrels"])
    values = [
        np.array(
            evaluate(doc_orders(_rankings(output, name)), qrels, ["RR@10"]).per_query.of("RR@10")
        )
        for name in ("retrieve", "mono", "duo")
    ]
    for name, bases in (("than_before", values), ("than_first", [values[0]] * 2)):
        expected = [compare_values(*pair) for pair in zip(values[1:], bases, strict=False)]
        p_values = corrected([each.p_value for each in expected], "holm")
        first, *others = (getattr(row, name) for row in report.stages)
        assert first is None
        for found, comparison, p_value in zip(others, expected, p_values, strict=True):
            assert dataclasses.astuple(found) == pytest.approx(
                dataclasses.astuple(dataclasses.replace(comparison, p_value=p_value))
            )
    assert [row.mean for row in report.stages] == pytest.approx([each.mean() for each in values])


def test_gain_is_of_the_best_depth_with_an_interval_for_all(
    output: ScoredOutput, report: Report
) -> None:
    qrels = read_qrels(output.plan.config["qrels"])
    for row, stage, most in zip(report.stages[1:], ("mono", "duo"), (8, 5), strict=True):
        of_depth = {
            k: np.array(
                evaluate(doc_orders(_rankings(output, stage, k)), qrels, ["RR@10"]).per_query.of(
                    "RR@10"
                )
            )
            for k in range(2, most + 1)
        }
        configured = of_depth.pop(most)
        best = max(of_depth, key=lambda k: (of_depth[k].mean(), -k))
        differences = of_depth[best] - configured
        low, high = stats.t.interval(
            1 - 0.05 / len(of_depth),
            len(differences) - 1,
            differences.mean(),
            differences.std(ddof=1) / math.sqrt(len(differences)),
        )
        found = row.gain
        assert found is not None
        assert (found.k, found.best_k) == (most, best)
        assert (found.difference, found.low, found.high) == pytest.approx(
            (differences.mean(), low, high)
        )


def test_scores_that_are_all_the_same_are_warned_of(tmp_path: Any) -> None:
    report = _gather(ScoredOutput(tmp_path, spread=0.0).run())
    assert [row.one_score for row in report.stages] == [row.topics for row in report.stages]
    assert [(each.stage, each.warning) for each in report.warnings] == [
        ("retrieve", "one score"),
        ("mono", "unchanged"),
        ("mono", "one score"),
        ("duo", "unchanged"),
        ("duo", "one score"),
    ]


def test_reversed_scores_are_warned_of(tmp_path: Any) -> None:
    """The relevant doc is the one that mono places last, and duo lower than mono."""
    output = ScoredOutput(tmp_path, topics=20).run()
    last = {
        query_id: ranking.doc_ids[ranking.scored - 1]
        for query_id, ranking in _rankings(output, "mono").items()
    }
    lines = (f"{query_id} 0 {doc_id} 1\n" for query_id, doc_id in last.items())
    (tmp_path / "qrels.txt").write_text("".join(lines))
    report = _gather(output)
    found = {(each.stage, each.warning): each for each in report.warnings}
    assert ("mono", "reversed") in found
    assert ("mono", "below") in found
    mono = report.stages[1]
    assert mono.than_before is not None
    assert found["mono", "below"].value == mono.than_before.p_value
    blocks = report_part(report).sections["The answer"]
    assert f"Warning: {found['mono', 'below'].text}." in [
        getattr(block, "text", None) for block in blocks
    ]


def test_topics_of_the_first_shards_suffice(
    output: ScoredOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = output.runs()
    monkeypatch.setattr(stage_rows, "_TOPICS", 3)
    reader = StageReader(runs.plan, runs.finished, {})
    for parts in runs.shards():
        reader.add(parts)
    first, *_ = reader.rows(runs.statuses, {})
    shard = next(runs.shards()).rankings("retrieve").values()
    assert first.topics == sum(ranking.scored > 1 for ranking in shard) < 40


def test_answer_is_first_and_has_a_row_for_each_stage(report: Report) -> None:
    part = report_part(report)
    assert next(iter(part.sections)) == "The answer"
    sentence, table, *_ = part.sections["The answer"]
    assert sentence.text == f"{answer_words(report.stages)}."
    assert [row[0] for row in table.table.rows] == ["candidates", "mono", "duo-sum"]
    cells = dict(zip(table.table.header, table.table.rows[2], strict=True))
    found = report.stages[2]
    assert found.than_before is not None
    assert cells["p"] == found.than_before.p_value
    assert cells["from the stage before"].startswith(f"{found.than_before.difference:+.4f} (")
    topics = found.than_before.better, found.than_before.equal, found.than_before.worse
    assert cells["topics better, equal, worse"] == ", ".join(map(str, topics))
    assert cells["inferences"] == 10 * len(report.executed.plan.shards)


@pytest.mark.parametrize(
    ("p_value", "difference", "verdict"),
    [(0.049, 0.1, "better than"), (0.049, -0.1, "worse than"), (0.05, 0.1, "not clearly")],
)
def test_sentence_says_whether_the_last_stage_pays(
    p_value: float, difference: float, verdict: str
) -> None:
    compared = compare_values([0.5, 0.6], [0.4, 0.5])
    compared = dataclasses.replace(compared, p_value=p_value, difference=difference)
    first = StageRow("retrieve", "bm25")
    last = dataclasses.replace(
        StageRow("duo", "duo-sum", "bm25", inferences=1234, seconds=5.25),
        measure="RR@10",
        than_before=compared,
        than_first=compared,
    )
    words = answer_words([first, last])
    assert words.startswith(f"By RR@10, duo-sum (0.5500) is {verdict}")
    assert words.endswith("it cost 1,234 inferences and 5.2 worker seconds")
    assert "fewer than two" in answer_words([first])
