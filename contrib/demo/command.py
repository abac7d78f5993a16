"""`beamrank demo`: BM25 and monoBERT on an embedded collection."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from beamrank.commit.listing import REPORT
from beamrank.commit.plan import Plan, read_plan
from beamrank.commit.status import read_status
from beamrank.config.run import RunConfig
from beamrank.demo.collection import stdlib_docs, write_collection
from beamrank.evaluation.evaluate import Evaluation
from beamrank.evaluation.tables import MEAN, Column, Table
from beamrank.logs import run_log
from beamrank.report.stage_rows import stage_costs
from beamrank.storage import files as storage
from pipelines.commands.arguments import AsJson, Quiet, Verbose, console_progress, open_runs, option
from pipelines.console.tables import print_table

HELP_PANEL = "Run"

_DEPTH = 100
# Seven candidates in ten are shorter.
_MAX_LENGTH = 112
_MEASURES = ("RR@10", "nDCG@10", "R@100")


def demo(
    output: Annotated[
        str, option("The folder for the collection, the index and the run.")
    ] = "beamrank-demo",
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Answer questions from Python's documentation with BM25 and monoBERT. Needs no download."""
    # Beam takes seconds to import, and other commands do without.
    from beamrank.report.page import report_part, write_report
    from beamrank.report.report import ReportSettings, gather
    from pipelines.execute import execute
    from pipelines.runners.options import Runner

    console = console_progress(verbose, quiet)
    folder = storage.absolute(output)
    storage.check_folder(folder)
    write_collection(storage.join(folder, "collection"))
    docs = len(stdlib_docs())
    console.note(f"searching {docs:,} passages of the standard library's documentation")
    with run_log(console.events()):
        result = execute(demo_config(folder), Runner.LOCAL, (), None, wait=True, console=console)
        plan = read_plan(result.output)
        stages = _stages(plan, result.evaluations)
    if as_json:
        print(json.dumps({"docs": docs, "topics": len(plan.topics), "stages": stages}))
    else:
        columns = [Column("stage"), *(Column(measure, MEAN) for measure in _MEASURES)]
        columns += [Column("inferences per query", "g"), Column("seconds", ".1f")]
        table = Table(columns, [list(row.values()) for row in stages])
        print_table(table.header, table.shown())
    console.note(
        f"to save time, models read {_MAX_LENGTH} tokens of an input here, so longer docs are cut; "
        "`input.max_length` changes it"
    )
    console.note(f"runs, parts and receipts are in {folder}")
    report = report_part(gather(open_runs(result.output), ReportSettings()))
    page = write_report(storage.own_folder(folder, REPORT), [report])
    console.note(f"the report is {page}: open it in a browser")


def demo_config(folder: str) -> RunConfig:
    """The demo's configuration, as a user would write it for a collection of their own."""
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
            "input": {"max_length": _MAX_LENGTH},
            "measures": _MEASURES,
            "output": storage.join(folder, "run"),
        }
    )


def _stages(plan: Plan, evaluations: Mapping[str, Evaluation]) -> list[dict[str, Any]]:
    """The rows of the demo's table; `seconds` are worker seconds, from receipts."""
    return [
        {
            "stage": stage.type_name,
            **evaluation.means,
            "inferences_per_query": status.inferences_per_query or 0.0,
            "seconds": round(seconds, 1),
        }
        for evaluation, (stage, status, seconds) in zip(
            evaluations.values(), stage_costs(plan, read_status(plan)), strict=True
        )
    ]
