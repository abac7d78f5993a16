"""The commit protocol: parts, receipts, and the manifest that seals a stage.

See docs/internals/commit-protocol.md.

A shard's part is published under its content's own name, then its receipt; once every receipt of a
plan exists, the manifest. Every publication is create-only and the first one wins, so that any
number of attempts at a shard, on any runner, leave one result. Readers trust only the manifest.
"""

import logging
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from typing import Annotated, Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, TypeAdapter

from beamrank.commit import listing
from beamrank.commit.working import LeftOpen
from beamrank.errors import ReceiptError
from beamrank.machine import Machine, describe_machine
from beamrank.storage import files as storage
from beamrank.storage.digested import FileState, file_states
from beamrank.storage.documents import (
    SHORT,
    Count,
    Document,
    Seconds,
    checked_json,
    checked_record,
    digest,
    sha256,
)
from beamrank.system import system

# How all tables are written.
PARQUET: Mapping[str, Any] = {"compression": "zstd", "write_statistics": False}
ROW_GROUP_ROWS = 1 << 16
GROUP_BYTES = 1 << 30

# The digests of all shards, in order, or of some by shard.
ShardDigests = Iterable[str] | Mapping[int, str]
_Document = TypeVar("_Document", bound=Document)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Receipt(Document):
    """One shard's commit record.

    `digest` covers what decides the part's bytes. `counts` are sums over the shard (tokens,
    inferences, ...). `bad_rows` were skipped, `examples` names the first of them, and
    `rejects_file` is the file with them below `rejects/`, if any. `machine` did the shard
    (`read_machine`).
    """

    shard: Count
    digest: str
    part: Annotated[str, Field(pattern=f"^{listing.PART.pattern}$")]
    part_sha256: str
    part_bytes: Count
    rows: Count
    bad_rows: Count
    seconds: Seconds
    counts: Mapping[str, Count] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    machine: Annotated[str, Field(pattern=rf"^([0-9a-f]{{{SHORT}}})?$")] = ""
    # When, where and by which process it was written; no digest covers these.
    committed_seconds: Seconds = 0.0
    host: str = ""
    process: Count = 0
    rejects_file: listing.RejectsFile = ""


@dataclass(frozen=True)
class Manifest(Document):
    """A sealed stage: one receipt a shard, by shard number."""

    stage: str
    digest: str
    receipts: tuple[Receipt, ...]

    @property
    def shard_digests(self) -> tuple[str, ...]:
        """The digests of the sealed shards."""
        return tuple(receipt.digest for receipt in self.receipts)

    def total(self, count: str) -> int:
        """The sum of one count over the shards."""
        return sum(receipt.counts.get(count, 0) for receipt in self.receipts)


_MACHINE = TypeAdapter(Machine)


def record_machine(output: str) -> str:
    """Describes this machine in an output, under the digest of its description; returns that for
    receipts.
    """
    content = checked_json(asdict(describe_machine()))
    name = sha256(content)[:SHORT]
    url = storage.join(output, listing.MACHINES, listing.MACHINE.name(name))
    # At a store, a request of a process and not of each of its shards. A local output may be
    # deleted and made again.
    (_publish_in_process if storage.is_remote(url) else storage.publish_content)(url, content)
    return name


_publish_in_process = cache(storage.publish_content)


def read_machine(output: str, name: str) -> Machine | None:
    """The machine that a receipt names; None if its description is missing or damaged."""
    url = storage.join(output, listing.MACHINES, listing.MACHINE.name(name))
    try:
        return checked_record(_MACHINE, storage.read_bytes(url))
    except FileNotFoundError:
        return None


def arithmetic_digest(machine: Machine, backend: str) -> str:
    """Names what computes on a machine: where it is the same, a CPU gives an input the same
    score.
    """
    return digest(machine.arithmetic(backend))[:SHORT]


def part_bytes(table: Any) -> bytes:
    """A table as Parquet; the same table gives the same bytes."""
    sink = pa.BufferOutputStream()
    rows = ROW_GROUP_ROWS
    if table.nbytes > GROUP_BYTES:
        rows = max(1, min(rows, table.num_rows * GROUP_BYTES // table.nbytes))
    pq.write_table(table, sink, row_group_size=rows, **PARQUET)
    return bytes(sink.getvalue())


def table_chunks(schema: Any, tables: Iterable[Any]) -> Iterator[bytes]:
    """The file of `part_bytes` with a row group for each of some tables, through the disk."""
    with tempfile.TemporaryFile() as file:
        with pq.ParquetWriter(file, schema, **PARQUET) as writer:
            for table in tables:
                writer.write_table(table)
        file.seek(0)
        yield from iter(lambda: file.read(1 << 20), b"")


def why_broken(receipt: Receipt | None, shard_digest: str, sizes: Mapping[str, int]) -> str | None:
    """Why a receipt (None if it could not be read) does not count, given the files in its stage's
    folder; else None.
    """
    if receipt is None:
        return "it is truncated or damaged"
    if receipt.digest != shard_digest:
        return "its digest differs from the one in its name"
    if receipt.part not in sizes:
        return f"its part {receipt.part} is missing"
    if sizes[receipt.part] != receipt.part_bytes:
        return (
            f"its part {receipt.part} has {sizes[receipt.part]:,} bytes, not {receipt.part_bytes:,}"
        )
    return None


def _by_shard(shard_digests: ShardDigests) -> Mapping[int, str]:
    return shard_digests if isinstance(shard_digests, Mapping) else dict(enumerate(shard_digests))


def publish_once(url: str, document: _Document, read: Callable[[], _Document | None]) -> _Document:
    """Publishes a document, and returns the valid one: another process's if that was first."""
    if not storage.publish(url, document.to_json()):
        first = read()
        if first is not None:
            return first
        storage.replace(url, document.to_json())
    return document


@dataclass(frozen=True)
class StageFolder:
    """A stage's folder: commits its shards, and reads the committed parts."""

    url: str

    @property
    def _receipts_url(self) -> str:
        return storage.join(self.url, listing.RECEIPTS)

    def part_url(self, receipt: Receipt) -> str:
        """The URL of a receipt's part."""
        return storage.join(self.url, receipt.part)

    def _receipt_url(self, shard: int, shard_digest: str) -> str:
        return storage.join(self._receipts_url, listing.RECEIPT.name(shard_digest, shard))

    def read_part(self, receipt: Receipt, columns: Collection[str] | None = None) -> Any:
        """A shard's table, or some of its columns; raises ReceiptError as
        `part_content`, and where it is not Parquet.
        """
        content = self.part_content(receipt)
        try:
            file = pq.ParquetFile(pa.BufferReader(content))
            names = file.schema_arrow.names
            chosen = names if columns is None else [name for name in names if name in columns]
            return file.read(chosen)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ReceiptError(
                f"{self.part_url(receipt)} cannot be read: {error}. Delete it and run again"
            ) from error

    def part_content(self, receipt: Receipt) -> bytes:
        """A shard's part; raises ReceiptError where it is missing, or does not hold what its
        receipt says.
        """
        url = self.part_url(receipt)
        try:
            content = storage.read_bytes(url)
        except FileNotFoundError as error:
            raise ReceiptError(
                f"{url} is missing; run again, which recreates it", kind="no-file", file=url
            ) from error
        if sha256(content) != receipt.part_sha256:
            raise ReceiptError(
                f"{url} does not hold the bytes that its receipt names: it was changed after it "
                "was written. Delete it and run again, which recreates it",
                kind="changed",
                file=url,
            )
        return content

    def commit(
        self,
        shard: int,
        shard_digest: str,
        table: Any,
        *,
        seconds: float,
        counts: Mapping[str, int],
        bad_rows: int = 0,
        examples: Iterable[str] = (),
        rejects_file: str = "",
    ) -> Receipt:
        """Publishes a shard's part, then its receipt; returns the valid one: another attempt's if
        that was first.
        """
        content = part_bytes(table)
        content_digest = sha256(content)
        receipt = Receipt(
            shard=shard,
            digest=shard_digest,
            part=listing.PART.name(content_digest, shard),
            part_sha256=content_digest,
            part_bytes=len(content),
            rows=table.num_rows,
            bad_rows=bad_rows,
            seconds=round(seconds, 3),
            counts=dict(counts),
            examples=tuple(examples)[:5],
            machine=record_machine(storage.parent(self.url)),
            committed_seconds=round(system.time(), 3),
            host=system.gethostname(),
            process=system.getpid(),
            rejects_file=rejects_file,
        )
        storage.publish_content(self.part_url(receipt), content)
        url = self._receipt_url(shard, shard_digest)
        return publish_once(url, receipt, partial(self.receipt, shard, shard_digest))

    def receipts(self, shard_digests: ShardDigests) -> dict[int, Receipt]:
        """The valid receipts: they parse, their digest is the shard's, and their part exists with
        its size.
        """
        return self._read(shard_digests)[0]

    def leave_open(self, shard: int, shard_digest: str, reason: str) -> None:
        """Records why an attempt left a shard open."""
        url = storage.join(self._receipts_url, listing.OPEN.name(shard_digest, shard))
        storage.replace(url, LeftOpen(shard, reason, system.time()).to_json())

    def left_open(self, shard_digests: ShardDigests) -> list[LeftOpen]:
        """The shards that were left open and have no receipt, in their order."""
        present = storage.sizes_bytes(self._receipts_url)
        names = [
            listing.OPEN.name(shard_digest, shard)
            for shard, shard_digest in _by_shard(shard_digests).items()
            if listing.RECEIPT.name(shard_digest, shard) not in present
        ]
        return LeftOpen.read(self._receipts_url, list(filter(present.__contains__, names)))

    def valid_receipts(self, shard_digests: ShardDigests) -> dict[int, Receipt]:
        """Removes invalid receipts, so that shards are redone and counts of names are right;
        returns the others.
        """
        receipts, broken = self._read(shard_digests)
        for url, reason in broken.items():
            _log.warning("%s is discarded, and its shard is done again: %s", url, reason)
            storage.remove(url)
        return receipts

    def _read(self, shard_digests: ShardDigests) -> tuple[dict[int, Receipt], dict[str, str]]:
        """The valid receipts, and the URLs of the others with what is wrong with them."""
        present = storage.sizes_bytes(self._receipts_url)
        of_shards = _by_shard(shard_digests)
        names = {
            listing.RECEIPT.name(shard_digest, shard): shard
            for shard, shard_digest in of_shards.items()
        }
        listed = list(filter(present.__contains__, names))
        contents = storage.read_files(self._receipts_url, listed)
        # Listed last: parts are published before their receipts, so the part of each of these
        # receipts is listed.
        sizes = storage.sizes_bytes(self.url)
        receipts, broken = {}, {}
        for name, content in contents.items():
            receipt, shard = Receipt.from_json(content), names[name]
            reason = why_broken(receipt, of_shards[shard], sizes)
            if receipt is not None and reason is None:
                receipts[shard] = receipt
            else:
                broken[storage.join(self._receipts_url, name)] = str(reason)
        return receipts, broken

    def receipt(self, shard: int, shard_digest: str) -> Receipt | None:
        """One shard's receipt, if it is valid."""
        try:
            receipt = Receipt.from_json(storage.read_bytes(self._receipt_url(shard, shard_digest)))
            sizes = (
                {}
                if receipt is None
                else {receipt.part: storage.size_bytes(self.part_url(receipt))}
            )
        except FileNotFoundError:
            return None
        return receipt if why_broken(receipt, shard_digest, sizes) is None else None

    def done(self, shard_digests: Iterable[str]) -> set[int]:
        """The shards that have a receipt, by name only."""
        return self.progress(shard_digests)[0]

    def progress(self, shard_digests: Iterable[str]) -> tuple[set[int], dict[str, FileState]]:
        """`done`, and the files of receipts and of shards at work: cheap enough to call twice a
        second.
        """
        present = file_states(self._receipts_url)
        done = {
            shard
            for shard, shard_digest in enumerate(shard_digests)
            if listing.RECEIPT.name(shard_digest, shard) in present
        }
        return done, present

    def manifest(self, shard_digests: tuple[str, ...]) -> Manifest | None:
        """The manifest over exactly these shards, if it and every part that it names exist."""
        manifest = self._sealed(shard_digests)
        if manifest is None:
            return None
        sizes = storage.sizes_bytes(self.url)
        parts = {receipt.part: receipt.part_bytes for receipt in manifest.receipts}
        return manifest if parts.items() <= sizes.items() else None

    def _sealed(self, shard_digests: tuple[str, ...]) -> Manifest | None:
        """The manifest over exactly these shards, whether its parts exist or not."""
        try:
            manifest = Manifest.from_json(storage.read_bytes(self._manifest_url(shard_digests)))
        except FileNotFoundError:
            return None
        is_same = manifest is not None and manifest.shard_digests == shard_digests
        return manifest if is_same else None

    def _manifest_url(self, shard_digests: tuple[str, ...]) -> str:
        return storage.join(self.url, listing.manifest_name(shard_digests))

    def gather(self, stage: str, shard_digests: tuple[str, ...]) -> Manifest | None:
        """The manifest, as it is or as it would be sealed now; None while shards are missing.
        Writes nothing.
        """
        return self.manifest(shard_digests) or self._of_receipts(stage, shard_digests)

    def stated(self, stage: str, shard_digests: tuple[str, ...]) -> Manifest | None:
        """Like `gather`, also if parts that the manifest names are missing."""
        return self._sealed(shard_digests) or self._of_receipts(stage, shard_digests)

    def _of_receipts(self, stage: str, shard_digests: tuple[str, ...]) -> Manifest | None:
        """The manifest of a finished stage. Receipts are read only if none is missing by name."""
        if len(self.done(shard_digests)) < len(shard_digests):
            return None
        receipts = self.receipts(shard_digests)
        if len(receipts) < len(shard_digests):
            return None
        return Manifest(
            stage, digest(shard_digests), tuple(receipts[shard] for shard in range(len(receipts)))
        )

    def seal(self, stage: str, shard_digests: tuple[str, ...]) -> Manifest | None:
        """Publishes the manifest if every shard has its receipt, and returns it; None while shards
        are missing.

        Sealing twice changes nothing.
        """
        manifest = self.manifest(shard_digests)
        if manifest is not None:
            return manifest
        manifest = self._of_receipts(stage, shard_digests)
        if manifest is not None:
            url = self._manifest_url(shard_digests)
            manifest = publish_once(url, manifest, partial(self.manifest, shard_digests))
        return manifest

    def sweep(self, shard_digests: tuple[str, ...]) -> None:
        """Removes the needed docs and the tasks of a sealed stage, and leftovers of killed
        attempts.
        """
        if storage.is_link(self.url):
            return
        of_jobs = f"-{digest(shard_digests)[:SHORT]}-"
        for entry in listing.list_folder(self.url):
            if (
                entry.kind in (listing.NEEDED, listing.TASKS)
                and of_jobs in entry.name
                and not entry.temporary
            ):
                storage.remove(storage.join(self.url, entry.path))
        self.remove_leftovers()

    def remove_leftovers(self) -> None:
        """Removes the temporary files of killed processes."""
        output, name = storage.parent(self.url), storage.name(self.url)
        for path in (name, f"{name}/{listing.RECEIPTS}", f"{name}/{listing.SCANS}"):
            storage.remove_leftovers(output, path)
