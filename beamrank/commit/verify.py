"""Reads every file of an output folder, and checks it against names, receipts, manifests and digests.

Damaged files can be deleted: the next run redoes only what is missing.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.commit.listing import (
    RECEIPTS,
    Entry,
    Kind,
    list_folder,
    list_stage,
    manifest_name,
    receipt_name,
)
from beamrank.commit.machines import FOLDER as MACHINES
from beamrank.commit.machines import machine_name
from beamrank.commit.plan import CURRENT, EngineVersionError, load_plan, plan_names, read_current
from beamrank.commit.receipts import Manifest, Receipt
from beamrank.commit.scan_reports import ScanReport
from beamrank.commit.shards import has_own_name, lists_shards
from beamrank.commit.stage_record import StageRecord, described
from beamrank.errors import PreflightError
from beamrank.progress import SILENT, Progress
from beamrank.storage import files as storage
from beamrank.storage.documents import SHORT, digest, sha256
from beamrank.storage.local_files import TEMPORARY_SUFFIX
from beamrank.storage.streams import errors_as
from beamrank.storage.urls import refuse_credentials

T = TypeVar("T")

_FILES_AT_ONCE = 8
_REDO = "run again, which redoes only this shard"
_DOC_HASHES = {
    Kind.NEEDED: "delete it and run again",
    Kind.UNIT_DOCS: "delete it; later runs read the corpus in place of taking tokens over from this one",
}


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


def verify_stages(output: str, progress: Progress = SILENT) -> Verification:
    """Checks the plans of a folder and the stages that they name, not the runs.

    Args:
        output: the folder of a run.
        progress: receives how many parts have been read.

    Raises:
        PreflightError: the folder holds no run.
    """
    refuse_credentials(output, "DIR")
    output = storage.absolute(output)
    found = Verification()
    stages = _verify_plans(output, found)
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        checks = [_StageCheck.read(output, stage, pool.map) for stage in stages]
        total, done = sum(len(check.named) for check in checks), 0
        for check in checks:
            found.findings += check.seals()
            found.findings += check.small_files()
            for findings in pool.map(check.part, sorted(check.named)):
                found.findings += findings
                done += 1
                progress.update(done, total, "parts")
            found.files += len(check.files)
            found.bytes += sum(entry.state.size_bytes for entry in check.files.values())
            found.stray += check.stray
    return found


def _verify_plans(output: str, found: Verification) -> list[StageRecord]:
    """Checks all plans and topics; returns one stage for each folder that a plan names."""
    with errors_as(PreflightError, output):
        sizes = storage.sizes_bytes(output)
    if CURRENT not in sizes:
        raise PreflightError(f"{output} holds no beamrank run: there is no {CURRENT} in it")
    again = "run again, which writes it again"
    for name in sizes:
        if lists_shards(name) and not has_own_name(name, storage.read_bytes(storage.join(output, name))):
            kind = name.partition("-")[0]
            found.findings.append(Finding(name, f"does not hold the {kind} of its name", again))
    stages: dict[str, StageRecord] = {}
    names = plan_names(output)
    for name in names:
        try:
            stages |= {stage.name: stage for stage in load_plan(output, name).stages}
        except EngineVersionError as error:
            found.notes.append(f"not checked: {error}")
        except ValueError as error:
            found.findings.append(Finding(name, f"cannot be read ({error})", f"{again}, or delete it"))
    if not _names_a_plan(output, names):
        found.findings.append(Finding(CURRENT, "does not name an existing plan", again))
    counted = [name for name in sizes if name in (CURRENT, *names) or lists_shards(name)]
    found.files += len(counted)
    found.bytes += sum(sizes[name] for name in counted)
    _verify_machines(output, found)
    return list(stages.values())


def _verify_machines(output: str, found: Verification) -> None:
    """Checks the descriptions of machines, which are named by their content."""
    folder = storage.join(output, MACHINES)
    for name in sorted(name for name in storage.sizes_bytes(folder) if not name.endswith(TEMPORARY_SUFFIX)):
        content = storage.read_bytes(storage.join(folder, name))
        found.files += 1
        found.bytes += len(content)
        if name != machine_name(content):
            remedy = "delete it; a shard that is done again on that machine describes it again"
            found.findings.append(Finding(f"{MACHINES}/{name}", "does not describe the machine of its name", remedy))


def _names_a_plan(output: str, names: Sequence[str]) -> bool:
    try:
        current = read_current(output)
    except PreflightError:
        return False
    return current is not None and current.plan in names


@dataclass(frozen=True)
class _StageCheck:
    """One stage's folder.

    Attributes:
        url: the folder.
        name: the stage's name.
        rows: the kind of row of its parts.
        files: beamrank's whole files by their paths below the folder, without parts that nothing names.
        receipts: by path; None if the file is not a receipt.
        manifests: by path; None if the file is not a manifest.
        named: every part that a receipt or a manifest names, with those receipts.
        stray: how many files are unfinished, or parts that nothing names.
    """

    url: str
    name: str
    schema: tuple[tuple[str, str], ...]
    files: Mapping[str, Entry]
    receipts: Mapping[str, Receipt | None]
    manifests: Mapping[str, Manifest | None]
    named: Mapping[str, Sequence[Receipt]]
    stray: int

    @classmethod
    def read(cls, output: str, stage: StageRecord, each: Callable[..., Iterator[Any]]) -> "_StageCheck":
        """Lists the folder and reads its receipts and manifests, several at once."""
        url = storage.join(output, stage.name)
        entries = {entry.path: entry for entry in list_stage(url) if entry.ours}
        receipts = _parsed(url, entries, Kind.RECEIPT, Receipt.from_json, each)
        manifests = _parsed(url, entries, Kind.MANIFEST, Manifest.from_json, each)
        # A run that is working publishes parts before their receipts: those of receipts just read may not be listed.
        entries |= {entry.path: entry for entry in list_folder(url) if entry.kind is Kind.PART}
        named: dict[str, list[Receipt]] = defaultdict(list)
        for receipt in [*receipts.values(), *(one for seal in manifests.values() if seal for one in seal.receipts)]:
            if receipt is not None:
                named[receipt.part].append(receipt)
        files = {
            path: entry
            for path, entry in entries.items()
            if not entry.temporary and (entry.kind is not Kind.PART or path in named)
        }
        return cls(url, stage.name, stage.schema, files, receipts, manifests, named, len(entries) - len(files))

    def _finding(self, path: str, problem: str, remedy: str) -> Finding:
        return Finding(storage.join(self.name, path), problem, remedy)

    def _content(self, path: str) -> bytes:
        return storage.read_bytes(storage.join(self.url, path))

    def seals(self) -> Iterator[Finding]:
        """The findings about receipts and manifests."""
        sealed_in: dict[str, str] = {}
        for base, manifest in self.manifests.items():
            if manifest is None or not self._seals(manifest, base):
                yield self._finding(
                    base, "the manifest is corrupted", "delete it and run again, which seals the stage again"
                )
                continue
            for receipt in manifest.receipts:
                path = _receipt_path(receipt)
                sealed_in[path] = base
                if path not in self.receipts:
                    yield self._finding(path, f"is missing, and {base} holds it", f"delete {base} and {_REDO}")
                elif (written := self.receipts[path]) is not None and _claim(written) != _claim(receipt):
                    yield self._finding(
                        path, f"is not the receipt that {base} holds", f"delete it and {base} and {_REDO}"
                    )
        for path, found in self.receipts.items():
            if found is None or _receipt_path(found) != path:
                with_seal = f" and {sealed_in[path]}" if path in sealed_in else ""
                yield self._finding(path, "the receipt is corrupted", f"delete it{with_seal} and {_REDO}")

    def _seals(self, manifest: Manifest, base: str) -> bool:
        digests = manifest.shard_digests
        return (
            manifest.stage == self.name
            and manifest_name(digests) == base
            and digest(digests) == manifest.digest
            and [receipt.shard for receipt in manifest.receipts] == list(range(len(digests)))
        )

    def small_files(self) -> Iterator[Finding]:
        """The findings about the needed docs, those of corpus units, and the reports of scans."""
        for path, entry in self.files.items():
            if entry.kind in _DOC_HASHES:
                # A run that has just sealed its stage removes the needed docs.
                with suppress(FileNotFoundError):
                    if sha256(self._content(path))[:SHORT] != entry.digest:
                        yield self._finding(path, "does not hold the docs of its name", _DOC_HASHES[entry.kind])
            elif entry.kind is Kind.SCAN:
                report = ScanReport.from_json(self._content(path))
                if report is None or report.unit != entry.number:
                    yield self._finding(
                        path,
                        "the report is corrupted, so bad rows of the corpus may not be counted",
                        "delete it; reading the corpus again recreates it",
                    )

    def part(self, part: str) -> list[Finding]:
        """The findings about a part: it is missing, or its bytes or rows do not match its receipts."""
        receipts = self.named[part]
        if part not in self.files:
            return [self._finding(part, f"is missing, and {_receipt_path(receipts[0])} names it", _REDO)]
        content = self._content(part)
        problem = self._part_problem(content, receipts)
        return [] if problem is None else [self._finding(part, problem, f"delete it and {_REDO}")]

    def _part_problem(self, content: bytes, receipts: Sequence[Receipt]) -> str | None:
        if {(receipt.part_bytes, receipt.part_sha256) for receipt in receipts} != {(len(content), sha256(content))}:
            return "does not hold the bytes that its receipt names"
        try:
            table = pq.read_table(pa.BufferReader(content))
        except (pa.ArrowException, OSError) as error:
            return f"is not readable as Parquet ({error})"
        if {receipt.rows for receipt in receipts} != {table.num_rows}:
            return "does not have the number of rows in its receipt"
        if described(table.schema) != self.schema:
            return f"unexpected columns for stage {self.name}"
        return None


def _receipt_path(receipt: Receipt) -> str:
    return storage.join(RECEIPTS, receipt_name(receipt.shard, receipt.digest))


def _claim(receipt: Receipt) -> tuple[object, ...]:
    """The fields in which two attempts at a shard with the same part agree; their times differ."""
    return receipt.shard, receipt.digest, receipt.part, receipt.part_sha256, receipt.part_bytes, receipt.rows


def _parsed(
    url: str,
    entries: Mapping[str, Entry],
    kind: Kind,
    parse: Callable[[bytes], T | None],
    each: Callable[..., Iterator[Any]],
) -> dict[str, T | None]:
    paths = [path for path, entry in entries.items() if entry.kind is kind and not entry.temporary]
    contents = each(storage.read_bytes, [storage.join(url, path) for path in paths])
    return {path: parse(content) for path, content in zip(paths, contents, strict=True)}
