"""`beamrank compare RUN...`: runs of any systems beside a baseline, in one table."""

from typing import Annotated

import typer

from beamrank.errors import ConfigError
from beamrank.evaluation.compare import compare_runs
from beamrank.evaluation.measures import COMPARED_MEASURES, explain_names, split_measures
from beamrank.evaluation.significance import CORRECTIONS, TESTS
from pipelines.commands.arguments import ResultFormat, one_of, qrels_option
from pipelines.console.tables import print_result
from pipelines.console.terminal import write_error


def compare(
    run: Annotated[
        list[str], typer.Argument(metavar="RUN", help="TREC or MS MARCO runs: paths or URLs, compressed or not.")
    ],
    qrels: Annotated[
        str | None,
        qrels_option("The judgments: TREC, MS MARCO or BEIR. Without them only the rankings are compared."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="RUN", help="The run that the others are compared with; default: the first.")
    ] = None,
    measures: Annotated[
        str, typer.Option(help="Names of ir_measures or trec_eval, separated by spaces or commas.")
    ] = " ".join(COMPARED_MEASURES),
    test: Annotated[str, one_of("--test", TESTS, "The paired test of a difference over topics.")] = "t-test",
    correction: Annotated[
        str, one_of("--correction", CORRECTIONS, "Corrects the p-values for the number of tests in the table.")
    ] = "holm",
    result_format: ResultFormat = "table",
) -> None:
    """Compare runs with a baseline: measures, differences, corrected tests, and the agreement of the rankings."""
    first = baseline or run[0]
    others = list(run)
    if first in others:
        others.remove(first)
    if not others:
        raise ConfigError("there is nothing to compare: give two runs or more, or one and a --baseline")
    names = split_measures(measures)
    found = compare_runs(others, first, qrels, names, test, correction)
    for line in [*explain_names(names), *found.notes]:
        write_error(f"note: {line}")
    print_result(found.table(), found.as_object(), result_format)
