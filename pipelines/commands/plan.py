"""`beamrank plan CONFIG`: estimates what a run will do and cost."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from beamrank.formats.problems import counted
from pipelines.commands.arguments import ConfigPath, Limit, Output, Overrides, load_run_config
from pipelines.console.progress import ConsoleProgress
from pipelines.console.tables import print_table
from pipelines.console.terminal import write_line

if TYPE_CHECKING:
    from pipelines.planning.estimate import Estimate


def plan(
    config: ConfigPath,
    overrides: Overrides = None,
    output: Output = None,
    limit: Limit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Estimate shards, inferences, bytes and seconds from a short measurement on this machine. Writes nothing.

    After earlier runs into the same output it shows what remains, and what a changed key repeats. BM25 timings are
    rough estimates until the index exists.
    """
    # Beam takes seconds to import, and other commands do without.
    from pipelines.planning.estimate import estimate
    from pipelines.planning.named_inputs import named_inputs

    found = estimate(named_inputs(load_run_config(config, overrides, output, limit), ConsoleProgress()))
    if as_json:
        print(json.dumps(asdict(found)))
        return
    print(f"{counted(found.topics, 'topic')} in {counted(found.shards, 'shard')}; counts are upper bounds")
    if found.resumes:
        print("remaining work, after earlier runs into this output:")
    print_table(["stage", "shards", "inferences", "bytes written", "seconds, one worker"], _rows(found))
    for line in _words(found):
        write_line(line)


def _rows(found: "Estimate") -> Iterator[list[str]]:
    for stage in found.stages:
        shards = f"{stage.remaining_shards:,} of {found.shards:,}" if found.resumes else f"{found.shards:,}"
        figures = (f"{stage.remaining_inferences:,}", f"{stage.remaining_bytes:,}", f"{stage.remaining_seconds:,.1f}")
        yield [stage.stage, shards, *figures]
    inferences = sum(stage.remaining_inferences for stage in found.stages)
    yield ["all", "", f"{inferences:,}", "", f"{sum(stage.remaining_seconds for stage in found.stages):,.1f}"]


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
