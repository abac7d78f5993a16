"""`beamrank plan CONFIG`: estimates what a run will do and cost."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from beamrank.commit.pace import Prediction, Price
from beamrank.formats.notes import counted
from pipelines.commands.arguments import ConfigPath, Limit, Output, Overrides, Reuse, load_run_config
from pipelines.console.progress import ConsoleProgress, duration
from pipelines.console.tables import print_table
from pipelines.console.terminal import write_line

if TYPE_CHECKING:
    from pipelines.plan.estimate import Estimate

_HERE = "this machine"


def plan(
    config: ConfigPath,
    overrides: Overrides = None,
    output: Output = None,
    limit: Limit = None,
    reuse: Reuse = None,
    price: Annotated[
        float | None, typer.Option(min=0, help="What a machine costs an hour, in any currency: shows the cost.")
    ] = None,
    machine: Annotated[
        str, typer.Option(metavar="NAME", help="With --price: the machine's name, for the reader.")
    ] = "",
    machines: Annotated[int, typer.Option(min=1, help="How many machines work at once: shows how long they take.")] = 1,
    save: Annotated[
        bool,
        typer.Option("--save", help="Write the prediction into the output: `status` shows it beside what was spent."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Estimate shards, inferences, bytes and seconds from a short measurement on this machine. Only --save writes.

    After earlier runs into the same output it shows what remains, and what a changed key repeats. BM25 timings are
    rough estimates until the index exists.
    """
    # Beam takes seconds to import, and other commands do without.
    from pipelines.plan.estimate import estimate
    from pipelines.plan.named_inputs import named_inputs

    settings = named_inputs(load_run_config(config, overrides, output, limit, reuse), ConsoleProgress())
    found = estimate(settings)
    cost = None if price is None else Price(machine=machine or _HERE, per_hour=price, machines=machines)
    if save:
        Prediction(
            seconds={stage.stage: stage.predicted_seconds(found.shards) for stage in found.stages}, price=cost
        ).save(settings.output)
    if as_json:
        print(json.dumps(asdict(found)))
        return
    print(f"{counted(found.topics, 'topic')} in {counted(found.shards, 'shard')}; counts are upper bounds")
    if found.resumes:
        print("remaining work, after earlier runs into this output:")
    reused = ["reused"] if _reused(found) else []
    print_table(["stage", "shards", "inferences", *reused, "bytes written", "seconds, one worker"], _rows(found))
    for line in (*_words(found), *_money(found, cost or Price(machine=machine or _HERE, machines=machines))):
        write_line(line)


def _money(found: "Estimate", price: Price) -> Iterator[str]:
    """What the remaining work takes on machines like this one, and costs."""
    seconds = sum(stage.remaining_seconds for stage in found.stages)
    if price.machines > 1 or price.per_hour:
        names = f"{price.machines:,} machines" if price.machines > 1 else "a machine"
        elapsed = duration(price.elapsed_seconds(seconds))
        yield f"about {elapsed} on {names} ({price.machine}), with a worker as fast as one here on each"
    if price.per_hour:
        yield f"cost: {seconds / 3600:,.2f} machine hours at {price.per_hour:g}: {price.cost(seconds):,.2f}"


def _rows(found: "Estimate") -> Iterator[list[str]]:
    for stage in found.stages:
        shards = f"{stage.remaining_shards:,} of {found.shards:,}" if found.resumes else f"{found.shards:,}"
        reused = [f"{stage.remaining_reused:,}"] if _reused(found) else []
        figures = (f"{stage.remaining_bytes:,}", f"{stage.remaining_seconds:,.1f}")
        yield [stage.stage, shards, f"{stage.remaining_inferences:,}", *reused, *figures]
    inferences = sum(stage.remaining_inferences for stage in found.stages)
    reused = [f"{_reused(found):,}"] if _reused(found) else []
    seconds = sum(stage.remaining_seconds for stage in found.stages)
    yield ["all", "", f"{inferences:,}", *reused, "", f"{seconds:,.1f}"]


def _reused(found: "Estimate") -> int:
    """The inferences that can be reused from earlier runs."""
    return sum(stage.remaining_reused for stage in found.stages)


def _words(found: "Estimate") -> Iterator[str]:
    """Remarks on the table."""
    unfinished = [stage.stage for stage in found.stages if stage.remaining_shards]
    for change in found.changed:
        again = [kind for kind in change.stages if kind in unfinished]
        yield f"{change}: {_are(again)} redone" if again else f"{change}: an earlier run has done these stages"
    if found.resumes and len(unfinished) > 1:
        first, *later = unfinished
        yield f"{_are(later)} counted whole: which of their shards still count is known once {first} is finished"
    if not unfinished:
        yield "all stages finished"
    undecided = [stage.stage for stage in found.stages if stage.remaining_undecided]
    if undecided:
        yield (
            f"{_are(undecided)} counted in both columns: whether an inference is made or reused is known once its "
            "candidates are"
        )
    yield from found.not_reused
    if found.note is not None:
        yield found.note
    if "tokenize" in unfinished:
        yield _passes(found.join_passes)


def _are(stages: Sequence[str]) -> str:
    *others, last = stages
    return f"{', '.join(others)} and {last} are" if others else f"{last} is"


def _passes(passes: int) -> str:
    """The number of times that the join reads the corpus."""
    read = f"tokenize reads the corpus in {counted(passes, 'pass', 'passes')}"
    if passes == 1:
        return read
    return f"{read} with the memory that is free now; in 1 where the runner does not shuffle in this machine's memory"
