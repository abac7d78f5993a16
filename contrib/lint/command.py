"""`beamrank lint RUN...`: checks run files before others read them."""

import json
from typing import Annotated

import typer

from beamrank.errors import ConfigError, PreflightError
from beamrank.formats.rejects import Rejects
from beamrank.notes import counted
from beamrank.storage import files as storage
from contrib.lint.check import TRACKS
from contrib.lint.fix import Fix, check_fixable, fix_run
from contrib.lint.linter import Report, lint_run
from contrib.lint.references import read_references
from contrib.lint.registry import CHECKS
from pipelines.commands.arguments import (
    Columns,
    MaxBadRows,
    QrelsFormat,
    RunFormat,
    file_hints,
    option,
)
from pipelines.console.terminal import write_error, write_line

HELP_PANEL = "Evaluate"


def lint(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN", help="TREC or MS MARCO runs, compressed or not."),
    ],
    topics: Annotated[
        str | None, typer.Option(metavar="FILE", help="The topics, or a list of query_ids.")
    ] = None,
    qrels: Annotated[
        str | None, typer.Option(metavar="FILE", help="The judgments: TREC, MS MARCO or BEIR.")
    ] = None,
    corpus: Annotated[
        str | None, typer.Option(metavar="PATH", help="The corpus, or a list of doc_ids.")
    ] = None,
    first_stage: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="The run that was re-ranked: no doc may be new or lost."),
    ] = None,
    exclude: Annotated[
        str | None,
        option(
            "The docs that no ranking should hold: `self` (the doc with the query's own id: "
            "ArguAna, Quora), or the docs in FILE, whose rows each have a query_id and a doc_id.",
            metavar="self|FILE",
        ),
    ] = None,
    track: Annotated[
        str, typer.Option(metavar="NAME", help=f"The rules: {', '.join(TRACKS)}.")
    ] = "generic",
    max_bad_rows: MaxBadRows = 0,
    run_format: RunFormat = None,
    qrels_format: QrelsFormat = None,
    columns: Columns = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Rewrite what has one right answer, in place.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check runs: `file:line: code severity: message`. Exit code 1 if there are findings:
    docs/reference/lint.md.
    """
    if track not in TRACKS:
        raise ConfigError(f"there is no track {track!r}; known: {', '.join(TRACKS)}")
    for run in runs:
        if not storage.exists(run):
            raise PreflightError(f"there is no file {run}")
        if fix:
            check_fixable(run)
    rejects = {kind: Rejects(kind, max_bad_rows) for kind in ("topics", "qrels", "run")}
    hints = file_hints(run_format, qrels_format, columns)
    references = read_references(rejects, hints, topics, qrels, corpus, first_stage, exclude)
    for note in (note for rejected in rejects.values() for note in rejected.notes()):
        write_error(str(note))
    objects = []
    clean = True
    for run in runs:
        report = lint_run(run, references, TRACKS[track], hints.run)
        report, done = fix_run(report) if fix else (report, Fix())
        clean = clean and report.is_clean(max_bad_rows)
        if as_json:
            objects.append(_as_object(report, done))
        else:
            _print(report, done)
    if as_json:
        write_line(json.dumps({"runs": objects}, ensure_ascii=False))
    if not clean:
        raise typer.Exit(1)


def _print(report: Report, fix: Fix) -> None:
    for finding in report.findings.examples:
        severity = CHECKS[finding.code].severity
        file, line = report.places.find(finding.line)
        write_line(f"{file}:{line}: {finding.code} {severity}: {finding.message}")
    for code, count in report.findings.left_out():
        write_line(f"{report.run}: {code} and {count:,} more")
    if fix.fixed:
        codes = ", ".join(f"{code} ({count:,})" for code, count in sorted(fix.fixed.items()))
        copies = (
            f"; {counted(fix.removed, 'copy', 'copies')} of rows removed" if fix.removed else ""
        )
        write_error(f"{report.run}: fixed {codes}; {counted(fix.rows, 'row')} written{copies}")
    if fix.refused:
        write_error(f"{report.run}: not fixed, because {fix.refused}")
    write_error(f"{report.run}: {', '.join(_facts(report))}")


def _facts(report: Report) -> list[str]:
    topics = report.state.topics.values()
    facts = [
        counted(report.count("error"), "error"),
        counted(report.count("warning"), "warning"),
        counted(len(topics), "query", "queries"),
        counted(sum(topic.rows for topic in topics), "row"),
    ]
    if report.findings.bad_rows:
        facts.append(counted(len(report.findings.bad_rows), "bad row"))
    if report.state.judged_at_10 is not None:
        facts.append(f"Judged@10 {report.state.judged_at_10:.4f}")
    return facts


def _as_object(report: Report, fix: Fix) -> dict[str, object]:
    state = report.state
    rows = [facts.rows for facts in state.topics.values()]
    return {
        "run": report.run,
        "errors": report.count("error"),
        "warnings": report.count("warning"),
        "bad_rows": len(report.findings.bad_rows),
        "queries": len(rows),
        "rows": sum(rows),
        "docs_per_query": [min(rows), max(rows)] if rows else None,
        "judged_at_10": state.judged_at_10,
        "counts": dict(sorted(report.findings.counts.items())),
        "findings": [
            {
                **dict(zip(("file", "line"), report.places.find(finding.line), strict=True)),
                "code": finding.code,
                "severity": CHECKS[finding.code].severity,
                "fixable": report.is_fixable(finding.code),
                "message": finding.message,
            }
            for finding in report.findings.examples
        ],
        "fixed": dict(sorted(fix.fixed.items())),
        "rows_removed": fix.removed,
        "not_fixed_because": fix.refused or None,
    }
