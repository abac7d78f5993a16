"""`beamrank gc DIR`: removes leftovers of interrupted runs and abandoned plans."""

import sys
import time
from collections.abc import Collection
from typing import Annotated

import typer

from beamrank.commit.garbage import Garbage, find_garbage, remove_garbage
from beamrank.errors import ConfigError
from pipelines.console.progress import ConsoleProgress
from pipelines.console.terminal import write_line

_HOUR_SECONDS = 3600.0


def gc(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A run's output: a path or a URL.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the files and remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
    min_age_hours: Annotated[
        float, typer.Option(min=0, help="Keep files newer than this; another run may be using them.")
    ] = 24.0,
) -> None:
    """Remove unreferenced files: parts of lost attempts, temporary files, unfinished work of earlier plans.

    Keeps all plans, runs and logs, and what an interrupted run of the current plan needs to resume. Prints each file,
    its bytes and the reason, separated by tabs.
    """
    console = ConsoleProgress()
    garbage = find_garbage(folder, time.time(), min_age_hours * _HOUR_SECONDS)
    for each in garbage:
        write_line(each.file, each.size_bytes, each.reason)
    total = _total(garbage)
    if not garbage:
        console.note(f"files to remove: 0 (older than {min_age_hours:g} hours)")
    elif dry_run:
        console.note(f"files to remove: {total}")
    elif yes or _confirmed(total):
        # The user may have answered after hours, and a run that resumed meanwhile uses what it finds.
        still = set(garbage) & set(find_garbage(folder, time.time(), min_age_hours * _HOUR_SECONDS))
        remove_garbage(folder, still)
        console.note(f"files removed: {_total(still)}")
    else:
        console.note("files removed: 0")


def _total(garbage: Collection[Garbage]) -> str:
    return f"{len(garbage):,} ({sum(each.size_bytes for each in garbage):,} bytes)"


def _confirmed(total: str) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError("not interactive: pass --yes to remove these files, or --dry-run")
    sys.stdout.flush()
    return typer.confirm(f"files to remove: {total}. Remove them?", err=True)
