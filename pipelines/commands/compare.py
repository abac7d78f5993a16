"""`beamrank compare RUN...`: runs of any systems beside a baseline, in one table."""

from collections.abc import Sequence
from typing import Annotated

import typer

from beamrank.errors import ConfigError
from beamrank.evaluation.compare import compare_runs
from beamrank.evaluation.measures import COMPARED_MEASURES, explain_names, split_measures
from beamrank.evaluation.significance import CORRECTIONS, TESTS
from beamrank.formats.excluded import read_excluded
from pipelines.commands.arguments import Exclude, ResultFormat, one_of, qrels_option
from pipelines.console.progress import ConsoleProgress
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
    exclude: Exclude = None,
    names: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME",
            help="What the runs are called, in their order; that of a --baseline which is not among them comes last.",
        ),
    ] = None,
    agreement: Annotated[
        bool, typer.Option("--agreement", help="Also show how far the rankings agree; always shown without --qrels.")
    ] = False,
    result_format: ResultFormat = "table",
) -> None:
    """Compare runs with a baseline: measures, differences, corrected tests, and the agreement of the rankings."""
    first = baseline or run[0]
    others = list(run)
    if first in others:
        others.remove(first)
    if not others:
        raise ConfigError("there is nothing to compare: give two runs or more, or one and a --baseline")
    asked = split_measures(measures)
    excluded = None if exclude is None else read_excluded(exclude)
    with ConsoleProgress().bar("compare") as bar:
        found = compare_runs(
            others,
            first,
            qrels,
            asked,
            test,
            correction,
            excluded=excluded,
            names=_named(names, list(dict.fromkeys([*run, first]))),
            agree=agreement or qrels is None,
            progress=bar,
        )
    for line in [*explain_names(asked), *found.notes]:
        write_error(f"note: {line}")
    for line in found.warnings:
        write_error(f"warning: {line}")
    print_result(found.table(), found.as_object(), result_format)


def _named(names: str | None, runs: Sequence[str]) -> dict[str, str] | None:
    """The name of each run.

    Raises:
        ConfigError: there are more or fewer names than runs, or one twice.
    """
    if names is None:
        return None
    given = [name.strip() for name in names.split(",")]
    if len(given) != len(runs) or len(set(given)) < len(given) or not all(given):
        raise ConfigError(f"--names {names!r}: give {len(runs)} names, one for each run, separated by commas")
    return dict(zip(runs, given, strict=True))
