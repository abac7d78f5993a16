"""What ran: inputs, stages with their cost and losses; machines, and the keys that decide the scores."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from beamrank.commit.plan import Plan
from beamrank.commit.receipts import read_machine
from beamrank.evaluation.tables import COUNT, Cell, Column, Table
from beamrank.formats.files import shown_paths
from beamrank.machine import Machine
from beamrank.report.blocks import Block, Paragraph, TableBlock
from beamrank.report.report import Report
from beamrank.report.runs import PlanRuns

_ONE_DIGIT = ",.1f"
_PERCENT = ".1f"


def blocks(report: Report) -> Sequence[Block]:
    """What is missing, the inputs and the stages; of run files, what they hold."""
    found: list[Block] = [Paragraph(line) for line in report.missing]
    if report.files:
        found.append(TableBlock("Runs", _files(report)))
    if report.execution is not None:
        inputs = Table([Column("input"), Column("value")], _inputs(report, report.execution))
        stages = _stages(report.execution)
        found += [
            TableBlock("Inputs", inputs),
            TableBlock("Stages: cost and losses, from receipts", stages, exported=True),
        ]
        found += [
            Paragraph(f"The open shards of {status.stage} were started again: {reason}.")
            for status in report.execution.statuses
            for reason in status.retries
        ]
    return found


def setting_blocks(report: Report) -> Sequence[Block]:
    """The machines and the keys."""
    if report.execution is None:
        return []
    columns = [Column("stage"), Column("key"), Column("value")]
    keys = TableBlock("What decides the scores", Table(columns, _keys(report.execution.plan)))
    return [*_machines(report.execution), keys]


def _files(report: Report) -> Table:
    columns = [Column("run"), Column("format"), Column("topics", COUNT), Column("rows", COUNT), Column("notes")]
    rows: list[list[Cell]] = [
        [url, notes.format, notes.queries, notes.rows, "; ".join(notes.lines())] for url, notes in report.files.items()
    ]
    return Table(columns, rows)


def _inputs(report: Report, run: PlanRuns) -> list[list[Cell]]:
    plan, config = run.plan, run.config
    first, *later = config.stages
    rows: list[tuple[str, Cell]] = [
        ("run tag", plan.run_tag),
        ("plan", plan.digest),
        ("corpus", f"{config.corpus.path} ({config.corpus.format})"),
        ("topics", f"{shown_paths(config.topics.path)}: {len(plan.topics):,} topics{report.trial}"),
        ("first stage", f"{first.kind}: {_flat(first.section.model_dump())}"),
    ]
    if config.qrels is not None:
        judged = [each.notes.topics for each in report.evaluations.values()][:1]
        rows.append(("qrels", shown_paths(config.qrels) + "".join(f": {count:,} judged topics" for count in judged)))
    rows += [(f"bad rows of {kind}, left out", each.rows) for kind, each in plan.rejects.items()]
    rows += [(each.name, _flat(each.section.model_dump())) for each in later]
    rows.append(("input", _flat(config.input.model_dump())))
    if report.evaluations:
        notes = next(iter(report.evaluations.values())).notes
        rows += [("judgments", line) for line in notes.lines()]
    return [list(row) for row in rows]


def _stages(run: PlanRuns) -> Table:
    columns = [
        Column("stage"),
        Column("shards done"),
        Column("worker seconds", _ONE_DIGIT),
        Column("inferences", COUNT),
        Column("inferences per query", _ONE_DIGIT),
        Column("padding, %", _PERCENT),
        Column("truncated queries", COUNT),
        Column("truncated docs", COUNT),
        Column("bad rows", COUNT),
        Column("out-of-memory splits", COUNT),
    ]
    rows: list[list[Cell]] = []
    for status in run.statuses:
        counts: dict[str, int] = {}
        for receipt in run.receipts[status.stage].values():
            for name, count in receipt.counts.items():
                counts[name] = counts.get(name, 0) + count
        rows.append(
            [
                status.stage,
                f"{status.done} of {status.shards}",
                status.seconds,
                counts.get("inferences"),
                status.inferences_per_query,
                None if status.padding_share is None else 100 * status.padding_share,
                counts.get("truncated_queries"),
                counts.get("truncated_docs"),
                status.bad_rows,
                counts.get("halvings"),
            ]
        )
    return Table(columns, rows)


def _machines(run: PlanRuns) -> list[Block]:
    """A column for each machine that did shards: Dataflow's workers of one kind share a description."""
    shards: dict[str, Counter[str]] = {}
    for stage, receipts in run.receipts.items():
        for receipt in receipts.values():
            shards.setdefault(receipt.machine, Counter())[stage] += 1
    if not shards:
        return []
    found = [_machine_values(read_machine(run.plan.output, name)) for name in shards]
    done = [", ".join(f"{stage} {count:,}" for stage, count in counts.items()) for counts in shards.values()]
    names = list(dict.fromkeys(name for values in found for name in values))
    rows: list[list[Cell]] = [["shards", *done]]
    rows += [[name, *(each.get(name) for each in found)] for name in names]
    columns = [Column(""), *(Column(f"machine {number}") for number in range(1, len(found) + 1))]
    return [TableBlock("Machines and versions", Table(columns, rows))]


def _machine_values(machine: Machine | None) -> dict[str, str]:
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


def _keys(plan: Plan) -> list[list[Cell]]:
    return [
        [stage.name, key, _flat(value) if isinstance(value, Mapping) else str(value)]
        for stage in plan.stages
        for key, value in stage.keys.items()
        if value not in (None, {})
    ]


def _flat(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items() if value is not None)
