"""Reads everything under an output folder again, against the names, receipts, seals and digests that vouch for it.

What is damaged can be deleted: a run redoes what is not there, and nothing else.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.digests import SHORT, digest, sha256
from beamrank.errors import PreflightError
from beamrank.progress import SILENT, Progress
from beamrank.stages.plan import (
    CURRENT,
    EngineVersionError,
    StageSpec,
    load_plan,
    plan_names,
    read_current,
    topics_name,
)
from beamrank.stages.receipts import (
    MANIFEST_PREFIX,
    NEEDED_PREFIX,
    PART_PREFIX,
    RECEIPTS,
    TEMPORARY_SUFFIX,
    Manifest,
    Receipt,
    is_receipt_name,
    manifest_name,
    receipt_name,
)
from beamrank.stages.scan_reports import SCANS, ScanReport, is_scan_name
from beamrank.storage import files as storage
from beamrank.storage.url_credentials import refuse_credentials
from beamrank.tables import schemas

T = TypeVar("T")


_FILES_AT_ONCE = 8
_SCHEMAS = {
    "retrieve": (schemas.CANDIDATES,),
    "mono": (schemas.MONO,),
    "duo": (schemas.DUO,),
    "tokenize": tuple(schemas.tokenized(vocab_size) for vocab_size in (1 << 16, 1 << 32)),
}
_REDO = "run again, which redoes only this shard"


@dataclass(frozen=True)
class Finding:
    """Something that does not hold: which file below the output, what is wrong with it and what to do."""

    file: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.file}: {self.problem}: {self.remedy}"


@dataclass
class Verification:
    """What was read, and what of it does not hold. `stray` are files that nothing names: `gc` removes them."""

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
            found.bytes += sum(check.files.values())
            found.stray += check.stray
    return found


def _verify_plans(output: str, found: Verification) -> list[StageSpec]:
    """Checks all plans and topics; returns one stage for each folder that a plan names."""
    sizes = storage.sizes_bytes(output)
    if CURRENT not in sizes:
        raise PreflightError(f"{output} holds no beamrank run: there is no {CURRENT} in it")
    again = "run again, which writes it anew"
    for name in sizes:
        content = storage.read_bytes(storage.join(output, name)) if name.startswith("topics-") else None
        if content is not None and name != topics_name(content):
            found.findings.append(Finding(name, "does not hold the topics that its name says", again))
    stages: dict[str, StageSpec] = {}
    names = plan_names(output)
    for name in names:
        try:
            stages |= {stage.name: stage for stage in load_plan(output, name).stages}
        except EngineVersionError as error:
            found.notes.append(f"not checked: {error}")
        except ValueError as error:
            found.findings.append(Finding(name, f"cannot be read ({error})", f"{again}, or delete it"))
    if not _names_a_plan(output, names):
        found.findings.append(Finding(CURRENT, "names no plan that is there", again))
    counted = [name for name in sizes if name in (CURRENT, *names) or name.startswith("topics-")]
    found.files += len(counted)
    found.bytes += sum(sizes[name] for name in counted)
    return list(stages.values())


def _names_a_plan(output: str, names: Sequence[str]) -> bool:
    try:
        current = read_current(output)
    except PreflightError:
        return False
    return current is not None and current.plan in names


@dataclass(frozen=True)
class _StageCheck:
    """One stage's folder: `files` by their paths below it, and every part that a receipt or a seal names."""

    url: str
    name: str
    kind: str
    files: Mapping[str, int]
    receipts: Mapping[str, Receipt | None]
    manifests: Mapping[str, Manifest | None]
    named: Mapping[str, Sequence[Receipt]]
    stray: int

    @classmethod
    def read(cls, output: str, stage: StageSpec, each: Callable[..., Iterator[Any]]) -> "_StageCheck":
        """Lists the folder and reads its receipts and seals, several at once."""
        url = storage.join(output, stage.name)
        files = {
            storage.join(folder, name) if folder else name: size
            for folder in ("", RECEIPTS, SCANS)
            for name, size in storage.sizes_bytes(storage.join(url, folder)).items()
            if _is_ours(folder, name)
        }
        whole = {name: size for name, size in files.items() if not name.endswith(TEMPORARY_SUFFIX)}
        receipts = _parsed(url, [name for name in whole if name.startswith(RECEIPTS)], Receipt.from_json, each)
        manifests = _parsed(url, [name for name in whole if name.startswith(MANIFEST_PREFIX)], Manifest.from_json, each)
        # A run at work publishes parts before their receipts: those of receipts just read may be newer than the list.
        late = {name: size for name, size in storage.sizes_bytes(url).items() if name.startswith(PART_PREFIX)}
        files, whole = files | late, whole | late
        named: dict[str, list[Receipt]] = defaultdict(list)
        for receipt in [*receipts.values(), *(one for seal in manifests.values() if seal for one in seal.receipts)]:
            if receipt is not None:
                named[receipt.part].append(receipt)
        unnamed = [name for name in whole if name.startswith(PART_PREFIX) and name not in named]
        stray = len(files) - len(whole) + len(unnamed)
        read = {name: size for name, size in whole.items() if name not in unnamed}
        return cls(url, stage.name, stage.kind, read, receipts, manifests, named, stray)

    def _finding(self, name: str, problem: str, remedy: str) -> Finding:
        return Finding(storage.join(self.name, name), problem, remedy)

    def seals(self) -> Iterator[Finding]:
        """What is wrong with receipts and manifests."""
        sealed_in: dict[str, str] = {}
        for base, manifest in self.manifests.items():
            if manifest is None or not self._seals(manifest, base):
                yield self._finding(
                    base, "is not the seal that was written", "delete it and run again, which seals the stage anew"
                )
                continue
            for receipt in manifest.receipts:
                name = storage.join(RECEIPTS, receipt_name(receipt.shard, receipt.digest))
                sealed_in[name] = base
                if name not in self.receipts:
                    yield self._finding(name, f"is gone, and {base} holds it", f"delete {base} and {_REDO}")
                elif (there := self.receipts[name]) is not None and _claim(there) != _claim(receipt):
                    yield self._finding(
                        name, f"is not the receipt that {base} holds", f"delete it and {base} and {_REDO}"
                    )
        for name, found in self.receipts.items():
            if found is None or storage.join(RECEIPTS, receipt_name(found.shard, found.digest)) != name:
                with_seal = f" and {sealed_in[name]}" if name in sealed_in else ""
                yield self._finding(name, "is not the receipt that was written", f"delete it{with_seal} and {_REDO}")

    def _seals(self, manifest: Manifest, base: str) -> bool:
        digests = manifest.shard_digests
        return (
            manifest.stage == self.name
            and manifest_name(digests) == base
            and digest(digests) == manifest.digest
            and [receipt.shard for receipt in manifest.receipts] == list(range(len(digests)))
        )

    def small_files(self) -> Iterator[Finding]:
        """What is wrong with the needed docs and the scans' reports."""
        for name in self.files:
            if name.startswith(NEEDED_PREFIX):
                content = _needed_docs(storage.join(self.url, name))
                if content is not None and not name.endswith(f"-{sha256(content)[:SHORT]}.bin"):
                    yield self._finding(name, "does not hold the docs that its name says", "delete it and run again")
            elif name.startswith(SCANS):
                report = ScanReport.from_json(storage.read_bytes(storage.join(self.url, name)))
                if report is None or not name.startswith(f"{SCANS}/unit-{report.unit:05d}-"):
                    yield self._finding(
                        name,
                        "is not the report that was written, so bad rows of the corpus may not be counted",
                        "delete it; it comes back when the corpus is read again",
                    )

    def part(self, part: str) -> list[Finding]:
        """What is wrong with a part: it is gone, its bytes or its rows are not those of its receipts."""
        receipts = self.named[part]
        if part not in self.files:
            name = receipt_name(receipts[0].shard, receipts[0].digest)
            return [self._finding(part, f"is gone, and {storage.join(RECEIPTS, name)} names it", _REDO)]
        content = storage.read_bytes(storage.join(self.url, part))
        claims = {(receipt.part_bytes, receipt.part_sha256) for receipt in receipts}
        if claims != {(len(content), sha256(content))}:
            return [self._finding(part, "does not hold the bytes that its receipt names", f"delete it and {_REDO}")]
        try:
            table = pq.read_table(pa.BufferReader(content))
        except (pa.ArrowException, OSError) as error:
            return [self._finding(part, f"is no Parquet that can be read ({error})", f"delete it and {_REDO}")]
        if {receipt.rows for receipt in receipts} != {table.num_rows}:
            return [self._finding(part, "has not as many rows as its receipt says", f"delete it and {_REDO}")]
        if table.schema.remove_metadata() not in _SCHEMAS[self.kind]:
            return [self._finding(part, f"has not the columns of {self.kind}", f"delete it and {_REDO}")]
        return []


def _is_ours(folder: str, name: str) -> bool:
    """Whether beamrank names files so, in a stage's folder or below it: what users put there is their own."""
    known = {RECEIPTS: is_receipt_name, SCANS: is_scan_name}.get(folder)
    return known is None or name.endswith(TEMPORARY_SUFFIX) or known(name)


def _needed_docs(url: str) -> bytes | None:
    """None where the run that needed them has just sealed its stage."""
    try:
        return storage.read_bytes(url)
    except FileNotFoundError:
        return None


def _claim(receipt: Receipt) -> tuple[object, ...]:
    """What two attempts at a shard that leave the same part agree about; not how long they took."""
    return receipt.shard, receipt.digest, receipt.part, receipt.part_sha256, receipt.part_bytes, receipt.rows


def _parsed(
    url: str, names: list[str], parse: Callable[[bytes], T | None], each: Callable[..., Iterator[Any]]
) -> dict[str, T | None]:
    contents = each(storage.read_bytes, [storage.join(url, name) for name in names])
    return {name: parse(content) for name, content in zip(names, contents, strict=True)}
