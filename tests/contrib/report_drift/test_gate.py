"""`beamrank report --fail-if`: what its conditions compare, exit code 4, and conditions without a
value.
"""

import csv

import pytest

from beamrank.errors import BeamrankError, ConfigError
from beamrank.report.blocks import Failed, TableBlock
from beamrank.report.report import Report, ReportSettings, gather
from contrib.report_drift.drift import find_drift
from contrib.report_drift.gate import Condition, blocks, judge
from tests.support.processes import beamrank_here, refused
from tests.support.scored_outputs import ScoredOutput


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """A run with a new topic and other candidates, and an earlier one."""
    folder = tmp_path_factory.mktemp("runs")
    measures = ["RR@10", "AP"]
    new = ScoredOutput(folder / "new", seed=6, topics=8, measures=measures).run()
    return new, ScoredOutput(folder / "old", measures=measures).run()


def _gather(output, baseline=None):
    settings = ReportSettings(baseline=baseline, texts=False, curves=False, queries=0)
    return gather(output.runs(), settings)


def _reasons(report, *conditions, earlier=None):
    baseline = None if earlier is None else earlier.plan.output
    return [
        block.text
        for block in blocks(report, baseline=baseline, fail_if=list(conditions))
        if isinstance(block, Failed)
    ]


def test_condition_is_read_and_holds():
    assert Condition.parse(" P_5<=-1e-3 ")[1:] == ("P@5", "<=", -0.001)
    assert Condition.parse("RR(rel=2)@5 > 0.5").name == "RR(rel=2)@5"
    for text, value, holds in (
        ("AP < 0", -0.1, True),
        ("AP < 0", 0.0, False),
        ("AP >= 0", 0.0, True),
    ):
        assert Condition.parse(text).holds(value) is holds


@pytest.mark.parametrize(
    "text", ["nDCG@10", "nDCG@10 < x", "AP < nan", "AP = 3", "< 3", "ndcg_cut < 0", "nope@10 < 0"]
)
def test_text_that_is_no_condition_is_refused(text):
    with pytest.raises(ConfigError):
        Condition.parse(text)


def test_condition_that_holds_is_exit_code_4_with_the_reasons(outputs):
    new, old = outputs
    arguments = ["--no-texts", "--queries", "0", "--trials", "1", "--k1", "5", "--opponents", "2"]
    conditions = ["--fail-if", "topics_changed > 0.2", "--fail-if", "RBO < 0"]
    done = beamrank_here(
        "report", new.plan.output, *arguments, "--baseline", old.plan.output, *conditions
    )
    page = new.folder / "out/report/report.html"
    assert (done.returncode, done.stdout) == (4, f"{page}\n")
    assert f"topics differ from {old.plan.output}, 1 by a new topic" in done.stderr
    with (page.parent / "drift.csv").open() as file:
        rows = [
            each
            for each in csv.DictReader(file)
            if each["run"] == "duo-sum" and each["causes"] != "new topic"
        ]
    reason = f"topics_changed > 0.2 holds: duo-sum has {len(rows) / 7:.4g}"
    assert done.stderr.splitlines()[-1].endswith(reason)
    text = page.read_text()
    assert "Conditions of --fail-if" in text
    assert reason.replace(">", "&gt;") in text
    assert "RBO < 0 holds" not in done.stderr


def test_measures_and_rankings_of_the_last_run_are_compared(outputs):
    new, old = outputs
    report = _gather(new)
    last = find_drift(report, old.plan.output).runs[-1]
    found = last.comparisons["AP"]
    below, above = (f"AP < {found.difference + each!r}" for each in (-1e-9, 1e-9))
    conditions = [below, above, f"tau < {last.tau!r}", "topics_changed > 1"]
    (reason,) = _reasons(report, *conditions, earlier=old)
    assert (
        f"{above} holds: duo-sum has {found.difference:.4g} ({found.mean:.4f}, and the baseline "
        in reason
    )
    (table,) = (
        each.table
        for each in blocks(report, baseline=old.plan.output, fail_if=[below, above])
        if isinstance(each, TableBlock)
    )
    assert [row[-1] for row in table.rows] == ["no", "yes"]
    assert blocks(report, baseline=old.plan.output) == []


def test_last_run_is_compared_with_a_stage(outputs):
    report = _gather(outputs[0], baseline="mono")
    (difference,) = (
        each.comparison.difference
        for each in report.tested
        if (each.run, each.measure) == ("duo-sum", "AP")
    )
    (reason,) = _reasons(report, f"AP <= {difference!r}")
    assert "holds: duo-sum has" in reason


def test_warnings_are_counted_without_a_baseline(outputs, tmp_path):
    report = _gather(outputs[0], baseline="duo-sum")
    assert _reasons(report, "warnings > 0") == []
    same = _gather(ScoredOutput(tmp_path, spread=0.0).run())
    assert len(same.warnings) == 5
    assert _reasons(same, "warnings >= 5", "warnings > 5") == [
        f"{same.title}: warnings >= 5 holds: duo-sum has 5"
    ]
    with pytest.raises(ConfigError, match=r"trainings .*--baseline"):
        _reasons(Report("trainings"), "warnings > 0")


def test_run_that_was_just_written_is_compared_with_its_first_stage(outputs):
    report = _gather(outputs[0])
    names = list(report.steps)
    evaluations = {name: report.evaluations[name] for name in names}
    written = Report("out", names, names, names[0], evaluations=evaluations, stages=report.stages)
    difference = report.stages[-1].than_first.difference
    measures = ["RR@10"]
    failed, table = judge(measures, fail_if=[f"RR@10 <= {difference!r}"])(written)
    assert f"RR@10 <= {difference!r} holds: duo-sum has" in failed.text
    assert [row[-1] for row in table.table.rows] == ["yes"]
    (table,) = judge(measures, fail_if=[f"RR@10 < {difference!r}", "warnings > 5"])(written)
    assert [row[-1] for row in table.table.rows] == ["no", "no"]
    assert judge(measures)(written) == []


@pytest.mark.parametrize("condition", ["nDCG@10 < 0", "RBO < 0.9"])
def test_condition_that_a_run_cannot_have_is_refused_before_it(condition):
    for measures in (["RR@10"], []):
        with pytest.raises(ConfigError, match=condition):
            judge(measures, fail_if=[condition])


@pytest.mark.parametrize("condition", ["AP", "AP < 1_0", "AP < \u0661", "AP < 1e400"])
def test_wrong_condition_is_refused_before_anything_is_read(tmp_path, condition):
    assert repr(condition) in refused("report", tmp_path, "--fail-if", condition, code=2)


def test_condition_without_a_value_is_refused(outputs, tmp_path):
    new, old = outputs
    part, strangers = (
        ScoredOutput(tmp_path / "part").run(2),
        ScoredOutput(tmp_path / "other", prefix="z").run(),
    )
    report = _gather(new)
    for found, earlier, condition, code, message in (
        (_gather(new, "duo-sum"), None, "AP < 0", 2, "--baseline"),
        (report, None, "topics_changed > 0", 2, "duo-sum .*RR@10, "),
        (report, old, "P@7 < 0", 2, "--measures"),
        (_gather(part), None, "AP < 0", 3, "/part.* duo "),
        (report, part, "AP < 0", 3, "duo-sum, .*/part"),
        (report, strangers, "RBO < 0.9", 3, "'RBO < 0.9': duo-sum "),
    ):
        with pytest.raises(BeamrankError, match=message) as raised:
            _reasons(found, condition, earlier=earlier)
        assert raised.value.exit_code == code
