"""The section of a report with the conditions of `--fail-if`: conditions that hold end the command
with exit code 4.

A condition bounds how far a run is from the baseline, by a measure or by the rankings of two
outputs, or how many warnings it has.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, NamedTuple

import typer

from beamrank.errors import ConfigError, PreflightError
from beamrank.evaluation.measures import parse_measures
from beamrank.evaluation.significance import Comparison
from beamrank.evaluation.tables import Cell, Column, Table
from beamrank.formats.checks import number
from beamrank.report.blocks import Block, Failed, Section, TableBlock
from beamrank.report.report import Report
from contrib.report_drift.drift import NEW_TOPIC, Drift, RunDrift, find_drift

_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_CONDITION = re.compile(r"\s*([^<>]*[^<>\s])\s*([<>]=?)\s*(\S+)\s*")


class Condition(NamedTuple):
    """A condition that must not hold, such as `nDCG@10 < -0.005`; `name` is `warnings`, one of
    `OF_RANKINGS`, or a measure's in results.
    """

    text: str
    name: str
    comparison: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Reads a condition; raises ConfigError where it is none."""
        try:
            name, comparison, text_of_bound = _CONDITION.fullmatch(text).groups()  # type: ignore[union-attr]
            bound = number(float, text_of_bound)
            (name,) = [name] if name in _NAMES else parse_measures([name])
        except (AttributeError, ValueError):
            bound = math.nan
        if not math.isfinite(bound):
            raise ConfigError(
                f"--fail-if {text!r} is not a condition: write NAME < NUMBER (or <=, >, >=), as in "
                f"'nDCG@10 < -0.005'; NAME is one measure, or one of {', '.join(_NAMES)}"
            )
        return cls(text, name, comparison, bound)

    def holds(self, value: float) -> bool:
        """Whether it holds for a value."""
        return bool(_COMPARE[self.comparison](value, self.bound))


def _topics_changed(run: RunDrift) -> float | None:
    changed = sum(NEW_TOPIC not in change.causes for change in run.changes)
    return changed / run.topics if run.topics else None


OF_RANKINGS: dict[str, Callable[[RunDrift], float | None]] = {
    "topics_changed": _topics_changed,
    "RBO": lambda run: run.rbo,
    "tau": lambda run: run.tau,
}
"""The figures that a condition can bound beside measures: of the topics that both outputs have."""
_WARNINGS = "warnings"
_NAMES = (_WARNINGS, *OF_RANKINGS)


def _check(conditions: list[str] | None) -> list[str] | None:
    for condition in conditions or ():
        Condition.parse(condition)
    return conditions


_FailIf = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="CONDITION",
        callback=_check,
        help="End with exit code 4 if it holds: 'warnings > 0'; 'nDCG@10 < -0.005', the last run's "
        "difference from the baseline, by default the first run; of `report` with an earlier "
        "output 'topics_changed > 0.2', the share of topics whose first ten docs differ, and "
        "'RBO < 0.9' and 'tau < 0.9', means over these topics.",
    ),
]


def judge(
    measures: Sequence[str], *, fail_if: _FailIf = None
) -> Callable[[Report], Sequence[Block]]:
    """Gives the reasons to fail of a run with some measures.

    Raises:
        ConfigError: a condition can have no value in its report.
    """
    known = [_WARNINGS, *(parse_measures(measures) if measures else ())]
    for condition in map(Condition.parse, fail_if or ()):
        if condition.name not in known:
            raise ConfigError(
                f"--fail-if {condition.text!r}: the run is judged by {', '.join(known)}. `qrels` "
                "and `measures` of the configuration give others, `beamrank report` an earlier "
                "output"
            )
    return partial(blocks, fail_if=fail_if)


def blocks(
    report: Report, *, baseline: str | None = None, fail_if: _FailIf = None
) -> Sequence[Block]:
    """A table of the conditions, and the reasons to fail.

    Raises:
        ConfigError: a condition has no value in this report.
        PreflightError: a run that it is about is not finished.
    """
    conditions = [Condition.parse(condition) for condition in fail_if or ()]
    if not conditions:
        return []
    drift = find_drift(report, baseline)
    _check_finished(report, drift, conditions)
    rows: list[list[Cell]] = []
    failed = []
    for run, values in _compared(report, drift):
        for condition in conditions:
            value, detail = _value(report, run, values, condition)
            holds = condition.holds(value)
            rows.append([condition.text, run, value, "yes" if holds else "no"])
            if holds:
                failed.append(
                    Failed(f"{report.title}: {condition.text} holds: {run} has {value:.4g}{detail}")
                )
    columns = [Column("condition"), Column("run"), Column("value", ".4g"), Column("holds")]
    return [*failed, TableBlock("Conditions of --fail-if", Table(columns, rows))]


SECTION = Section(blocks, judges=judge)
_Values = Mapping[str, Comparison | float | None]


def _check_finished(report: Report, drift: Drift | None, conditions: Sequence[Condition]) -> None:
    compares = any(condition.name != _WARNINGS for condition in conditions)
    if (compares or not report.stages) and report.last == report.baseline and drift is None:
        raise ConfigError(
            f"--fail-if compares the last run with a baseline, and {report.title} has no two runs "
            "to compare: give an earlier output or another run with --baseline"
        )
    for status in () if report.execution is None else report.execution.statuses:
        if not status.finished:
            raise PreflightError(
                f"--fail-if is about the last run of {report.title}, and {status.stage} is not "
                "finished: run the same `beamrank run` again, which resumes"
            )


def _compared(report: Report, drift: Drift | None) -> Iterator[tuple[str, _Values]]:
    """The last run of an output, with what it can be judged by."""
    warnings = {_WARNINGS: float(len(report.warnings))}
    if drift is not None:
        last = drift.runs[-1] if drift.runs else None
        if last is None or last.run != report.last:
            raise PreflightError(
                f"--fail-if compares {report.last}, and {drift.output} has no finished "
                "stage like it: give a finished output of the same cascade"
            )
        of_rankings = {name: of(last) for name, of in OF_RANKINGS.items()}
        yield last.run, {**warnings, **of_rankings, **last.comparisons}
        return
    of_last = (tested for tested in report.tested if tested.run == report.last)
    yield report.last, {**warnings, **{tested.measure: tested.comparison for tested in of_last}}


def _value(report: Report, run: str, values: _Values, condition: Condition) -> tuple[float, str]:
    """The value that a condition bounds, and how it came about."""
    if condition.name not in values:
        known = ", ".join(values) or "nothing, without judgments of two topics or more"
        raise ConfigError(
            f"--fail-if {condition.text!r}: {report.title} compares {run} by {known}. --qrels and "
            f"--measures give others, and an earlier output as --baseline {', '.join(OF_RANKINGS)}"
        )
    compared = values[condition.name]
    if compared is None:
        raise PreflightError(
            f"--fail-if {condition.text!r}: {run} shares no topic with the earlier output"
        )
    if isinstance(compared, float):
        return compared, ""
    p_value = "" if compared.p_value is None else f", p = {compared.p_value:.2g}"
    spread = f"95 % confidence {compared.low:.4f} to {compared.high:.4f}{p_value}"
    return (
        compared.difference,
        f" ({compared.mean:.4f}, and the baseline {compared.baseline:.4f}; {spread})",
    )
