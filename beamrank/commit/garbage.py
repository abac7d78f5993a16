"""Leftovers in an output folder that can be removed: files that no manifest names and no later run would use.

These files are kept: whatever a manifest names, whichever plan it seals; the receipts and parts from which an
interrupted run of the current plan resumes; all plans and runs; every file that beamrank does not know; and all young
files, since a run may be writing them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter

from beamrank.commit.listing import RECEIPTS, Entry, Kind, list_folder, list_stage, receipt_name
from beamrank.commit.machines import FOLDER as MACHINES
from beamrank.commit.plan import Plan, plan_names, read_plan
from beamrank.commit.receipts import Manifest, Receipt
from beamrank.commit.scan_reports import read_reports
from beamrank.commit.shards import lists_shards
from beamrank.errors import PreflightError, ReceiptError
from beamrank.storage import files as storage
from beamrank.storage.digested import FileState, file_states
from beamrank.storage.documents import SHORT, checked_values, validated
from beamrank.storage.local_files import TEMPORARY_SUFFIX

_PROBE_PREFIX = ".writable-"


@dataclass(frozen=True)
class _StageNames:
    """A stage of a plan of any version."""

    name: Annotated[str, Field(pattern=r"^[\w-]+$")]
    corpus_digest: str | None = None


@dataclass(frozen=True)
class _PlanNames:
    """The files that a plan of any version names."""

    shards_file: str
    stages: tuple[_StageNames, ...]


_NAMES = TypeAdapter(_PlanNames)


@dataclass(frozen=True)
class Garbage:
    """A file that can be removed: its path below the output, its size, and why."""

    file: str
    size_bytes: int
    reason: str


@dataclass(frozen=True)
class _Age:
    """Whether files are old enough to be leftovers of a run that ended."""

    now: float
    least_seconds: float

    def old(self, state: FileState) -> bool:
        return state.modified_seconds is not None and self.now - state.modified_seconds >= self.least_seconds

    def idle(self, states: Iterable[FileState]) -> bool:
        """Whether nothing was written recently."""
        return all(self.old(state) for state in states)


def find_garbage(output: str, now: float, least_age_seconds: float) -> list[Garbage]:
    """Lists what can be removed; removes nothing.

    Args:
        output: the folder of a run.
        now: seconds since 1970.
        least_age_seconds: younger files are kept.

    Raises:
        PreflightError: the folder holds no run, or a plan in it cannot be read.
        ReceiptError: a manifest cannot be read, so that what it names is unknown.
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
    """The files that a plan names."""
    url = storage.join(output, name)
    try:
        return validated(_NAMES, checked_values(storage.read_bytes(url)))
    except ValueError as error:
        raise PreflightError(
            f"the plan {url} cannot be read ({error}), so what it names is unknown: run again, which writes the "
            "current plan again, or delete it if it is another plan"
        ) from error


def _corpora(plans: Iterable[_PlanNames]) -> set[str]:
    """The short digests of the corpora that plans scan."""
    return {stage.corpus_digest[:SHORT] for plan in plans for stage in plan.stages if stage.corpus_digest}


def _at_the_top(output: str, plans: Iterable[_PlanNames], age: _Age) -> Iterator[Garbage]:
    shards_files = {plan.shards_file for plan in plans}
    for name, state in file_states(output).items():
        if not age.old(state):
            continue
        if lists_shards(name) and name not in shards_files:
            yield Garbage(name, state.size_bytes, f"no plan names these {name.partition('-')[0]}")
        elif name.startswith(".") and (name.endswith(TEMPORARY_SUFFIX) or name.startswith(_PROBE_PREFIX)):
            yield Garbage(name, state.size_bytes, "left by a killed run")
    for folder in ("runs", MACHINES):
        for name, state in file_states(storage.join(output, folder)).items():
            if name.endswith(TEMPORARY_SUFFIX) and age.old(state):
                yield Garbage(f"{folder}/{name}", state.size_bytes, "left by a killed run")


@dataclass(frozen=True)
class _Stage:
    """One stage's folder."""

    url: str
    name: str
    current: Plan
    age: _Age

    def garbage(self, corpora: set[str]) -> Iterator[Garbage]:
        """The files to remove. Parts are listed before receipts are read: a run may publish both meanwhile.

        Args:
            corpora: the short digests of the corpora that plans scan.
        """
        entries = list_stage(self.url)
        unit_docs = {report.docs_file for report in read_reports(self.url, corpora)}
        idle = self.age.idle(entry.state for entry in entries)
        receipts, parts = self._kept(entries, idle)
        for entry in entries:
            reason = None
            if entry.temporary:
                reason = "left by a killed run"
            elif entry.kind is Kind.RECEIPT and entry.name not in receipts:
                reason = "no manifest and no run to resume names this receipt"
            elif entry.kind is Kind.SCAN and idle and entry.digest not in corpora:
                reason = "a report on a corpus that no plan reads"
            elif entry.kind is Kind.UNIT_DOCS and idle and entry.name not in unit_docs:
                reason = "the docs of a unit of a corpus that no plan reads"
            elif entry.kind is Kind.PART and entry.name not in parts:
                reason = "no receipt that is kept names this part"
            elif entry.kind is Kind.NEEDED and idle:
                reason = "the needed docs of a job that ended"
            if reason is not None and self.age.old(entry.state):
                yield Garbage(storage.join(self.name, entry.path), entry.state.size_bytes, reason)

    def _kept(self, entries: Iterable[Entry], idle: bool) -> tuple[set[str], set[str]]:
        """The names of the receipts and of all parts to keep; while a run is working here, every receipt is kept."""
        sealed = self._sealed_receipts()
        to_resume = self._to_resume()
        names = [entry.name for entry in entries if entry.kind is Kind.RECEIPT and not entry.temporary]
        kept = {name for name in names if to_resume is None or not idle or name in to_resume or name in sealed}
        return kept, {receipt.part for receipt in sealed.values()} | self._parts(kept)

    def _sealed_receipts(self) -> dict[str, Receipt]:
        """The receipts that manifests hold, by the names of their own files."""
        found: dict[str, Receipt] = {}
        for entry in list_folder(self.url):
            if entry.kind is not Kind.MANIFEST or entry.temporary:
                continue
            url = storage.join(self.url, entry.path)
            manifest = Manifest.from_json(storage.read_bytes(url))
            if manifest is None:
                raise ReceiptError(
                    f"{url} cannot be read, so what it names is unknown: run again, which seals the stage again, or "
                    "delete it if it is not the current plan's"
                )
            found |= {receipt_name(one.shard, one.digest): one for one in manifest.receipts}
        return found

    def _to_resume(self) -> set[str] | None:
        """The names of the current plan's receipts; None while an input is unfinished, which leaves them unknown."""
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
