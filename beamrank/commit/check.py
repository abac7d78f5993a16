"""Checks the files of an output: `verify` reads all and finds damage, `gc` lists files that nothing
names or would use.

Both follow the table of kinds in `beamrank.commit.listing`. Damaged files can be deleted: the next
launcher redoes only what is missing. `gc` keeps whatever a manifest names, whichever plan it seals;
the receipts and parts from which the current plan resumes; all plans and runs; every file that
beamrank does not know; and all young files, since a launcher may be writing them.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.commit import listing
from beamrank.commit.asked import read_answer
from beamrank.commit.owner import launcherless
from beamrank.commit.plan import (
    EngineVersionError,
    Plan,
    load_plan,
    plan_names,
    read_current,
    read_plan,
)
from beamrank.commit.receipts import Manifest, Receipt
from beamrank.commit.scans import ScanReport
from beamrank.commit.stage import StageRecord, described
from beamrank.errors import PreflightError, ReceiptError
from beamrank.notes import SILENT, Progress
from beamrank.storage import files as storage
from beamrank.storage.digested import FileState
from beamrank.storage.documents import (
    Document,
    checked_values,
    digest,
    holds_content,
    sha256,
)
from beamrank.storage.streams import errors_as
from beamrank.storage.urls import refuse_credentials

AnyDocument = TypeVar("AnyDocument", bound=Document)
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

    def count(self, sizes: Collection[int]) -> None:
        """Counts files that are read."""
        self.files += len(sizes)
        self.bytes += sum(sizes)


def verify_stages(output: str, progress: Progress = SILENT) -> Verification:
    """Checks the plans of a folder and the stages that they name, not the runs."""
    refuse_credentials(output, "DIR")
    output = storage.absolute(output)
    result = Verification()
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        parts = [
            check
            for stage in _verify_top(output, result)
            for check in _verify_stage(output, stage, result)
        ]
        for done, finding in enumerate(pool.map(lambda check: check(), parts), 1):
            result.findings += filter(None, [finding])
            progress.update(done, len(parts), "parts")
    return result


def _verify_top(output: str, result: Verification) -> list[StageRecord]:
    """Checks all plans, topics and machines; returns one stage for each folder that a plan
    names.
    """
    with errors_as(PreflightError, output):
        entries = [entry for entry in listing.list_output(output) if not entry.temporary]
    if not any(entry.kind is listing.POINTER for entry in entries):
        raise PreflightError(
            f"{output} holds no beamrank run: there is no {listing.CURRENT} in it", kind="no-output"
        )
    stages: dict[str, StageRecord] = {}
    plans = [entry.name for entry in entries if entry.kind is listing.PLAN]
    for name in plans:
        try:
            stages |= {stage.name: stage for stage in load_plan(output, name).stages}
        except EngineVersionError as error:
            result.notes.append(f"not checked: {error}")
        except ValueError as error:
            result.findings.append(
                Finding(name, f"cannot be read ({error})", f"{_AGAIN}, or delete it")
            )
    current = None
    with suppress(PreflightError):
        current = read_current(output)
    if current is None or current.plan not in plans:
        result.findings.append(Finding(listing.CURRENT, "does not name an existing plan", _AGAIN))
    for entry in entries:
        result.findings += _own_content(output, entry)
        if entry.kind is listing.ANSWER and read_answer(storage.join(output, entry.path)) is None:
            again = "delete it: the next run asks again"
            result.findings.append(Finding(entry.path, "the answer is corrupted", again))
    if kept := sum(entry.kind is listing.ANSWER for entry in entries):
        result.notes.append(f"kept answers: {kept:,}; `beamrank gc` removes what parts hold")
    result.count([entry.state.size_bytes for entry in entries])
    return list(stages.values())


def _own_content(folder: str, entry: listing.Entry, place: str = "") -> Iterator[Finding]:
    """The finding about a file that is named after its content, if it has other content."""
    if entry.kind is not None and entry.kind.content is not None:
        what, remedy = entry.kind.content
        # A run that has just sealed its stage removes the needed docs.
        with suppress(FileNotFoundError):
            if not holds_content(entry.name, storage.read_bytes(storage.join(folder, entry.path))):
                yield Finding(
                    f"{place}{entry.path}", f"does not hold the {what} of its name", remedy
                )


def _verify_stage(
    output: str, stage: StageRecord, result: Verification
) -> list[Callable[[], Finding | None]]:
    """Checks a stage's receipts, manifests and small files; returns a check of each part that these
    name.
    """
    url = storage.join(output, stage.name)
    entries = {entry.path: entry for entry in listing.list_stage(url)}

    def add(path: str, problem: str, remedy: str) -> None:
        result.findings.append(Finding(storage.join(stage.name, path), problem, remedy))

    def with_seal(path: str) -> str:
        return f" and {sealed_in[path]}" if path in sealed_in else ""

    def parsed(kind: listing.Kind, document: type[AnyDocument]) -> dict[str, AnyDocument | None]:
        paths = [path for path, entry in entries.items() if entry.is_complete(kind)]
        contents = storage.read_files(url, paths)
        return {path: document.from_json(content) for path, content in contents.items()}

    receipts, manifests = parsed(listing.RECEIPT, Receipt), parsed(listing.MANIFEST, Manifest)
    reports = parsed(listing.SCAN, ScanReport)
    # A working launcher publishes parts before their receipts: parts of receipts just read may not
    # be listed.
    entries |= {
        entry.path: entry for entry in listing.list_folder(url) if entry.kind is listing.PART
    }
    named: dict[str, list[Receipt]] = defaultdict(list)
    sealed_in: dict[str, str] = {}
    for base, manifest in manifests.items():
        if manifest is None or not _seals(manifest, stage, base):
            add(
                base,
                "the manifest is corrupted",
                "delete it and run again, which seals the stage again",
            )
            continue
        for receipt in manifest.receipts:
            path = _receipt_path(receipt)
            sealed_in[path] = base
            named[receipt.part].append(receipt)
            if path not in receipts:
                add(path, f"is missing, and {base} holds it", f"delete {base} and {_REDO}")
            elif (written := receipts[path]) is not None and _claim(written) != _claim(receipt):
                add(
                    path,
                    f"is not the receipt that {base} holds",
                    f"delete it and {base} and {_REDO}",
                )
    for path, written in receipts.items():
        if written is None or _receipt_path(written) != path:
            add(path, "the receipt is corrupted", f"delete it{with_seal(path)} and {_REDO}")
        if written is not None:
            named[written.part].append(written)
    for path, report in reports.items():
        if (
            report is None
            or report.unit != entries[path].number
            or report.corpus not in ("", entries[path].digest)
        ):
            problem = "the report is corrupted, so bad rows of the corpus may not be counted"
            add(path, problem, "delete it; reading the corpus again recreates it")
    files = {
        path: entry
        for path, entry in entries.items()
        if not entry.temporary
        and (entry.kind not in (listing.PART, listing.WORKING, listing.OPEN) or path in named)
    }
    for entry in files.values():
        result.findings += _own_content(url, entry, f"{stage.name}/")
    result.count([entry.state.size_bytes for entry in files.values()])
    result.stray += len(entries) - len(files)
    for part in sorted(named.keys() - files.keys()):
        path = _receipt_path(named[part][0])
        add(part, f"is missing, and {path} names it", f"delete {path}{with_seal(path)} and {_REDO}")
    return [
        partial(_verify_part, output, stage, named[part])
        for part in sorted(named.keys() & files.keys())
    ]


def _seals(manifest: Manifest, stage: StageRecord, base: str) -> bool:
    digests = manifest.shard_digests
    return (
        manifest.stage == stage.name
        and listing.manifest_name(digests) == base
        and digest(digests) == manifest.digest
        and [receipt.shard for receipt in manifest.receipts] == list(range(len(digests)))
    )


def _verify_part(output: str, stage: StageRecord, receipts: Sequence[Receipt]) -> Finding | None:
    """The finding about a part whose bytes or rows do not match its receipts."""
    path = storage.join(stage.name, receipts[0].part)
    content = storage.read_bytes(storage.join(output, path))
    problem = None
    if {(receipt.part_bytes, receipt.part_sha256) for receipt in receipts} != {
        (len(content), sha256(content))
    }:
        problem = "does not hold the bytes that its receipt names"
    else:
        try:
            table = pq.read_table(pa.BufferReader(content))
            if {receipt.rows for receipt in receipts} != {table.num_rows}:
                problem = "does not have the number of rows in its receipt"
            elif described(table.schema) != stage.schema:
                problem = f"unexpected columns for stage {stage.name}"
        except (pa.ArrowException, OSError) as error:
            problem = f"is not readable as Parquet ({error})"
    return None if problem is None else Finding(path, problem, f"delete it and {_REDO}")


def _receipt_path(receipt: Receipt) -> str:
    return storage.join(listing.RECEIPTS, listing.RECEIPT.name(receipt.digest, receipt.shard))


def _claim(receipt: Receipt) -> tuple[object, ...]:
    """The fields in which two attempts at a shard with the same part agree; their times differ."""
    return (
        receipt.shard,
        receipt.digest,
        receipt.part,
        receipt.part_sha256,
        receipt.part_bytes,
        receipt.rows,
    )


@dataclass(frozen=True)
class Garbage:
    """A file that can be removed: its path below the output, its size, and why."""

    file: str
    size_bytes: int
    reason: str


def find_garbage(output: str, now: float, least_age_seconds: float) -> list[Garbage]:
    """Lists what can be removed, and is as old as `least_age_seconds` at the time `now`, without
    links and what is behind them; removes nothing.

    Raises:
        PreflightError: the folder holds no run, or a plan in it cannot be read.
        ReceiptError: a manifest cannot be read, so that what it names is unknown.
    """
    current = read_plan(output)
    output = storage.absolute(output)
    # A plan of any version. Only this is known: it names files, folders and digests as JSON's
    # strings.
    plans = "".join(json.dumps(_values(storage.join(output, name))) for name in plan_names(output))

    def is_old(state: FileState) -> bool:
        return (
            state.modified_seconds is not None and now - state.modified_seconds >= least_age_seconds
        )

    # Listed before receipts are read: a launcher may publish both meanwhile.
    names = sorted(name for name in storage.folder_names(output) if f'"name": "{name}"' in plans)
    folders = {"": listing.list_output(output)} | {
        name: listing.list_stage(f"{output}/{name}") for name in names
    }
    idle = {name: all(is_old(entry.state) for entry in folders[name]) for name in names}
    idle[""] = all(idle.values())
    runs = storage.join(output, listing.RUNS)
    folders[listing.RUNS] = [
        entry
        for folder in ("", *sorted(storage.folder_names(runs)))
        for entry in listing.list_folder(runs, folder, ())
    ]
    named: set[str] = set()
    for name in names:
        named |= _named(storage.join(output, name), folders[name], current, plans, idle[name])
    in_parts = _asked_by_sealed(current)
    garbage = []
    for name, entries in folders.items():
        for entry in entries:
            reason = _KILLED if entry.temporary else None
            if (
                entry.kind is not None
                and not entry.temporary
                and (idle[name] or not entry.kind.while_idle)
            ):
                reason = None if entry.name in named or _names(plans, entry) else entry.kind.unused
                if entry.kind is listing.ANSWER and entry.digest in in_parts:
                    reason = "a part of a sealed stage holds this answer"
            if reason is not None and is_old(entry.state):
                path = storage.join(name, entry.path) if name else entry.path
                garbage.append(Garbage(path, entry.state.size_bytes, reason))
    return [file for file in garbage if not storage.leads_away(output, file.file)]


def _values(plan: str) -> dict[str, Any]:
    try:
        return checked_values(storage.read_bytes(plan))
    except ValueError as error:
        raise PreflightError(
            f"the plan {plan} cannot be read ({error}), so what it names is unknown: run again, "
            "which writes the current plan again, or delete it if it is a different plan"
        ) from error


def _names(plans: str, entry: listing.Entry) -> bool:
    """Whether a plan names a file, the corpus of a report, or the stage of an answer."""
    return f'"{entry.name}"' in plans or (
        entry.kind in (listing.SCAN, listing.ANSWER) and f'"{entry.digest}' in plans
    )


def _named(
    url: str, entries: Sequence[listing.Entry], current: Plan, plans: str, is_idle: bool
) -> set[str]:
    """The names of the files that a stage's manifests, receipts and reports keep, these among them.

    The receipts of manifests and of the current plan, or all while a launcher is working here.
    """
    sealed: dict[str, Receipt] = {}
    for entry in listing.list_folder(url):
        if entry.is_complete(listing.MANIFEST):
            manifest = Manifest.from_json(storage.read_bytes(storage.join(url, entry.path)))
            if manifest is None:
                raise ReceiptError(
                    f"{storage.join(url, entry.path)} cannot be read, so what it names is "
                    "unknown: run again, which seals the stage again, or delete it if it is not "
                    "the current plan's"
                )
            sealed |= {
                listing.RECEIPT.name(one.digest, one.shard): one for one in manifest.receipts
            }
    to_resume = _to_resume(current, storage.name(url))
    resumed = None if to_resume is None or not is_idle else {*sealed, *to_resume}
    names = [entry.name for entry in entries if entry.is_complete(listing.RECEIPT)]
    receipts = sorted(name for name in names if resumed is None or name in resumed)
    kept = [*sealed.values(), *Receipt.read(storage.join(url, listing.RECEIPTS), receipts)]
    scans = [
        entry.name for entry in entries if entry.is_complete(listing.SCAN) and _names(plans, entry)
    ]
    reports = ScanReport.read(storage.join(url, listing.SCANS), scans)
    return {
        *receipts,
        *(receipt.part for receipt in kept),
        *(receipt.rejects_file for receipt in kept),
        *(report.rejects_file for report in reports),
    }


def _asked_by_sealed(current: Plan) -> set[str]:
    """Names the answers (`StageRecord.asks`) of the current plan's stages that are all sealed."""
    asking = [stage for stage in current.stages if stage.asks]
    is_open = {stage.asks for stage in asking if current.manifest(stage.name) is None}
    return {stage.asks for stage in asking} - is_open


def _to_resume(current: Plan, name: str) -> set[str] | None:
    """The names of the current plan's receipts; None while an input is unfinished, which leaves
    them unknown.
    """
    stage = next((stage for stage in current.stages if stage.name == name), None)
    if stage is None:
        return set()
    inputs = [manifest for manifest in map(current.gather, stage.inputs) if manifest is not None]
    if len(inputs) < len(stage.inputs):
        return None
    return {
        listing.RECEIPT.name(shard_digest, shard)
        for shard, shard_digest in enumerate(current.shard_digests(stage, inputs))
    }


def remove_garbage(output: str, garbage: Iterable[Garbage]) -> None:
    """Removes files, receipts before the parts that they name."""
    for file in sorted(garbage, key=lambda one: f"/{listing.RECEIPTS}/" not in one.file):
        storage.remove(storage.join(storage.absolute(output), file.file))


def collect_garbage(
    output: str, chosen: Collection[Garbage], least_age_seconds: float
) -> list[Garbage]:
    """Removes what of some garbage still is, and returns it. Ages are by the storage's clock; no
    launcher runs meanwhile, since it would use old files that it finds.

    Raises:
        TemporaryError: one runs.
    """
    with launcherless(output) as now:
        left = [] if now is None else find_garbage(output, now, least_age_seconds)
        still = [file for file in left if file in chosen]
        remove_garbage(output, still)
    return still
