"""The sections of a report that are ours: the answer, pictures, measures, cost, queries, rank
changes, inputs and machines.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, groupby, starmap
from typing import Any

from beamrank.commit.receipts import read_machine
from beamrank.commit.status import total_counts
from beamrank.evaluation.compare import tested_columns
from beamrank.evaluation.significance import Comparison
from beamrank.evaluation.tables import COUNT, DIFFERENCE, MEAN, P_VALUE, Cell, Column, Table
from beamrank.formats.files import shown_paths
from beamrank.machine import Machine
from beamrank.ranking.variants import Opponent
from beamrank.report.blocks import (
    Block,
    Heading,
    Paragraph,
    Passage,
    Picture,
    TableBlock,
    marked_text,
)
from beamrank.report.pictures import (
    COLORS,
    curve_picture,
    difference_bars,
    score_histogram,
)
from beamrank.report.report import Report, Tested
from beamrank.report.runs import CandidateView, PlanRuns, RankChange, shown_views
from beamrank.report.stage_rows import StageRow, answer_words

_ONE_DIGIT = ",.1f"
_PASSAGES = 3
_FROM_BEFORE = (
    Column("from the stage before"),
    Column("p", P_VALUE),
    Column("topics better, equal, worse"),
)
_FROM_FIRST = (Column("from the first stage"), Column("p, first stage", P_VALUE))
_CAPTIONS = {
    2: "{measure} against k0, the candidates that {stage} scores",
    3: "{measure} against the pairs that {stage} is asked for k1 candidates",
}

_CURVES_NOTE = (
    "A curve of pairs has the configured aggregation and the best others; the table of measures "
    "has all. curves.csv has every point. With --opponents, SAMPLE is drawn too, the mean and the "
    "standard deviation over the seeds against k1·m inferences, which is what is asked; the column "
    "inferences of curves.csv has k1·(m - 1), as the caption of the paper's figure 3 has it."
)


def answer(report: Report) -> Sequence[Block]:
    """Whether the stages are worth their cost: a sentence, a row for each, warnings, and what is
    missing.
    """
    rows = list(map(_answer, report.stages))
    table = Table(list(dict(rows[0] if rows else {})), [list(row.values()) for row in rows])
    warnings = [f"Warning: {warning.text}." for warning in report.warnings] or ["No warnings."]
    caption = "What each stage adds and costs: differences with 95 % intervals, p corrected (Holm)"
    return [
        Paragraph(f"{answer_words(report.stages)}{report.trial}."),
        TableBlock(caption, table, exported=True),
        *map(Paragraph, (*warnings, *report.executed.notes, *report.missing)),
    ]


def _answer(row: StageRow) -> dict[Column, Cell]:
    cells: dict[Column, Cell] = {Column("run"): row.run}
    if row.measure is not None:
        cells[Column(row.measure, MEAN)] = row.mean
        cells |= dict(zip(_FROM_BEFORE, _compared(row.than_before), strict=True))
        cells |= dict(zip(_FROM_FIRST, _compared(row.than_first), strict=False))
    return cells | {
        Column("topics in another order", ".1%"): row.reordered_share,
        Column("inferences", COUNT): row.inferences,
        Column("worker seconds", _ONE_DIGIT): row.seconds,
        Column("cut docs of the first ten", ".1%"): row.cut_share,
    }


def _compared(one: Comparison | None) -> Sequence[Cell]:
    return [None] * 3 if one is None else [one.interval, one.p_value, one.topics]


def cost(report: Report) -> Sequence[Block]:
    """What each stage cost and lost."""
    run = report.executed
    return [
        TableBlock("Stages: cost and losses, from receipts", _stages(run), exported=True),
        *(
            Paragraph(f"The open shards of {status.stage} were started again: {reason}.")
            for status in run.statuses
            for reason in status.retries
        ),
    ]


def _inputs(report: Report, run: PlanRuns) -> Iterator[tuple[str, Cell]]:
    plan, config = run.plan, run.config
    first, *later = config.cascade
    yield "run tag", plan.run_tag
    yield "output", plan.output
    yield "plan", plan.digest
    yield "corpus", f"{config.corpus.path} ({config.corpus.format})"
    yield "topics", f"{shown_paths(config.topics.path)}: {len(plan.topics):,} topics{report.trial}"
    yield "first stage", f"{first.kind}: {_flat(first.section.model_dump())}"
    notes = [evaluation.notes for evaluation in report.evaluations.values()][:1]
    if config.qrels is not None:
        yield (
            "qrels",
            shown_paths(config.qrels)
            + "".join(f": {note.topics:,} judged topics" for note in notes),
        )
    for kind, rejected in plan.rejects.items():
        yield f"bad rows of {kind}, left out", rejected.rows
    for stage in later:
        yield stage.name, _flat(stage.section.model_dump())
    yield "input", _flat(config.input.model_dump())
    for note in notes:
        for line in note.lines():
            yield "judgments", line


def _flat(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items() if value is not None)


def _stages(run: PlanRuns) -> Table:
    columns = [Column("stage"), Column("shards done"), Column("worker seconds", _ONE_DIGIT)]
    columns += [
        Column("inferences", COUNT),
        Column("inferences per query", _ONE_DIGIT),
        Column("padding, %", ".1f"),
    ]
    names = ("truncated queries", "truncated docs", "bad rows", "out-of-memory splits")
    rows: list[list[Cell]] = []
    for status in run.statuses:
        counts = total_counts(run.receipts[status.stage].values())
        padding = None if status.padding_share is None else 100 * status.padding_share
        cost = [status.seconds, counts.get("inferences"), status.inferences_per_query, padding]
        truncated = [counts.get("truncated_queries"), counts.get("truncated_docs")]
        done = f"{status.done} of {status.shards}"
        rows.append(
            [status.stage, done, *cost, *truncated, status.bad_rows, counts.get("halvings")]
        )
    return Table([*columns, *(Column(name, COUNT) for name in names)], rows)


def inputs_and_machines(report: Report) -> Sequence[Block]:
    """The inputs, a column for each machine that did shards (Dataflow's workers of one kind share
    it), and the keys of the stages.
    """
    run = report.executed
    shards: dict[str, Counter[str]] = {}
    for stage, receipts in run.receipts.items():
        for receipt in receipts.values():
            shards.setdefault(receipt.machine, Counter())[stage] += 1
    machines = [
        {
            "shards": ", ".join(f"{stage} {count:,}" for stage, count in counts.items()),
            **_described(read_machine(run.plan.output, name)),
        }
        for name, counts in shards.items()
    ]
    facts = dict.fromkeys(fact for machine in machines for fact in machine)
    rows = [[fact, *(machine.get(fact) for machine in machines)] for fact in facts]
    columns = [Column(""), *(Column(f"machine {number}") for number, _ in enumerate(machines, 1))]
    inputs = Table([Column("input"), Column("value")], list(_inputs(report, run)))
    tables = {"Inputs": inputs}
    if machines:
        tables["Machines and versions"] = Table(columns, rows)
    keys = [
        [stage.name, key, _flat(value) if isinstance(value, Mapping) else str(value)]
        for stage in run.plan.stages
        for key, value in stage.keys.items()
        if value not in (None, {})
    ]
    tables["What decides the scores"] = Table(list(map(Column, ("stage", "key", "value"))), keys)
    return list(starmap(TableBlock, tables.items()))


def _described(machine: Machine | None) -> dict[str, str]:
    if machine is None:
        return {"processor": "unknown: its description is missing"}
    return {
        "processor": f"{machine.processor}, {machine.cores} cores",
        "memory": f"{machine.memory_gib} GiB",
        "GPU": ", ".join(machine.gpus) or "none",
        "system": machine.system,
        "Python": machine.python,
        **machine.libraries,
    }


def measures(report: Report) -> Sequence[Block]:
    """Tables 1 and 2 of the multi-stage paper, for this run."""
    if not report.evaluations:
        return []
    names = list(next(iter(report.evaluations.values())).means)
    means = Table(
        [Column("run"), *(Column(name, MEAN) for name in names)],
        [
            [run, *(evaluation.means[name] for name in names)]
            for run, evaluation in report.evaluations.items()
        ],
    )
    blocks: list[Block] = [
        TableBlock(f"Means over all judged topics{report.trial}", means, exported=True)
    ]
    chosen = [row for row in report.tested if row.run in report.steps]
    others = [row for row in report.tested if row.run not in report.steps]
    title = f"Differences from {report.baseline}"
    if chosen:
        blocks += [
            TableBlock(title + report.trial, _differences(chosen), exported=True),
            Paragraph(
                "p comes from the paired t-test over topics; Holm's correction covers all rows of "
                "the table with a defined p. Wins, ties and losses are topics."
            ),
        ]
    if others:
        title += " of aggregations that are not configured; p is not corrected"
        blocks.append(TableBlock(title + report.trial, _differences(others), exported=True))
    return blocks


def _differences(tested: Sequence[Tested]) -> Table:
    columns = [Column("run"), Column("measure"), Column("mean", MEAN)]
    rows: list[list[Cell]] = [
        [run, measure, comparison.mean, *comparison.cells(p_value)]
        for run, measure, comparison, p_value in tested
    ]
    return Table([*columns, *tested_columns("difference", "Holm")], rows)


def pictures(report: Report) -> Sequence[Block]:
    """The curves, the differences by topic, and for each run how its scores are distributed. A
    stage and its runs have one color.
    """
    colors = {"first": COLORS[0]}
    for stage, color in zip(report.executed.finished, cycle(COLORS), strict=False):
        runs = (str(alternative.run_name) for alternative in stage.alternatives)
        colors |= dict.fromkeys((stage.name, *runs), color)
    blocks: list[Block] = [*_curves(report, colors)]
    if report.differences:
        compared = {run: colors[run] for run in (report.baseline, report.last)}
        svg, links = difference_bars(
            report.differences, str(report.main_measure), compared, _anchors(report)
        )
        caption = f"{_title(report)}, a bar for each topic; the largest are links"
        blocks.append(Picture("differences", caption, svg, links=links))
    for number, (run, by_label) in enumerate(report.scores.items(), 1):
        svg = score_histogram(by_label, run, colors[run])
        blocks.append(Picture(f"scores-{number}", f"Scores of {run}, by label", svg))
    if report.curves:
        blocks.append(Paragraph(_CURVES_NOTE))
    if report.not_drawn and report.evaluations:
        blocks.append(Paragraph(f"Measures without curves: {', '.join(report.not_drawn)}."))
    return blocks


def _curves(report: Report, colors: Mapping[str, str]) -> Iterator[Picture]:
    """Figures 2 and 3 of the multi-stage paper, by the first measure that has curves."""
    stages = {stage.name: stage for stage in report.executed.finished}
    names: set[str] = set()
    for stage, points in report.curves.items():
        first = points[0]
        name = f"figure-{first.figure}"
        name = f"{name}-{stage}" if name in names else name
        names.add(name)
        svg = curve_picture(
            [point for point in points if point.measure == first.measure],
            getattr(stages[stage], "aggregation", None),
            str(stages[stage].run_name),
            colors,
        )
        caption = _CAPTIONS[first.figure].format(measure=first.measure, stage=stage)
        yield Picture(name, caption + report.trial, svg, points)


def _title(report: Report) -> str:
    return f"{report.main_measure} of {report.last} minus {report.baseline}{report.trial}"


def _anchors(report: Report) -> dict[str, str]:
    """The anchors of the topics that have a section."""
    return {query_id: f"query-{number}" for number, query_id in enumerate(report.views, 1)}


def queries(report: Report) -> Sequence[Block]:
    """A table of all queries, and the docs of some."""
    blocks: list[Block] = []
    anchors = _anchors(report)
    if report.differences:
        links = list(map(anchors.get, report.differences))
        caption = f"{_title(report)}, by topic"
        blocks.append(TableBlock(caption, differences_table(report), links))
    if report.views:
        why = "the largest differences" if report.differences else "the first places of the plan"
        docs = "the best docs of each and relevant ones further below"
        blocks.append(
            Paragraph(f"The queries with {why} follow ({len(report.views):,}), with {docs}.")
        )
    for query_id, views in report.views.items():
        query = report.topics[query_id]
        blocks.append(Heading(f"{query_id}: {query}", anchors[query_id]))
        blocks.append(TableBlock("", _candidates(report, views)))
        for view in shown_views(views, _PASSAGES):
            if view.doc_id in report.texts:
                label = [("label", str(view.label))] if view.label is not None else []
                text = marked_text(report.texts[view.doc_id], query)
                blocks.append(Passage(view.doc_id, label, text))
    return blocks


def differences_table(report: Report) -> Table:
    """The main measure of each topic in every step, largest losses first; in the order of the plan
    without any.
    """
    steps = [run for run in report.steps if run in report.evaluations]
    columns = [Column("query_id"), Column("text"), *(Column(run, MEAN) for run in steps)]
    differences: Mapping[str, float | None] = report.differences or dict.fromkeys(report.topics)
    rows: list[list[Cell]] = []
    for query_id, difference in differences.items():
        values = (report.evaluations[run].per_query.get(query_id, {}) for run in steps)
        measured = [by_measure.get(str(report.main_measure)) for by_measure in values]
        rows.append([query_id, report.topics.get(query_id, ""), *measured, difference])
    return Table([*columns, Column("difference", DIFFERENCE)], rows)


def _candidates(report: Report, views: Sequence[CandidateView]) -> Table:
    columns = [Column("doc_id"), Column("label")]
    for run in report.steps:
        columns += [Column(f"{run} rank", COUNT), Column(f"{run} score", MEAN)]
    rows: list[list[Cell]] = []
    for view in views:
        row: list[Cell] = [view.doc_id, view.label]
        for run in report.steps:
            row += [view.ranks.get(run), view.scores.get(run)]
        rows.append([*row, view.truncated_by])
    return Table([*columns, Column("truncated")], rows)


def rank_changes(report: Report) -> Sequence[Block]:
    """Table 3 of the multi-stage paper: passages below the heading of each step, with the query's
    words marked.
    """
    blocks: list[Block] = []
    steps = groupby(report.changes, key=lambda change: (change.before, change.after))
    for number, ((before, after), changes) in enumerate(steps, 1):
        passages = [_passage(report, change) for change in changes]
        blocks += [
            Heading(f"{before} → {after}: the {len(passages):,} largest", f"changes-{number}"),
            *passages,
        ]
    return blocks


def _passage(report: Report, change: RankChange) -> Passage:
    before, after, view = change
    query, text = report.topics[view.query_id], report.texts.get(view.doc_id, "")
    facts = [
        ("query", f"{view.query_id}: {query}"),
        ("doc", view.doc_id),
        ("label", str(view.label)),
    ]
    facts += [("truncated", view.truncated_by)] if view.truncated_by is not None else []
    facts += [
        (f"{name}{' opponent' * isinstance(value, Opponent)}", str(value))
        for name, value in view.details.get(after, {}).items()
    ]
    title = f"{before} → {after}: rank {view.ranks[before]} → {view.ranks[after]}"
    return Passage(title, facts, marked_text(text, query))
