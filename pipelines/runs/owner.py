"""The process that runs a plan. Two runs of one plan into a folder cooperate; runs of two plans
would conflict.
"""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field, TypeAdapter

from beamrank.commit.listing import MACHINES, RUNS
from beamrank.commit.plan import CurrentPlan, Plan, read_current
from beamrank.errors import BeamrankError, PreflightError
from beamrank.formats.rejects import REJECTS
from beamrank.logs import open_in_output
from beamrank.machine import is_running, start_seconds
from beamrank.storage import files as storage
from beamrank.storage.documents import validated
from beamrank.version import __version__

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Owner:
    """A process, and since when (ISO 8601) it runs a plan; `process_started` detects a reused
    pid.
    """

    host: str
    pid: Annotated[int, Field(ge=1)]
    process_started: float
    since: str

    @classmethod
    def this_process(cls) -> "Owner":
        """This process, from now on."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(socket.gethostname(), os.getpid(), start_seconds(), now)

    @classmethod
    def of(cls, current: CurrentPlan) -> "Owner | None":
        """The process that runs a plan; None if it has ended properly or is unknown."""
        try:
            return validated(_OWNER, current.owner)
        except ValueError:
            return None

    def is_another(self) -> bool:
        """Whether this is another process of this machine that is still running."""
        if self.host != socket.gethostname() or self.pid == os.getpid():
            return False
        return is_running(self.pid, self.process_started)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (since {self.since})"


_OWNER = TypeAdapter(Owner)


@contextmanager
def made_current(plan: Plan) -> Iterator[None]:
    """Makes a plan the current one of its output, with this process as its owner until the `with`
    block ends.

    Raises:
        PreflightError: another process of this machine runs another plan, or configuration, into
            the same output.
    """
    current = None
    # A broken pointer is written again.
    with suppress(PreflightError):
        current = read_current(plan.output)
    owner = None if current is None or plan.is_named_by(current) else Owner.of(current)
    if owner is not None and owner.is_another():
        raise PreflightError(
            f"{plan.output} is in use: {owner} runs another configuration into it. Both would "
            "write the same files, and the runs of one would be lost. Wait until that process "
            "ends, or give this run another --output"
        )
    mine = asdict(Owner.this_process())
    plan.publish(mine)
    open_run_log(plan)
    _remove_leftovers(plan)
    try:
        yield
    finally:
        # Workers of a killed launcher may have outlived it for a moment.
        _remove_leftovers(plan)
        with suppress(OSError, PreflightError):
            current = read_current(plan.output)
            if current is not None and current.owner == mine:
                plan.make_current()


def open_run_log(plan: Plan) -> None:
    """Puts the log under the output of a plan."""
    open_in_output(plan.output)
    stages = ", ".join(stage.name for stage in plan.stages)
    _log.info("beamrank %s runs plan %s into %s", __version__, plan.digest[:12], plan.output)
    _log.info("topics: %d, shards: %d, stages: %s", len(plan.topics), len(plan.shards), stages)


def _remove_leftovers(plan: Plan) -> None:
    """Removes the temporary files of killed processes; in the output itself a user may keep other
    things.
    """
    storage.remove_leftovers(plan.output)
    for folder in (MACHINES, REJECTS, RUNS):
        storage.remove_leftovers(plan.output, folder)
    for stage in plan.stages:
        plan.folder(stage.name).remove_leftovers()


def check_current(plan: Plan) -> None:
    """Raises BeamrankError where another plan or configuration was started into the output: its
    runs must stay.
    """
    current = read_current(plan.output)
    if current is not None and not plan.is_named_by(current):
        raise BeamrankError(
            f"another configuration was started into {plan.output} while this one ran: "
            f"{current.plan}, by {Owner.of(current) or 'a process that has ended'}. The files in "
            "runs/ are its own now, so the runs of this configuration are not written. Finished "
            "shards of both are kept. Once the other process has ended, run the same command "
            "again; to have the runs of both, give another --output"
        )
