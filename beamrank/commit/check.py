"""Checks the files of an output: `verify` reads all and finds damage, `gc` lists those that nothing names or would use.

Both follow the table of kinds in `beamrank.commit.listing`. Damaged files can be deleted: the next run redoes only what
is missing. `gc` keeps whatever a manifest names, whichever plan it seals; the receipts and parts from which an
interrupted run of the current plan resumes; all plans and runs; every file that beamrank does not know; and all young
files, since a run may be writing them.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, TypeAdapter

from beamrank.commit import listing
from beamrank.commit.plan import EngineVersionError, Plan, load_plan, plan_names, read_current, read_plan
from beamrank.commit.receipts import Manifest, Receipt
from beamrank.commit.scan_reports import ScanReport, read_reports
from beamrank.commit.stage import StageRecord, described
from beamrank.errors import PreflightError, ReceiptError
from beamrank.progress import SILENT, Progress
from beamrank.storage import files as storage
from beamrank.storage.digested import FileState, file_states
from beamrank.storage.documents import SHORT, checked_values, digest, sha256, validated
from beamrank.storage.local_files import TEMPORARY_SUFFIX
from beamrank.storage.streams import errors_as
from beamrank.storage.urls import refuse_credentials

_FILES_AT_ONCE = 8
_AGAIN = "run again, which writes it again"
_REDO = "run again, which redoes only this shard"
_KILLED = "left by a killed run"


@dataclass(frozen=True)
class Finding:
    """A damaged file: its path below the output, the problem, and the remedy."""

    file: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}: {self.remedy}"


@dataclass
class Verification:
    """The result of a verification. `stray` counts unreferenced files, which `gc` removes."""

    files: int = 0
    bytes: int = 0
    stray: int = 0
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def count(self, entries: Collection[listing.Entry]) -> None:
        """Counts files that are read."""
        self.files += len(entries)
        self.bytes += sum(entry.state.size_bytes for entry in entries)


def verify_stages(output: str, progress: Progress = SILENT) -> Verification:
    """Checks the plans of a folder and the stages that they name, not the runs.

    Raises:
        PreflightError: the folder holds no run.
    """
    refuse_credentials(output, "DIR")
    output = storage.absolute(output)
    found = Verification()
    stages = _verify_top(output, found)
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        checks = [_StageCheck(output, stage, pool.map) for stage in stages]
        total, done = sum(len(check.named) for check in checks), 0
        for check in checks:
            found.findings += check.seals()
            found.findings += check.small_files()
            for finding in pool.map(check.part, sorted(check.named)):
                found.findings += [] if finding is None else [finding]
                done += 1
                progress.update(done, total, "parts")
            found.count(check.files.values())
            found.stray += check.stray
    return found


def _verify_top(output: str, found: Verification) -> list[StageRecord]:
    """Checks all plans, topics and machines; returns one stage for each folder that a plan names."""
    with errors_as(PreflightError, output):
        entries = [entry for entry in listing.list_output(output) if not entry.temporary]
    if not any(entry.kind is listing.POINTER for entry in entries):
        raise PreflightError(f"{output} holds no beamrank run: there is no {listing.CURRENT} in it")
    stages: dict[str, StageRecord] = {}
    plans = [entry.name for entry in entries if entry.kind is listing.PLAN]
    for name in plans:
        try:
            stages |= {stage.name: stage for stage in load_plan(output, name).stages}
        except EngineVersionError as error:
            found.notes.append(f"not checked: {error}")
        except ValueError as error:
            found.findings.append(Finding(name, f"cannot be read ({error})", f"{_AGAIN}, or delete it"))
    if not _names_one(output, plans):
        found.findings.append(Finding(listing.CURRENT, "does not name an existing plan", _AGAIN))
    for entry in entries:
        found.findings += _own_content(output, entry)
    found.count([entry for entry in entries if entry.kind is not listing.PREDICTION])
    return list(stages.values())


def _names_one(output: str, plans: Sequence[str]) -> bool:
    try:
        current = read_current(output)
    except PreflightError:
        return False
    return current is not None and current.plan in plans


def _own_content(folder: str, entry: listing.Entry, place: str = "") -> Iterator[Finding]:
    """The finding about a file that is named after its content, if it has other content."""
    damaged = None if entry.kind is None else entry.kind.damaged
    # A run that has just sealed its stage removes the needed docs.
    with suppress(FileNotFoundError):
        if damaged and not listing.holds_content(entry.name, storage.read_bytes(storage.join(folder, entry.path))):
            yield Finding(f"{place}{entry.path}", *damaged)


class _StageCheck:
    """One stage's folder.

    Attributes:
        files: whole files by their paths below the folder, without parts that nothing names.
        receipts, manifests: by path; None if the file is none.
        named: every part that a receipt or a manifest names, with those receipts.
        stray: how many files are unfinished, or parts that nothing names.
    """

    def __init__(self, output: str, stage: StageRecord, each: Callable[..., Iterator[Any]]) -> None:
        """Lists the folder and reads its receipts and manifests, several at once."""
        self._url, self._stage = storage.join(output, stage.name), stage
        entries = {entry.path: entry for entry in listing.list_stage(self._url)}

        def parsed(kind: listing.Kind, parse: Callable[[bytes], Any]) -> dict[str, Any]:
            paths = [path for path, entry in entries.items() if entry.is_whole(kind)]
            return dict(zip(paths, map(parse, each(self._content, paths)), strict=True))

        self.receipts: dict[str, Receipt | None] = parsed(listing.RECEIPT, Receipt.from_json)
        self.manifests: dict[str, Manifest | None] = parsed(listing.MANIFEST, Manifest.from_json)
        # A run that is working publishes parts before their receipts: those of receipts just read may not be listed.
        entries |= {entry.path: entry for entry in listing.list_folder(self._url) if entry.kind is listing.PART}
        self.named: dict[str, list[Receipt]] = defaultdict(list)
        sealed = (receipt for manifest in self.manifests.values() if manifest for receipt in manifest.receipts)
        for receipt in [*self.receipts.values(), *sealed]:
            if receipt is not None:
                self.named[receipt.part].append(receipt)
        self.files = {
            path: entry
            for path, entry in entries.items()
            if not entry.temporary and (entry.kind is not listing.PART or path in self.named)
        }
        self.stray = len(entries) - len(self.files)

    def _finding(self, path: str, problem: str, remedy: str) -> Finding:
        return Finding(storage.join(self._stage.name, path), problem, remedy)

    def _content(self, path: str) -> bytes:
        return storage.read_bytes(storage.join(self._url, path))

    def seals(self) -> Iterator[Finding]:
        """The findings about receipts and manifests."""
        sealed_in: dict[str, str] = {}
        for base, manifest in self.manifests.items():
            if manifest is None or not self._seals(manifest, base):
                remedy = "delete it and run again, which seals the stage again"
                yield self._finding(base, "the manifest is corrupted", remedy)
                continue
            for receipt in manifest.receipts:
                path = _receipt_path(receipt)
                sealed_in[path] = base
                if path not in self.receipts:
                    yield self._finding(path, f"is missing, and {base} holds it", f"delete {base} and {_REDO}")
                elif (written := self.receipts[path]) is not None and _claim(written) != _claim(receipt):
                    problem = f"is not the receipt that {base} holds"
                    yield self._finding(path, problem, f"delete it and {base} and {_REDO}")
        for path, found in self.receipts.items():
            if found is None or _receipt_path(found) != path:
                with_seal = f" and {sealed_in[path]}" if path in sealed_in else ""
                yield self._finding(path, "the receipt is corrupted", f"delete it{with_seal} and {_REDO}")

    def _seals(self, manifest: Manifest, base: str) -> bool:
        digests = manifest.shard_digests
        return (
            manifest.stage == self._stage.name
            and listing.manifest_name(digests) == base
            and digest(digests) == manifest.digest
            and [receipt.shard for receipt in manifest.receipts] == list(range(len(digests)))
        )

    def small_files(self) -> Iterator[Finding]:
        """The findings about the needed docs, those of corpus units, and the reports of scans."""
        for path, entry in self.files.items():
            yield from _own_content(self._url, entry, f"{self._stage.name}/")
            if entry.kind is listing.SCAN:
                report = ScanReport.from_json(self._content(path))
                if report is None or report.unit != entry.number:
                    problem = "the report is corrupted, so bad rows of the corpus may not be counted"
                    yield self._finding(path, problem, "delete it; reading the corpus again recreates it")

    def part(self, part: str) -> Finding | None:
        """The finding about a part: it is missing, or its bytes or rows do not match its receipts."""
        receipts = self.named[part]
        if part not in self.files:
            return self._finding(part, f"is missing, and {_receipt_path(receipts[0])} names it", _REDO)
        problem = self._part_problem(self._content(part), receipts)
        return None if problem is None else self._finding(part, problem, f"delete it and {_REDO}")

    def _part_problem(self, content: bytes, receipts: Sequence[Receipt]) -> str | None:
        if {(receipt.part_bytes, receipt.part_sha256) for receipt in receipts} != {(len(content), sha256(content))}:
            return "does not hold the bytes that its receipt names"
        try:
            table = pq.read_table(pa.BufferReader(content))
        except (pa.ArrowException, OSError) as error:
            return f"is not readable as Parquet ({error})"
        if {receipt.rows for receipt in receipts} != {table.num_rows}:
            return "does not have the number of rows in its receipt"
        if described(table.schema) != self._stage.schema:
            return f"unexpected columns for stage {self._stage.name}"
        return None


def _receipt_path(receipt: Receipt) -> str:
    return storage.join(listing.RECEIPTS, listing.receipt_name(receipt.shard, receipt.digest))


def _claim(receipt: Receipt) -> tuple[object, ...]:
    """The fields in which two attempts at a shard with the same part agree; their times differ."""
    return receipt.shard, receipt.digest, receipt.part, receipt.part_sha256, receipt.part_bytes, receipt.rows


@dataclass(frozen=True)
class _StageNames:
    """A stage of a plan of any version."""

    name: Annotated[str, Field(pattern=r"^[\w-]+$")]
    corpus_digest: str | None = None
    scan_digest: str | None = None


@dataclass(frozen=True)
class _RejectsName:
    """The rejected rows of an input of a plan of any version."""

    file: listing.RejectsFile


@dataclass(frozen=True)
class _PlanNames:
    """The files that a plan of any version names."""

    shards_file: str
    stages: tuple[_StageNames, ...]
    rejects: Mapping[str, _RejectsName] = field(default_factory=dict)


_NAMES = TypeAdapter(_PlanNames)


@dataclass(frozen=True)
class Garbage:
    """A file that can be removed: its path below the output, its size, and why."""

    file: str
    size_bytes: int
    reason: str


def find_garbage(output: str, now: float, least_age_seconds: float) -> list[Garbage]:
    """Lists what can be removed, and is as old as `least_age_seconds` at the time `now`; removes nothing.

    Raises:
        PreflightError: the folder holds no run, or a plan in it cannot be read.
        ReceiptError: a manifest cannot be read, so that what it names is unknown.
    """
    current = read_plan(output)
    output = storage.absolute(output)
    plans = [_plan_names(output, name) for name in plan_names(output)]
    scanned = (stage.scan_digest or stage.corpus_digest for plan in plans for stage in plan.stages)
    corpora = {each[:SHORT] for each in scanned if each}

    def is_old(state: FileState) -> bool:
        return state.modified_seconds is not None and now - state.modified_seconds >= least_age_seconds

    found: list[Garbage] = []
    top = listing.list_output(output)
    named_above: dict[listing.Kind, set[str]] = {
        listing.SHARDS: {plan.shards_file for plan in plans},
        listing.REJECT: {each.file for plan in plans for each in plan.rejects.values()},
    }
    all_idle = True
    below = sorted(storage.folder_names(storage.join(output, listing.RUNS)))
    for folder in (listing.RUNS, *(f"{listing.RUNS}/{each}" for each in below)):
        for name, state in file_states(storage.join(output, folder)).items():
            if name.endswith(TEMPORARY_SUFFIX) and is_old(state):
                found.append(Garbage(f"{folder}/{name}", state.size_bytes, _KILLED))
    for stage in sorted({stage.name for plan in plans for stage in plan.stages}):
        url = storage.join(output, stage)
        # Listed before receipts are read: a run may publish both meanwhile.
        entries = listing.list_stage(url)
        is_idle = all(is_old(entry.state) for entry in entries)
        named = _named(url, entries, current, corpora, is_idle)
        found += _unnamed(f"{stage}/", entries, named, is_old, is_idle)
        named_above[listing.REJECT].update(named[listing.REJECT])
        all_idle &= is_idle
    return [*_unnamed("", top, named_above, is_old, all_idle), *found]


def _unnamed(
    place: str,
    entries: Iterable[listing.Entry],
    named: Mapping[listing.Kind, Collection[str]],
    is_old: Callable[[FileState], bool],
    is_idle: bool = True,
) -> Iterator[Garbage]:
    """The old files of a folder that are unfinished, or that nothing names."""
    for entry in entries:
        reason = _KILLED if entry.temporary else None
        if entry.kind is not None and not entry.temporary and (is_idle or not entry.kind.while_idle):
            reason = None if entry.name in named.get(entry.kind, ()) else entry.kind.unused
        if reason is not None and is_old(entry.state):
            yield Garbage(f"{place}{entry.path}", entry.state.size_bytes, reason)


def _named(
    url: str, entries: Sequence[listing.Entry], current: Plan, corpora: set[str], is_idle: bool
) -> dict[listing.Kind, Collection[str]]:
    """The names of the files of a stage to keep, of each kind; while a run is working here, every receipt is kept."""
    reports = read_reports(url, corpora)
    sealed = _sealed_receipts(url)
    to_resume = _to_resume(current, storage.name(url))
    receipts = {
        entry.name
        for entry in entries
        if entry.is_whole(listing.RECEIPT)
        and (to_resume is None or not is_idle or entry.name in to_resume or entry.name in sealed)
    }
    contents = storage.read_files(storage.join(url, listing.RECEIPTS), sorted(receipts)).values()
    kept = [each for each in (*sealed.values(), *map(Receipt.from_json, contents)) if each is not None]
    return {
        listing.RECEIPT: receipts,
        listing.PART: {receipt.part for receipt in kept},
        listing.SCAN: {entry.name for entry in entries if entry.digest in corpora},
        listing.UNIT_DOCS: {report.docs_file for report in reports},
        listing.REJECT: {each.rejects_file for each in kept} | {each.rejects_file for each in reports},
    }


def _sealed_receipts(url: str) -> dict[str, Receipt]:
    """The receipts that manifests hold, by the names of their own files."""
    found: dict[str, Receipt] = {}
    for entry in listing.list_folder(url):
        if entry.is_whole(listing.MANIFEST):
            manifest = Manifest.from_json(storage.read_bytes(storage.join(url, entry.path)))
            if manifest is None:
                raise ReceiptError(
                    f"{storage.join(url, entry.path)} cannot be read, so what it names is unknown: run again, which "
                    "seals the stage again, or delete it if it is not the current plan's"
                )
            found |= {listing.receipt_name(one.shard, one.digest): one for one in manifest.receipts}
    return found


def _to_resume(current: Plan, name: str) -> set[str] | None:
    """The names of the current plan's receipts; None while an input is unfinished, which leaves them unknown."""
    stage = next((each for each in current.stages if each.name == name), None)
    digests = () if stage is None else current.expected_digests(stage)
    return None if digests is None else {listing.receipt_name(shard, each) for shard, each in enumerate(digests)}


def _plan_names(output: str, name: str) -> _PlanNames:
    url = storage.join(output, name)
    try:
        return validated(_NAMES, checked_values(storage.read_bytes(url)))
    except ValueError as error:
        raise PreflightError(
            f"the plan {url} cannot be read ({error}), so what it names is unknown: run again, which writes the "
            "current plan again, or delete it if it is a different plan"
        ) from error


def remove_garbage(output: str, garbage: Iterable[Garbage]) -> None:
    """Removes files, receipts before the parts that they name."""
    for each in sorted(garbage, key=lambda one: f"/{listing.RECEIPTS}/" not in one.file):
        storage.remove(storage.join(storage.absolute(output), each.file))
