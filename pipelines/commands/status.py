"""`beamrank status DIR`: the progress of a run."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from beamrank.formats.problems import counted
from beamrank.stages.plan import read_plan
from beamrank.stages.status import StageStatus, read_status, run_eta_seconds
from pipelines.console.counts import cost_words
from pipelines.console.progress import duration
from pipelines.console.terminal import write_line


def status(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A run's output.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the progress, the ETA and the cost of each stage. Reads receipts, so it works with every runner."""
    plan = read_plan(folder)
    stages = read_status(plan)
    eta = run_eta_seconds(stages)
    if as_json:
        print(json.dumps({"stages": [asdict(stage) for stage in stages], "eta_seconds": eta}))
        return
    # Lines rather than a table: they fit any terminal.
    if plan.limited:
        print(f"a trial on {counted(len(plan.topics), 'topic')} (topics.limit)")
    for stage in stages:
        write_line(f"{stage.stage}: {', '.join(_facts(stage))}")
    print(f"run: {_run(stages, eta)}")


def _facts(stage: StageStatus) -> list[str]:
    facts = [f"{stage.done:,} of {stage.shards:,} shards", _eta(stage)]
    if stage.elapsed_seconds is not None:
        facts.insert(1, f"elapsed {duration(stage.elapsed_seconds)}")
    facts += cost_words(stage)
    if stage.bad_rows:
        facts.append(counted(stage.bad_rows, "bad row"))
    return facts


def _eta(stage: StageStatus) -> str:
    if stage.finished:
        return "finished"
    if stage.eta_seconds is None:
        return "ETA unknown"
    about = "" if stage.done else "about "
    stopped = " when resumed" if stage.done and stage.elapsed_seconds is None else ""
    return f"ETA {about}{duration(stage.eta_seconds)}{stopped}"


def _run(stages: list[StageStatus], eta: float | None) -> str:
    if all(stage.finished for stage in stages):
        return "all stages finished"
    if eta is not None:
        return f"ETA {duration(eta)}"
    unknown = [stage.stage for stage in stages if stage.eta_seconds is None]
    return f"ETA unknown until {'mono' if 'mono' in unknown else unknown[0]} starts"
