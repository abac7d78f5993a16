"""`beamrank verify DIR`: is everything in an output folder as it was written?"""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from beamrank.config.run import stored_config
from beamrank.errors import PreflightError
from beamrank.stages.plan import read_plan
from beamrank.stages.verify import Verification, verify_stages
from beamrank.storage import files as storage
from pipelines.console.progress import ConsoleProgress
from pipelines.console.terminal import write_line
from pipelines.output.verify_index import verify_index
from pipelines.output.verify_runs import verify_runs


def verify(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A run's output: a path or a URL.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Read everything in a run's output again, and its local index, against receipts and digests. Writes nothing.

    Prints one line for each file that is not as it was written: what is wrong with it, and what to do. Exit code 1
    where there is one.
    """
    talk = ConsoleProgress()
    found = _verified(storage.absolute(folder), talk)
    if as_json:
        print(json.dumps(asdict(found)))
    else:
        for finding in found.findings:
            write_line(finding)
    for note in found.notes:
        talk.note(note)
    if found.stray:
        talk.note(f"files that nothing names, and nobody reads: {found.stray:,}; `beamrank gc` removes them")
    read = f"files read: {found.files:,} ({found.bytes:,} bytes)"
    if found.findings:
        talk.note(f"{read}; not as they were written: {len({finding.file for finding in found.findings}):,}")
        raise typer.Exit(1)
    talk.note(f"{read}; all is as it was written")


def _verified(output: str, talk: ConsoleProgress) -> Verification:
    with talk.bar("verify") as bar:
        found = verify_stages(output, bar)
    try:
        plan = read_plan(output)
        config = stored_config(plan.config, output)
    except PreflightError as error:
        found.notes.append(f"the runs were not checked: {error}")
        return found
    damaged_output = bool(found.findings)
    verify_index(plan, found)
    if damaged_output:
        found.notes.append("the runs were not checked, as they are made from what is damaged")
    else:
        verify_runs(plan, config, found)
    return found
