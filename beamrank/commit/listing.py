"""The files of an output: one table of their kinds, by which folders are listed, verified and cleared of garbage."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import Field

from beamrank.formats.rejects import REJECTS
from beamrank.storage import files as storage
from beamrank.storage.digested import FileState, file_states
from beamrank.storage.documents import SHORT, digest, sha256
from beamrank.storage.local_files import TEMPORARY_SUFFIX

RECEIPTS, SCANS, MACHINES, RUNS = "receipts", "scans", "machines", "runs"
CURRENT = "current-plan.json"
PREDICTED = "prediction.json"
_DIGEST = rf"(?P<digest>[0-9a-f]{{{SHORT}}})"
_NUMBER = r"(?P<number>\d{5,})"


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        pattern: of its names.
        folder: below the output, or below the stage's folder.
        damaged: for a file that is named after its content: the problem of one with other content, and the remedy.
        unused: why `gc` removes one that nothing names; None for a kind that is always kept.
        while_idle: whether `gc` removes it only where nothing was written recently.
    """

    pattern: str
    folder: str = ""
    damaged: tuple[str, str] | None = None
    unused: str | None = None
    while_idle: bool = False


PLAN = Kind(rf"plan-{_DIGEST}\.json")
POINTER = Kind(re.escape(CURRENT))
PREDICTION = Kind(re.escape(PREDICTED))
RETRY = Kind(
    rf"retry-{_DIGEST}\.json", damaged=("does not hold the retry of its name", "delete it: only its record is lost")
)
SHARDS = Kind(
    rf"(topics|rows)-{_DIGEST}\.parquet",
    damaged=("does not hold the topics or rows of its name", "run again, which writes it again"),
    unused="no plan names this list of topics or rows",
)
MACHINE = Kind(
    rf"{_DIGEST}\.json",
    MACHINES,
    ("does not describe the machine of its name", "delete it; a shard that is done there again describes it again"),
)
REJECT = Kind(
    rf"[a-z]+-({_NUMBER}-)?{_DIGEST}\.parquet",
    REJECTS,
    ("does not hold the rows of its name", "delete it; a run that reads the input again writes it again"),
    "rows that no plan, no receipt and no report on a corpus names",
    while_idle=True,
)
PART = Kind(rf"part-{_NUMBER}-{_DIGEST}\.parquet", unused="no receipt that is kept names this part")
RECEIPT = Kind(rf"{_NUMBER}-{_DIGEST}\.json", RECEIPTS, unused="no manifest and no run to resume names this receipt")
MANIFEST = Kind(rf"manifest-{_DIGEST}\.json")
NEEDED = Kind(
    rf"needed-([0-9a-f]{{{SHORT}}}-){{2}}{_NUMBER}-{_DIGEST}\.bin",
    damaged=("does not hold the docs of its name", "delete it and run again"),
    unused="the needed docs of a job that ended",
    while_idle=True,
)
TASKS = Kind(
    rf"tasks-[0-9a-f]{{{SHORT}}}-{_DIGEST}\.parquet",
    damaged=("does not hold the tasks of its name", "delete it and run again"),
    unused="the tasks of a job that ended",
    while_idle=True,
)
SCAN = Kind(
    rf"unit-{_NUMBER}-{_DIGEST}\.json", SCANS, unused="a report on a corpus that no plan reads", while_idle=True
)
UNIT_DOCS = Kind(
    rf"docs-{_DIGEST}\.bin",
    SCANS,
    ("does not hold the docs of its name", "delete it; later runs read the corpus in place of reusing its tokens"),
    "the docs of a unit of a corpus that no plan reads",
    while_idle=True,
)
_OF_OUTPUT = (PLAN, POINTER, PREDICTION, RETRY, SHARDS, MACHINE, REJECT)
_OF_STAGE = (PART, RECEIPT, MANIFEST, NEEDED, TASKS, SCAN, UNIT_DOCS)


# In a document: the name of a file of `rejects/`; empty where no row was rejected.
RejectsFile: TypeAlias = Annotated[str, Field(pattern=rf"^({REJECT.pattern})?$")]


@dataclass(frozen=True)
class Entry:
    """A file of ours.

    Attributes:
        path: below the output or the stage's folder.
        kind: of the file, or of the file that an unfinished one was to become; None where its name does not tell.
        temporary: whether it is unfinished: being written, or left by a killed process.
        number: the shard, corpus unit or range of hashes in its name; -1 where there is none.
        digest: the short digest in its name.
        state: its size and time.
    """

    path: str
    kind: Kind | None
    temporary: bool
    number: int
    digest: str
    state: FileState

    @property
    def name(self) -> str:
        """The file's own name."""
        return storage.name(self.path)

    def is_whole(self, kind: Kind) -> bool:
        """Whether it is a finished file of a kind."""
        return self.kind is kind and not self.temporary


def list_output(output: str) -> list[Entry]:
    """Our files at the top of an output, where a user may keep others, and those on its machines and rejected rows."""
    top = [entry for entry in _list(output, "", _OF_OUTPUT) if entry.kind is not None]
    return [*top, *_list(output, MACHINES, _OF_OUTPUT), *_list(output, REJECTS, _OF_OUTPUT)]


def list_stage(url: str) -> list[Entry]:
    """Our files in a stage's folder and in the folders below it."""
    return [entry for folder in ("", RECEIPTS, SCANS) for entry in list_folder(url, folder)]


def list_folder(url: str, folder: str = "") -> list[Entry]:
    """Our files in a stage's folder, or in `receipts` or `scans` below it."""
    return _list(url, folder, _OF_STAGE)


def _list(url: str, folder: str, kinds: Sequence[Kind]) -> list[Entry]:
    states = file_states(storage.join(url, folder) if folder else url)
    here = [kind for kind in kinds if kind.folder == folder]
    entries = [_entry(folder, name, state, here) for name, state in sorted(states.items())]
    return [entry for entry in entries if entry.temporary or entry.kind is not None]


def _entry(folder: str, name: str, state: FileState, kinds: Sequence[Kind]) -> Entry:
    temporary = name.endswith(TEMPORARY_SUFFIX)
    final = name.removeprefix(".").removesuffix(TEMPORARY_SUFFIX).rpartition(".")[0] if temporary else name
    path = storage.join(folder, name) if folder else name
    for kind in kinds:
        if found := re.fullmatch(kind.pattern, final):
            groups = found.groupdict()
            return Entry(path, kind, temporary, int(groups.get("number") or -1), groups.get("digest", ""), state)
    return Entry(path, None, temporary, -1, "", state)


def is_plan(name: str) -> bool:
    """Whether a file's name is that of a plan."""
    return re.fullmatch(PLAN.pattern, name) is not None


def holds_content(name: str, content: bytes) -> bool:
    """Whether a file that is named after its content holds it."""
    return name.rpartition("-")[2].partition(".")[0] == sha256(content)[:SHORT]


def part_name(shard: int, content_digest: str) -> str:
    """The name of a part, by its shard and content."""
    return f"part-{shard:05d}-{content_digest[:SHORT]}.parquet"


def receipt_name(shard: int, shard_digest: str) -> str:
    """The name of a shard's receipt below `receipts/`."""
    return f"{shard:05d}-{shard_digest[:SHORT]}.json"


def retry_name(content: bytes) -> str:
    """The name of the record of a retry."""
    return f"retry-{sha256(content)[:SHORT]}.json"


def manifest_name(shard_digests: Sequence[str]) -> str:
    """The name of the manifest that seals these shards."""
    return f"manifest-{digest(shard_digests)[:SHORT]}.json"


def needed_prefix(shard_digests: Sequence[str]) -> str:
    """The beginning of the names of a stage's needed docs: other plans need other docs, and theirs stay untouched."""
    return f"needed-{digest(shard_digests)[:SHORT]}-"


def tasks_prefix(shard_digests: Sequence[str]) -> str:
    """The beginning of the name of the tasks of a stage's jobs, as `needed_prefix` is that of its needed docs."""
    return f"tasks-{digest(shard_digests)[:SHORT]}-"


def needed_list_prefix(prefix: str, what: Sequence[str]) -> str:
    """The beginning of the names of the files of one list, before the number of the range; `what` decides its docs."""
    return f"{prefix}{digest(what)[:SHORT]}-"


def list_ranges(url: str, prefix: str) -> dict[int, tuple[str, int]]:
    """The files of one list of needed docs in a stage's folder, by range: the URL and size of each."""
    whole = [entry for entry in list_folder(url) if entry.is_whole(NEEDED) and entry.name.startswith(prefix)]
    return {entry.number: (storage.join(url, entry.path), entry.state.size_bytes) for entry in whole}


def scan_name(unit: int, corpus_digest: str) -> str:
    """The name of a unit's report below `scans/`."""
    return f"unit-{unit:05d}-{corpus_digest[:SHORT]}.json"
