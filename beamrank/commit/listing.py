"""The files in a stage's folder: how they are named, and what a listing of the folder holds."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from beamrank.storage import files as storage
from beamrank.storage.digested import FileState, file_states
from beamrank.storage.documents import SHORT, digest
from beamrank.storage.local_files import TEMPORARY_SUFFIX

RECEIPTS = "receipts"
SCANS = "scans"


class Kind(Enum):
    """The kind of a file in a stage's folder."""

    PART = auto()
    RECEIPT = auto()
    MANIFEST = auto()
    NEEDED = auto()
    SCAN = auto()
    UNIT_DOCS = auto()
    UNKNOWN = auto()


_FOLDERS = {Kind.RECEIPT: RECEIPTS, Kind.SCAN: SCANS, Kind.UNIT_DOCS: SCANS}
_SHORT = rf"[0-9a-f]{{{SHORT}}}"
_NAMES = {
    Kind.PART: rf"part-(?P<number>\d{{5,}})-(?P<digest>{_SHORT})\.parquet",
    Kind.RECEIPT: rf"(?P<number>\d{{5,}})-(?P<digest>{_SHORT})\.json",
    Kind.MANIFEST: rf"manifest-(?P<digest>{_SHORT})\.json",
    Kind.NEEDED: rf"needed-{_SHORT}-(?P<digest>{_SHORT})\.bin",
    Kind.SCAN: rf"unit-(?P<number>\d{{5,}})-(?P<digest>{_SHORT})\.json",
    Kind.UNIT_DOCS: rf"docs-(?P<digest>{_SHORT})\.bin",
}


@dataclass(frozen=True)
class Entry:
    """A file in a stage's folder.

    Attributes:
        path: below the stage's folder.
        kind: of the file, or of the file that an unfinished one was to become.
        temporary: whether it is unfinished: being written, or left by a killed process.
        number: the shard or corpus unit in its name; -1 where there is none.
        digest: the short digest in its name.
        state: its size and time.
    """

    path: str
    kind: Kind
    temporary: bool
    number: int
    digest: str
    state: FileState

    @property
    def name(self) -> str:
        """The file's own name."""
        return storage.name(self.path)

    @property
    def ours(self) -> bool:
        """Whether beamrank names files like this; all others belong to the user."""
        return self.temporary or self.kind is not Kind.UNKNOWN


def list_stage(url: str) -> list[Entry]:
    """The files in a stage's folder and in the folders below it."""
    return [entry for folder in ("", RECEIPTS, SCANS) for entry in list_folder(url, folder)]


def list_folder(url: str, folder: str = "") -> list[Entry]:
    """The files in a stage's folder, or in `receipts` or `scans` below it."""
    states = file_states(storage.join(url, folder) if folder else url)
    return [_entry(folder, name, state) for name, state in sorted(states.items())]


def _entry(folder: str, name: str, state: FileState) -> Entry:
    temporary = name.endswith(TEMPORARY_SUFFIX)
    final = name.removeprefix(".").removesuffix(TEMPORARY_SUFFIX).rpartition(".")[0] if temporary else name
    path = storage.join(folder, name) if folder else name
    for kind, pattern in _NAMES.items():
        found = re.fullmatch(pattern, final) if folder == _FOLDERS.get(kind, "") else None
        if found:
            groups = found.groupdict()
            return Entry(path, kind, temporary, int(groups.get("number", -1)), groups["digest"], state)
    return Entry(path, Kind.UNKNOWN, temporary, -1, "", state)


def part_name(shard: int, content_digest: str) -> str:
    """The name of a part, by its shard and content."""
    return f"part-{shard:05d}-{content_digest[:SHORT]}.parquet"


def receipt_name(shard: int, shard_digest: str) -> str:
    """The name of a shard's receipt below `receipts/`."""
    return f"{shard:05d}-{shard_digest[:SHORT]}.json"


def manifest_name(shard_digests: Sequence[str]) -> str:
    """The name of the manifest that seals these shards."""
    return f"manifest-{digest(shard_digests)[:SHORT]}.json"


def needed_prefix(shard_digests: Sequence[str]) -> str:
    """The beginning of the name of a stage's needed docs: other plans need other docs, and theirs stay untouched."""
    return f"needed-{digest(shard_digests)[:SHORT]}-"


def scan_name(unit: int, corpus_digest: str) -> str:
    """The name of a unit's report below `scans/`."""
    return f"unit-{unit:05d}-{corpus_digest[:SHORT]}.json"
