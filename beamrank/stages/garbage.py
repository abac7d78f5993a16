"""What can be removed from an output folder: files that no manifest names and that no run to come would use.

Kept are whatever a manifest names, whichever plan it seals; the receipts and parts with which an interrupted run of the
current plan goes on; all plans and runs; every file that beamrank does not know; and all that is young, since a run may
be at work on it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter

from beamrank.digests import checked_values
from beamrank.errors import PreflightError, ReceiptError
from beamrank.stages.plan import Plan, plan_names, read_plan
from beamrank.stages.receipts import (
    MANIFEST_PREFIX,
    NEEDED_PREFIX,
    PART_PREFIX,
    RECEIPTS,
    TEMPORARY_SUFFIX,
    Manifest,
    Receipt,
    is_receipt_name,
    receipt_name,
)
from beamrank.stages.scan_reports import SCANS, is_scan_name, scan_name
from beamrank.storage import files as storage
from beamrank.storage.documents import validated
from beamrank.storage.file_states import FileState, file_states

_PROBE_PREFIX = ".writable-"


@dataclass(frozen=True)
class _StageKeys:
    """What names files among the keys of a stage."""

    corpus: str | None = None


@dataclass(frozen=True)
class _StageNames:
    """A stage of a plan of any version."""

    name: Annotated[str, Field(pattern=r"^[\w-]+$")]
    keys: _StageKeys = _StageKeys()


@dataclass(frozen=True)
class _PlanNames:
    """What a plan of any version names."""

    topics: str
    stages: tuple[_StageNames, ...]


_NAMES = TypeAdapter(_PlanNames)


@dataclass(frozen=True)
class Garbage:
    """A file that can go: its path below the output, its size, and why."""

    file: str
    size_bytes: int
    reason: str


@dataclass(frozen=True)
class _Age:
    """Whether files are old enough to be left from a run that ended."""

    now: float
    least_seconds: float

    def old(self, state: FileState) -> bool:
        return state.modified_seconds is not None and self.now - state.modified_seconds >= self.least_seconds

    def idle(self, states: Iterable[FileState]) -> bool:
        """Whether nothing was written lately."""
        return all(self.old(state) for state in states)


def find_garbage(output: str, now: float, least_age_seconds: float) -> list[Garbage]:
    """Lists what can be removed; removes nothing.

    Args:
        output: the folder of a run.
        now: seconds since 1970.
        least_age_seconds: files that were written later are left alone.

    Raises:
        PreflightError: the folder holds no run, or a plan in it cannot be read.
        ReceiptError: a manifest cannot be read, so that it is not known what it names.
    """
    current = read_plan(output)
    output = storage.absolute(output)
    age = _Age(now, least_age_seconds)
    plans = [_plan_names(output, name) for name in plan_names(output)]
    found = list(_at_the_top(output, plans, age))
    for stage in sorted({stage.name for plan in plans for stage in plan.stages}):
        found += _Stage(storage.join(output, stage), stage, current, age).garbage(_corpora(plans))
    return found


def remove_garbage(output: str, garbage: Iterable[Garbage]) -> None:
    """Removes files, receipts before the parts that they name."""
    for each in sorted(garbage, key=lambda one: f"/{RECEIPTS}/" not in one.file):
        storage.remove(storage.join(storage.absolute(output), each.file))


def _plan_names(output: str, name: str) -> _PlanNames:
    """A plan of any version, as far as it says what it names."""
    url = storage.join(output, name)
    try:
        return validated(_NAMES, checked_values(storage.read_bytes(url)))
    except ValueError as error:
        raise PreflightError(
            f"the plan {url} cannot be read ({error}), so what it names is not known: run again, which writes the "
            "current plan anew, or delete it where it is another one"
        ) from error


def _corpora(plans: Iterable[_PlanNames]) -> set[str]:
    """The digests of the corpora that plans scan."""
    return {stage.keys.corpus for plan in plans for stage in plan.stages if stage.keys.corpus is not None}


def _at_the_top(output: str, plans: Iterable[_PlanNames], age: _Age) -> Iterator[Garbage]:
    topics = {plan.topics for plan in plans}
    for name, state in file_states(output).items():
        if not age.old(state):
            continue
        if name.startswith("topics-") and name not in topics:
            yield Garbage(name, state.size_bytes, "no plan names these topics")
        elif name.startswith(".") and (name.endswith(TEMPORARY_SUFFIX) or name.startswith(_PROBE_PREFIX)):
            yield Garbage(name, state.size_bytes, "left by a killed run")
    for name, state in file_states(storage.join(output, "runs")).items():
        if name.endswith(TEMPORARY_SUFFIX) and age.old(state):
            yield Garbage(f"runs/{name}", state.size_bytes, "left by a killed run")


@dataclass(frozen=True)
class _Stage:
    """One stage's folder."""

    url: str
    name: str
    current: Plan
    age: _Age

    def garbage(self, corpora: set[str]) -> Iterator[Garbage]:
        """What can go from it. Parts are listed before what names them is read: a run may publish both meanwhile."""
        folders = {folder: file_states(storage.join(self.url, folder)) for folder in ("", RECEIPTS, SCANS)}
        idle = self.age.idle(state for states in folders.values() for state in states.values())
        kept, parts = self._kept(folders[RECEIPTS], idle)
        scanned = tuple(scan_name(0, corpus).removeprefix("unit-00000") for corpus in corpora)
        for folder, states in folders.items():
            for name, state in sorted(states.items()):
                reason = None
                if name.endswith(TEMPORARY_SUFFIX):
                    reason = "left by a killed run"
                elif folder == RECEIPTS and name not in kept and is_receipt_name(name):
                    reason = "no manifest and no run to resume names this receipt"
                elif folder == SCANS and idle and not name.endswith(scanned) and is_scan_name(name):
                    reason = "a report on a corpus that no plan reads"
                elif name.startswith(PART_PREFIX) and name not in parts:
                    reason = "no receipt that is kept names this part"
                elif name.startswith(NEEDED_PREFIX) and idle:
                    reason = "the needed docs of a job that ended"
                if reason is not None and self.age.old(state):
                    yield Garbage("/".join(filter(None, (self.name, folder, name))), state.size_bytes, reason)

    def _kept(self, receipts: Mapping[str, FileState], idle: bool) -> tuple[set[str], set[str]]:
        """The receipts to keep and all parts to keep; while a run is at work here, that is every receipt."""
        sealed = self._sealed_receipts()
        to_resume = self._to_resume()
        kept = {name for name in receipts if to_resume is None or not idle or name in to_resume or name in sealed}
        return kept, {receipt.part for receipt in sealed.values()} | self._parts(kept)

    def _sealed_receipts(self) -> dict[str, Receipt]:
        """The receipts that manifests hold, by the names that they have on their own."""
        found: dict[str, Receipt] = {}
        for base in storage.sizes_bytes(self.url):
            if not base.startswith(MANIFEST_PREFIX):
                continue
            manifest = Manifest.from_json(storage.read_bytes(storage.join(self.url, base)))
            if manifest is None:
                raise ReceiptError(
                    f"{storage.join(self.url, base)} cannot be read, so what it names is not known: run again, which "
                    "seals the stage anew, or delete it where it is not the current plan's"
                )
            found |= {receipt_name(one.shard, one.digest): one for one in manifest.receipts}
        return found

    def _to_resume(self) -> set[str] | None:
        """The names of the current plan's receipts; None while an input is unfinished and they are not known."""
        stage = next((each for each in self.current.stages if each.name == self.name), None)
        if stage is None:
            return set()
        inputs = [self.current.finished(name) for name in stage.inputs]
        whole = [manifest for manifest in inputs if manifest is not None]
        if len(whole) < len(inputs):
            return None
        return {receipt_name(shard, each) for shard, each in enumerate(self.current.shard_digests(stage, whole))}

    def _parts(self, receipts: Iterable[str]) -> set[str]:
        contents = storage.read_files(storage.join(self.url, RECEIPTS), sorted(receipts))
        found = (Receipt.from_json(content) for content in contents.values())
        return {receipt.part for receipt in found if receipt is not None}
