"""`beamrank status DIR`: the progress of a run."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from beamrank.commit.plan import Plan, read_plan
from beamrank.commit.prediction import Prediction, read_prediction
from beamrank.commit.status import StageStatus, read_status, run_eta_seconds
from beamrank.formats.notes import counted
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
    prediction = read_prediction(plan.output)
    predicted = {} if prediction is None else _predicted(plan, prediction)
    if as_json:
        rows = [asdict(stage) | {"predicted_seconds": predicted.get(stage.stage)} for stage in stages]
        print(json.dumps({"stages": rows, "eta_seconds": eta, "cost": _cost(prediction, stages)}))
        return
    # Lines rather than a table: they fit any terminal.
    if plan.limited:
        print(f"a trial on {counted(len(plan.topics), 'topic')} (topics.limit)")
    for stage in stages:
        seconds = predicted.get(stage.stage)
        facts = [*_facts(stage), *([] if seconds is None else [f"{seconds:,.1f} predicted"])]
        write_line(f"{stage.stage}: {', '.join(facts)}")
    print(f"run: {_run(stages, eta)}")
    cost = _cost(prediction, stages)
    if cost is not None:
        write_line(
            "cost on {machine} at {per_hour:g} an hour: {predicted:,.2f} predicted, {spent:,.2f} spent".format(**cost)
        )


def _predicted(plan: Plan, prediction: Prediction) -> dict[str, float]:
    """The predicted worker seconds by stage; those of a step with several stages are at its first."""
    first = {stage.step: stage.name for stage in reversed(plan.stages)}
    return {first[step]: seconds for step, seconds in prediction.seconds.items() if step in first}


def _cost(prediction: Prediction | None, stages: Sequence[StageStatus]) -> dict[str, Any] | None:
    """The predicted cost and that of the worker seconds so far; None without a price."""
    if prediction is None or prediction.price is None:
        return None
    price = prediction.price
    predicted = price.cost(sum(prediction.seconds.values()))
    return price.model_dump() | {"predicted": predicted, "spent": price.cost(sum(stage.seconds for stage in stages))}


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
