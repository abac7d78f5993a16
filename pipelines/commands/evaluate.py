"""`beamrank eval RUN` and `beamrank compare RUN...`: run files of any system, measured against
qrels.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from beamrank.errors import ConfigError
from beamrank.evaluation.compare import compare_runs
from beamrank.evaluation.evaluate import TOPICS, Evaluation, RunEvaluation, evaluate_run_files
from beamrank.evaluation.measures import (
    COMPARED_MEASURES,
    DEFAULT_MEASURES,
    explain_names,
    split_measures,
)
from beamrank.evaluation.significance import CORRECTIONS, TESTS, Comparison, compare_evaluations
from beamrank.evaluation.tables import DIFFERENCE, MEAN, P_VALUE, shown
from beamrank.formats.excluded import read_excluded
from beamrank.notes import of_files
from pipelines.commands.arguments import (
    AsJson,
    Columns,
    Exclude,
    MaxBadRows,
    QrelsFormat,
    ResultFormat,
    RunFormat,
    file_hints,
    one_of,
    option,
    qrels_option,
)
from pipelines.console.progress import ConsoleProgress
from pipelines.console.tables import print_result, print_table
from pipelines.console.terminal import write_error, write_line

_COMPARED = ("measure", "baseline", "difference", "95 % interval", "p", "better", "equal", "worse")

_EVALUATED, _IN_COMPARISONS = " ".join(DEFAULT_MEASURES), " ".join(COMPARED_MEASURES)
# The names of baselines, each with the comparison with it by measure.
_Compared = Sequence[tuple[str, Mapping[str, Comparison]]]
_Topics = Annotated[
    str,
    one_of(
        "--topics",
        TOPICS,
        "The topics that means are over: all of the qrels, or those of the run, such as a trial "
        "(of `compare`: of the baseline).",
    ),
]
_Measures = Annotated[
    str, option("Names of ir_measures or trec_eval, separated by spaces or commas.")
]


def eval_run(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A TREC or MS MARCO run: a path or a URL, compressed or not."
        ),
    ],
    qrels: Annotated[str, qrels_option("The judgments: TREC, MS MARCO or BEIR.")],
    measures: _Measures = _EVALUATED,
    against: Annotated[
        list[str] | None,
        option(
            "Compare with a baseline run (paired t-test). May be given several times.",
            metavar="RUN",
        ),
    ] = None,
    topics: _Topics = TOPICS[0],
    exclude: Exclude = None,
    max_bad_rows: MaxBadRows = 0,
    run_format: RunFormat = None,
    qrels_format: QrelsFormat = None,
    columns: Columns = None,
    per_query: Annotated[
        bool, option("Also print the values of each topic.", "--per-query")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate a run: means over all topics of the qrels (trec_eval's -c)."""
    baselines = against or []
    names = split_measures(measures)
    _note(explain_names(names))
    excluded = None if exclude is None else read_excluded(exclude)
    hints = file_hints(run_format, qrels_format, columns)
    evaluated, *others = evaluate_run_files(
        [run, *baselines], qrels, names, excluded, max_bad_rows, hints, topics
    )
    _note(evaluated.lines())
    for name, evaluated_run in zip(
        ["", *(f"{name}: " for name in baselines)], [evaluated, *others], strict=True
    ):
        for warning in evaluated_run.evaluation.notes.warnings:
            write_error(f"warning: {name}{warning}")
    compared = _compare(evaluated.evaluation, list(zip(baselines, others, strict=True)))
    if as_json:
        write_line(
            json.dumps(_as_object(run, evaluated, topics, per_query, compared), ensure_ascii=False)
        )
    elif sys.stdout.isatty():
        print_tables(run, evaluated, per_query, compared)
    else:
        for row in _rows(evaluated.evaluation, per_query, compared):
            write_line(*row)


def _note(lines: Iterable[str]) -> None:
    for line in lines:
        write_error(f"note: {line}")


def _compare(run: Evaluation, baselines: Sequence[tuple[str, RunEvaluation]]) -> _Compared:
    # The notes on the qrels are printed once.
    _note(of_files({name: baseline.facts() for name, baseline in baselines}))
    compared = [
        (name, compare_evaluations(run, baseline.evaluation)) for name, baseline in baselines
    ]
    left_out = [name for name in run.means if name not in compared[0][1]] if compared else []
    if left_out:
        _note(
            [
                "not compared, because they are not means over two or more topics: "
                f"{', '.join(left_out)}"
            ]
        )
    return compared


def _as_object(
    run: str, evaluated: RunEvaluation, topics: str, per_query: bool, compared: _Compared
) -> dict[str, Any]:
    evaluation = evaluated.evaluation
    summary: dict[str, Any] = {
        "run": run,
        "queries": evaluation.notes.topics,
        "judged_queries": evaluated.qrels_notes.topics,
        "topics": topics,
        "measures": evaluation.means,
    }
    if compared:
        summary["against"] = [
            {
                "run": name,
                "measures": {
                    measure: asdict(comparison) for measure, comparison in by_measure.items()
                },
            }
            for name, by_measure in compared
        ]
    return summary | ({"per_query": dict(evaluation.per_query.items())} if per_query else {})


def _rows(
    evaluation: Evaluation, per_query: bool, compared: _Compared
) -> Iterator[tuple[str, ...]]:
    """With per_query first `query_id, measure, value` of each topic, then `measure, value`; values
    in full.

    For each baseline, its value, the difference and p follow.
    """
    if per_query:
        yield from ((query_id, name, repr(value)) for query_id, name, value in evaluation.rows())
    for name, value in evaluation.means.items():
        comparisons = [by_measure[name] for _, by_measure in compared if name in by_measure]
        beside = [(other.baseline, other.difference, other.p_value) for other in comparisons]
        yield (name, repr(value), *(shown(figure) for figures in beside for figure in figures))


def print_tables(
    run: str, run_evaluation: RunEvaluation, per_query: bool, compared: _Compared
) -> None:
    """Prints what `eval` shows on a terminal."""
    evaluation = run_evaluation.evaluation
    if per_query:
        rows = [
            [one, *(shown(value, MEAN) for value in values.values())]
            for one, values in evaluation.per_query.items()
        ]
        print_table(["query_id", *evaluation.means], rows)
    write_line(f"{run} ({run_evaluation.run_notes.format}), {evaluation.notes.topics:,} topics")
    print_table(
        ["measure", "mean"],
        [[name, shown(value, MEAN)] for name, value in evaluation.means.items()],
    )
    for name, by_measure in compared:
        write_line(f"against {name}, paired t-test over topics")
        # Without the run's own mean: it is in the table above, and 80 columns have no room for it.
        rows = []
        for measure, comparison in by_measure.items():
            interval = (
                f"{shown(comparison.low, DIFFERENCE)} to {shown(comparison.high, DIFFERENCE)}"
            )
            means = [
                shown(comparison.baseline, MEAN),
                shown(comparison.difference, DIFFERENCE),
                interval,
            ]
            rows.append(
                [
                    measure,
                    *means,
                    shown(comparison.p_value, P_VALUE),
                    *map(str, (comparison.better, comparison.equal, comparison.worse)),
                ]
            )
        print_table(_COMPARED, rows)


def compare(
    run: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN", help="TREC or MS MARCO runs: paths or URLs, compressed or not."
        ),
    ],
    qrels: Annotated[
        str | None,
        qrels_option(
            "The judgments: TREC, MS MARCO or BEIR. Without them only the rankings are compared."
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        option("The run that the others are compared with; default: the first.", metavar="RUN"),
    ] = None,
    measures: _Measures = _IN_COMPARISONS,
    test: Annotated[
        str, one_of("--test", TESTS, "The paired test of a difference over topics.")
    ] = "t-test",
    correction: Annotated[
        str,
        one_of(
            "--correction",
            CORRECTIONS,
            "Corrects the p-values for the number of tests in the table.",
        ),
    ] = "holm",
    topics: _Topics = TOPICS[0],
    exclude: Exclude = None,
    max_bad_rows: MaxBadRows = 0,
    run_format: RunFormat = None,
    qrels_format: QrelsFormat = None,
    columns: Columns = None,
    names: Annotated[
        str | None,
        option(
            "Names of the runs, in their order; last the name of a --baseline that is not among "
            "them.",
            metavar="NAME,NAME",
        ),
    ] = None,
    agreement: Annotated[
        bool,
        option(
            "Also show how far the rankings agree; always shown without --qrels.", "--agreement"
        ),
    ] = False,
    result_format: ResultFormat = "table",
) -> None:
    """Compare runs with a baseline: measures, differences, corrected tests, and the agreement of
    the rankings.
    """
    first = baseline or run[0]
    others = list(run)
    if first in others:
        others.remove(first)
    if not others:
        raise ConfigError(
            "there is nothing to compare: give two runs or more, or one and a --baseline"
        )
    measured = split_measures(measures)
    with ConsoleProgress().bar("compare") as bar:
        result = compare_runs(
            others,
            first,
            qrels,
            measured,
            test,
            correction,
            excluded=None if exclude is None else read_excluded(exclude),
            names=_named(names, list(dict.fromkeys([*run, first]))),
            agree=agreement or qrels is None,
            max_bad_rows=max_bad_rows,
            hints=file_hints(run_format, qrels_format, columns),
            topics=topics,
            progress=bar,
        )
    _note([*explain_names(measured), *result.notes])
    for line in result.warnings:
        write_error(f"warning: {line}")
    print_result(result.table(), result.as_object(), result_format)


def _named(names: str | None, runs: Sequence[str]) -> dict[str, str] | None:
    """The name of each run; ConfigError if there are more or fewer names than runs, or one
    twice.
    """
    if names is None:
        return None
    parts = [name.strip() for name in names.split(",")]
    if len(parts) != len(runs) or len(set(parts)) < len(parts) or not all(parts):
        raise ConfigError(
            f"--names {names!r}: give {len(runs)} names, one for each run, separated by commas"
        )
    return dict(zip(runs, parts, strict=True))
