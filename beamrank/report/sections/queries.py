"""The differences of the queries, and a page section for those that differ most."""

from collections.abc import Sequence

from beamrank.evaluation.tables import COUNT, DIFFERENCE, MEAN, Cell, Column, Table
from beamrank.report.blocks import Block, Heading, Paragraph, Passage, Picture, TableBlock, marked_text
from beamrank.report.pictures import difference_bars
from beamrank.report.report import Report
from beamrank.report.stored.rank_changes import CandidateView, shown_views

_PASSAGES = 3


def blocks(report: Report) -> Sequence[Block]:
    """The bar chart, the table, and the sections."""
    found: list[Block] = []
    differences, measure = report.differences(), report.main_measure
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
