"""The differences of the queries, those that differ most in full, and the docs whose rank changes most."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from beamrank.evaluation.tables import COUNT, DIFFERENCE, MEAN, Cell, Column, Table
from beamrank.ranking.variants import Opponent
from beamrank.report.blocks import Block, Heading, Paragraph, Passage, Picture, TableBlock, marked_text
from beamrank.report.pictures import difference_bars
from beamrank.report.report import Report
from beamrank.report.views import CandidateView, RankChange, shown_views

_PASSAGES = 3


def blocks(report: Report) -> Sequence[Block]:
    """A bar for each query, a table of all, and the docs of some."""
    found: list[Block] = []
    differences, measure = report.differences, report.main_measure
    anchors = {query_id: f"query-{number}" for number, query_id in enumerate(report.views, 1)}
    if differences and measure is not None:
        title = f"{measure} of {report.last} minus {report.baseline}{report.trial}"
        bars = difference_bars(list(differences.values()), measure)
        table = _table(report, differences, measure)
        found += [
            Picture("differences", f"{title}, a bar for each topic", bars),
            TableBlock(f"{title}, by topic", table, [anchors.get(query_id) for query_id in differences]),
        ]
    if report.views:
        why = "the largest differences" if differences else "the first places of the plan"
        docs = "the best docs of each and relevant ones further below"
        found.append(Paragraph(f"The queries with {why} follow ({len(report.views):,}), with {docs}."))
    for query_id, views in report.views.items():
        text = report.topics.get(query_id, "")
        found.append(Heading(": ".join(filter(None, (query_id, text))), anchors[query_id]))
        found.append(TableBlock("", _candidates(report, views)))
        found += [
            Passage(
                view.doc_id,
                [("label", str(view.label))] if view.label is not None else [],
                marked_text(report.texts[view.doc_id], text),
            )
            for view in shown_views(views, _PASSAGES)
            if view.doc_id in report.texts
        ]
    return found


def _table(report: Report, differences: dict[str, float], measure: str) -> Table:
    texts = [Column("text")] if report.topics else []
    rows: list[list[Cell]] = [
        [
            query_id,
            *(report.topics.get(query_id, "") for _ in texts),
            *(report.evaluations[run].per_query[query_id][measure] for run in report.steps),
            difference,
        ]
        for query_id, difference in differences.items()
    ]
    runs = [Column(run, MEAN) for run in report.steps]
    return Table([Column("query_id"), *texts, *runs, Column("difference", DIFFERENCE)], rows)


def _candidates(report: Report, views: Sequence[CandidateView]) -> Table:
    columns = [Column("doc_id"), Column("label")]
    for run in report.steps:
        columns += [Column(f"{run} rank", COUNT), Column(f"{run} score", MEAN)]
    rows: list[list[Cell]] = []
    for view in views:
        values: list[Cell] = [cell for run in report.steps for cell in (view.ranks.get(run), view.scores.get(run))]
        rows.append([view.doc_id, view.label, *values, view.truncated_by])
    return Table([*columns, Column("truncated")], rows)


def change_blocks(report: Report) -> Sequence[Block]:
    """Table 3 of the multi-stage paper: passages below the heading of each step, with the query's words marked."""
    found: list[Block] = []
    steps = groupby(report.changes, key=lambda change: (change.before, change.after))
    for number, ((before, after), changes) in enumerate(steps, 1):
        passages = [_passage(report, change) for change in changes]
        found += [Heading(f"{before} → {after}: the {len(passages):,} largest", f"changes-{number}"), *passages]
    return found


def _passage(report: Report, change: RankChange) -> Passage:
    view = change.candidate
    query = report.topics.get(view.query_id, "")
    text = report.texts.get(view.doc_id)
    return Passage(
        f"{change.before} → {change.after}: rank {view.ranks[change.before]} → {view.ranks[change.after]}",
        [("query", f"{view.query_id}: {query}"), ("doc", view.doc_id), ("label", str(view.label)), *_facts(change)],
        [] if text is None else marked_text(text, query),
    )


def _facts(change: RankChange) -> Iterator[tuple[str, str]]:
    if change.candidate.truncated_by is not None:
        yield "truncated", change.candidate.truncated_by
    for name, value in change.candidate.details.get(change.after, {}).items():
        if isinstance(value, Opponent):
            yield f"{name} opponent", f"{value.doc_id} (log-odds against it {value.log_odds:+.2f})"
        else:
            yield name, str(value)
