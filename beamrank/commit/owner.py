"""The launchers of an output. Launchers of one plan and configuration cooperate; two others would
write the same files. `gc` counts as one of a plan of its own, so that it removes nothing that one
has just found.

Each has an entry in the output as long as it runs: `launcher-PLAN-CONFIG-MACHINE-ID.json`, of which
the name decides. On this machine the entry's lock shows that the launcher runs; elsewhere the entry
is renewed every minute, and one that was not for ten minutes belongs to a launcher that has ended.
Ages are differences of the store's own times, so no clock of a launcher matters.

A launcher first looks for others, then makes its entry, and looks again. Of two that start at once
each has made its entry before it looks, so at least one sees the other and is refused; and one that
finds others before is refused without an entry, and so in the way of nobody.
"""

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from beamrank.commit.listing import LAUNCHER, MACHINES, RUNS
from beamrank.commit.plan import Plan, read_current
from beamrank.errors import BeamrankError, TemporaryError
from beamrank.formats.rejects import REJECTS
from beamrank.logs import open_in_output
from beamrank.machine import machine_id
from beamrank.storage import files as storage
from beamrank.storage.digested import file_states
from beamrank.storage.documents import SHORT, checked_json, checked_values, validated
from beamrank.storage.local_files import temporary_name
from beamrank.system import system
from beamrank.version import __version__

_RENEWED_SECONDS, _ENDED_SECONDS, _LAST_RENEWAL_SECONDS = 60.0, 600.0, 10.0
# In the name of an entry that keeps launchers of all plans out.
_NO_PLAN = "0" * SHORT
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Owner:
    """A process, and since when (ISO 8601) it runs a plan."""

    host: str
    pid: Annotated[int, Field(ge=1)]
    since: str

    @classmethod
    def this_process(cls) -> "Owner":
        """This process, from now on."""
        now = datetime.fromtimestamp(system.time(), UTC).isoformat(timespec="seconds")
        return cls(system.gethostname(), system.getpid(), now)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (since {self.since})"


_OWNER = TypeAdapter(Owner)


def _described(values: Any) -> str:
    try:
        return str(validated(_OWNER, values))
    except ValueError:
        return "another process"


def running(output: str) -> list[str]:
    """The launchers that run in an output, in words."""
    return [_read(output, name) for name, ended in _entries(output) if not ended]


def _read(output: str, entry: str) -> str:
    try:
        return _described(checked_values(storage.read_bytes(storage.join(output, entry))))
    except (OSError, ValueError):
        return _described(None)


def _entries(output: str, written: str = "") -> Iterator[tuple[str, bool]]:
    """The entries of launchers, and whether each has ended, which stays so until the next is asked
    for.

    Ages count from `written`, a file that this process has just written; by default from now.
    """
    states = file_states(output)
    now = states[written].modified_seconds if written in states else system.time()
    for name, (_, modified) in states.items():
        match = re.fullmatch(LAUNCHER.pattern, name)
        if match is not None and name != written:
            age = None if now is None or modified is None else now - modified
            place = storage.join(output, name), match["machine"]
            with storage.holder_ended(*place, age, _ENDED_SECONDS) as ended:
                yield name, ended


@contextmanager
def launched(output: str, plan: str, config: str) -> Iterator[str]:
    """Keeps launchers of other plans or configurations, named by digests, out of an output; yields
    the name of this one's entry.

    Raises:
        TemporaryError: one runs.
    """
    kind = f"launcher-{plan[:SHORT]}-{config[:SHORT]}-"
    entry = f"{kind}{machine_id()}-{system.uuid4().hex[:SHORT]}.json"
    clock = temporary_name(entry)
    with storage.held(storage.join(output, clock), b""):
        _refuse_others(output, kind, clock)
    content = checked_json(asdict(Owner.this_process()))
    with storage.held(storage.join(output, entry), content) as renew, _renewed(renew):
        _refuse_others(output, kind, entry)
        yield entry


@contextmanager
def launcherless(output: str) -> Iterator[float | None]:
    """Keeps all launchers out of an output; yields the time by the storage's clock, None where it
    keeps no times.

    Raises:
        TemporaryError: one runs.
    """
    with launched(output, _NO_PLAN, _NO_PLAN) as entry:
        yield file_states(output)[entry].modified_seconds


def _refuse_others(output: str, kind: str, written: str) -> None:
    """Removes the entries of launchers that ended; raises TemporaryError for one of another kind
    that runs.
    """
    for entry, ended in _entries(output, written):
        if ended:
            storage.release(storage.join(output, entry))
        elif not entry.startswith(kind):
            raise TemporaryError(
                f"{output} is in use: {_read(output, entry)} runs another configuration into it, "
                "or removes files. Both would change the same files, and the runs of one would be "
                "lost. Wait until that process ends (ten minutes for one that was killed on "
                "another machine), or give this run another --output"
            )


@contextmanager
def _renewed(renew: Callable[[], None]) -> Iterator[None]:
    """Renews an entry every minute in the `with` block."""
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(_RENEWED_SECONDS):
            try:
                renew()
            except (BeamrankError, OSError) as error:
                _log.warning("the entry of this launcher is not renewed: %s", error)

    thread = threading.Thread(target=keep, name="launcher's entry", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_LAST_RENEWAL_SECONDS)


@contextmanager
def made_current(plan: Plan) -> Iterator[None]:
    """Makes a plan the current one of its output, and keeps launchers of others out until the
    `with` block ends.

    Raises:
        TemporaryError: another plan, or configuration, is run into the same output.
    """
    with launched(plan.output, plan.digest, plan.config_digest):
        plan.publish(asdict(Owner.this_process()))
        open_run_log(plan)
        _remove_leftovers(plan)
        try:
            yield
        finally:
            # Workers of a killed launcher may have outlived it for a moment.
            _remove_leftovers(plan)


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
    """Raises TemporaryError where another plan or configuration was started into the output: its
    runs must stay.
    """
    current = read_current(plan.output)
    if current is not None and not plan.is_named_by(current):
        raise TemporaryError(
            f"another configuration was started into {plan.output} while this one ran: "
            f"{current.plan}, by {_described(current.owner)}. The files in "
            "runs/ are its own now, so the runs of this configuration are not written. Finished "
            "shards of both are kept. Once the other process has ended, run the same command "
            "again; to have the runs of both, give another --output"
        )
