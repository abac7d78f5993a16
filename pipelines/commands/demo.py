"""`beamrank demo`: the whole cascade on an embedded collection and embedded checkpoints."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from beamrank.commit.plan import Plan, read_plan
from beamrank.commit.status import read_status
from beamrank.config.run import RunConfig
from beamrank.demo.collection import stdlib_docs, write_collection
from beamrank.evaluation.evaluate import Evaluation
from beamrank.evaluation.tables import MEAN, Cell, Column, Table
from beamrank.storage import files as storage
from pipelines.commands.arguments import Quiet, Verbose, console_progress
from pipelines.commands.report import report_paths
from pipelines.console.run_log import run_log
from pipelines.console.tables import print_table
from pipelines.runners.names import Runner

_DEPTH = 100
_DUO_DEPTH = 10
# Seven candidates in ten are shorter.
_MAX_LENGTH = 112
_MEASURES = ("RR@10", "nDCG@10", "R@100")


@dataclass(frozen=True)
class DemoStage:
    """One row of the demo's table; `seconds` are worker seconds, from receipts."""

    stage: str
    measures: dict[str, float]
    inferences_per_query: float
    seconds: float


def demo(
    output: Annotated[
        str, typer.Option(help="The folder for the collection, the index and the run.")
    ] = "beamrank-demo",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Answer questions from Python's documentation with BM25, monoBERT and duoBERT. Needs no download."""
    # Beam takes seconds to import, and other commands do without.
    from beamrank.report.report import ReportSettings
    from pipelines.execute import execute

    console = console_progress(verbose, quiet)
    folder = storage.absolute(output)
    storage.check_folder(folder)
    collection = storage.join(folder, "collection")
    write_collection(collection)
    docs = len(stdlib_docs())
    console.note(f"searching {docs:,} passages of the standard library's documentation")
    with run_log(console):
        result = execute(demo_config(folder), Runner.LOCAL, (), None, wait=True, console=console)
        plan = read_plan(result.output)
        stages = _stages(plan, result.evaluations)
    if as_json:
        print(json.dumps({"docs": docs, "topics": len(plan.topics), "stages": [_flat(stage) for stage in stages]}))
    else:
        _print_stages(stages)
    console.note(f"runs, parts and receipts are in {folder}")
    page = report_paths([result.output], storage.join(folder, "report"), ReportSettings(), console)
    console.note(f"the report is {page}: open it in a browser")


def demo_config(folder: str) -> RunConfig:
    """The demo's configuration, as a user would write it for another collection."""
    collection = storage.join(folder, "collection")
    return RunConfig.model_validate(
        {
            "run_tag": "demo",
            "corpus": {"path": storage.join(collection, "corpus.jsonl"), "format": "jsonl"},
            "topics": {"path": storage.join(collection, "topics.tsv"), "format": "tsv"},
            "qrels": storage.join(collection, "qrels.txt"),
            "index": {"path": storage.join(folder, "index")},
            "bm25": {"k": _DEPTH},
            "mono": {"checkpoint": "embedded:mono", "k": _DEPTH},
            "duo": {"checkpoint": "embedded:duo", "k": _DUO_DEPTH},
            "input": {"max_length": _MAX_LENGTH},
            "measures": _MEASURES,
            "output": storage.join(folder, "run"),
        }
    )


def _stages(plan: Plan, evaluations: Mapping[str, Evaluation]) -> list[DemoStage]:
    statuses = {status.stage: status for status in read_status(plan)}
    found = []
    for stage, run, names in (
        ("bm25", "bm25", ["retrieve"]),
        ("mono", "mono", [*(spec.name for spec in plan.of_step("tokenize")), "mono"]),
        ("duo", "duo-sum", ["duo"]),
    ):
        inferences = statuses[names[-1]].inferences_per_query or 0.0
        seconds = sum(statuses[name].seconds for name in names)
        found.append(DemoStage(stage, evaluations[run].means, inferences, round(seconds, 1)))
    return found


def _flat(stage: DemoStage) -> dict[str, object]:
    values = asdict(stage)
    return {"stage": stage.stage, **values.pop("measures"), **{key: values[key] for key in values if key != "stage"}}


def _print_stages(stages: list[DemoStage]) -> None:
    columns = [Column("stage"), *(Column(measure, MEAN) for measure in _MEASURES)]
    columns += [Column("inferences per query", "g"), Column("seconds", ".1f")]
    rows: list[list[Cell]] = [
        [each.stage, *map(each.measures.__getitem__, _MEASURES), each.inferences_per_query, each.seconds]
        for each in stages
    ]
    table = Table(columns, rows)
    print_table(table.header, table.shown())
