"""`beamrank gc DIR`: removes what killed runs, lost attempts and abandoned plans left."""

import sys
import time
from collections.abc import Collection
from typing import Annotated

import typer

from beamrank.errors import ConfigError
from beamrank.stages.garbage import Garbage, find_garbage, remove_garbage
from pipelines.console.progress import ConsoleProgress
from pipelines.console.terminal import write_line

_HOUR_SECONDS = 3600.0


def gc(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A run's output: a path or a URL.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed, and remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    min_age_hours: Annotated[
        float, typer.Option(min=0, help="Leave younger files alone: a run may be at work on them.")
    ] = 24.0,
) -> None:
    """Remove what no manifest names: lost attempts' parts, temporary files, unfinished work of earlier plans.

    What an interrupted run of the current plan needs to go on is kept, and so are all plans and runs. Prints each
    file, its bytes and why it can go, between tabs.
    """
    talk = ConsoleProgress()
    garbage = find_garbage(folder, time.time(), min_age_hours * _HOUR_SECONDS)
    for each in garbage:
        write_line(each.file, each.size_bytes, each.reason)
    total = _total(garbage)
    if not garbage:
        talk.note(f"files to remove: 0, of those written {min_age_hours:g} hours ago or earlier")
    elif dry_run:
        talk.note(f"files to remove: {total}")
    elif yes or _confirmed(total):
        # The question may have stood there for hours, and a run that resumes takes up what it finds.
        still = set(garbage) & set(find_garbage(folder, time.time(), min_age_hours * _HOUR_SECONDS))
        remove_garbage(folder, still)
        talk.note(f"files removed: {_total(still)}")
    else:
        talk.note("files removed: 0")


def _total(garbage: Collection[Garbage]) -> str:
    return f"{len(garbage):,} ({sum(each.size_bytes for each in garbage):,} bytes)"


def _confirmed(total: str) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError("nobody can be asked here whether to remove these files: give --yes, or --dry-run")
    sys.stdout.flush()
    return typer.confirm(f"files to remove: {total}. Remove them?", err=True)
