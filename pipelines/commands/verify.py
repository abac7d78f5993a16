"""`beamrank verify DIR`: checks every file of an output against receipts and digests."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from beamrank.commit.plan import read_plan
from beamrank.commit.verify import Verification, verify_stages
from beamrank.config.run import stored_config
from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from models.stages import stage_of
from pipelines.console.progress import ConsoleProgress
from pipelines.console.terminal import write_line
from pipelines.runs.verify_runs import verify_runs


def verify(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A run's output: a path or a URL.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check every file of a run's output, and its local index, against receipts and digests. Writes nothing.

    Prints one line for each corrupted or missing file: what is wrong with it, and what to do. Exit code 1 if there are
    any.
    """
    console = ConsoleProgress()
    found = _verified(storage.absolute(folder), console)
    if as_json:
        print(json.dumps(asdict(found)))
    else:
        for finding in found.findings:
            write_line(finding)
    for note in found.notes:
        console.note(note)
    if found.stray:
        console.note(f"unreferenced files: {found.stray:,}; `beamrank gc` removes them")
    read = f"files read: {found.files:,} ({found.bytes:,} bytes)"
    if found.findings:
        console.note(f"{read}; corrupted or missing: {len({finding.file for finding in found.findings}):,}")
        raise typer.Exit(1)
    console.note(f"{read}; all files verified")


def _verified(output: str, console: ConsoleProgress) -> Verification:
    with console.bar("verify") as bar:
        found = verify_stages(output, bar)
    try:
        plan = read_plan(output)
        config = stored_config(plan.config, output) if plan.has_runs else None
    except PreflightError as error:
        found.notes.append(f"the runs were not checked: {error}")
        return found
    if config is not None:
        verify_runs(plan, config, found)
    for stage in plan.stages:
        stage_of(stage).verify(found)
    return found
