"""The files of an output: one table of their kinds, by which they are named, listed, verified and
cleared.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, TypeAlias

from pydantic import Field

from beamrank.formats.rejects import REJECTS
from beamrank.logs import FOLDER as LOGS
from beamrank.storage import files as storage
from beamrank.storage.digested import FileState, file_states
from beamrank.storage.documents import SHORT, digest
from beamrank.storage.local_files import final_name

RECEIPTS, SCANS, MACHINES, RUNS, ASKED = "receipts", "scans", "machines", "runs", "asked"
REPORT, CALIBRATION, TRAINING, DEPTHS = "report", "calibration", "training", "duo-depths"
FOLDERS = (
    *(RECEIPTS, SCANS, MACHINES, RUNS, ASKED, REJECTS),
    *(LOGS, REPORT, CALIBRATION, TRAINING, DEPTHS),
)
"""All folders below an output or below a stage's folder, but not the stages' folders."""
MEASURES, PER_QUERY = "measures.json", "per-query.parquet"
SCORES = "scores.parquet"
BESIDE_RUNS = (MEASURES, PER_QUERY, SCORES)
"""The files that `runs/` holds beside the runs."""
VALUES = "per_query"
"""The key of `MEASURES` that is not the name of a run."""
CURRENT = "current-plan.json"
_FIELDS = {
    "digest": rf"(?P<digest>[0-9a-f]{{{SHORT}}})",
    "number": r"(?P<number>\d{5,})",
    "job": rf"[0-9a-f]{{{SHORT}}}",
}


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        form: of its names, a regular expression but for dots and `_FIELDS`. A `job` is the digest
            of a stage's shards.
        folder: below the output, or below the stage's folder.
        content: for a file whose `digest` is its content's: what it holds, and the remedy where it
            does not.
        unused: why `gc` removes one that nothing names; None for a kind that is always kept.
        while_idle: whether `gc` removes it only where nothing was written recently.
    """

    form: str
    folder: str = ""
    content: tuple[str, str] | None = None
    unused: str | None = None
    while_idle: bool = False

    @cached_property
    def pattern(self) -> str:
        """The regular expression of its names."""
        return self.form.replace(".", r"\.").format(**_FIELDS)

    def name(self, full_digest: str, number: int = 0) -> str:
        """The name of a file of it."""
        return self.form.format(digest=full_digest[:SHORT], number=f"{number:05d}")


PLAN = Kind("plan-{digest}.json")
POINTER = Kind(CURRENT)
PROBE = Kind("probe-{digest}.json")
PROBING = Kind(
    ".probing-{digest}", unused="left by a process that was killed as it tried the store"
)
LAUNCHER = Kind("launcher-{job}-{job}-(?P<machine>[0-9a-f]{{8}})-{digest}.json")
RETRY = Kind("retry-{digest}.json", "", ("retry", "delete it: only its record is lost"))
SHARDS = Kind(
    "(topics|rows)-{digest}.parquet",
    content=("topics or rows", "run again, which writes it again"),
    unused="no plan names this list of topics or rows",
)
MACHINE = Kind(
    "{digest}.json",
    MACHINES,
    ("machine", "delete it; a shard that is done there again describes it again"),
)
REJECT = Kind(
    "[a-z]+-({number}-)?{digest}.parquet",
    REJECTS,
    ("rows", "delete it; a run that reads the input again writes it again"),
    "rows that no plan, no receipt and no report on a corpus names",
    while_idle=True,
)
ANSWER = Kind("{digest}[0-9a-f]{{20}}.json", ASKED, unused="no plan asks for this answer")
PART = Kind("part-{number}-{digest}.parquet", unused="no receipt that is kept names this part")
RECEIPT = Kind(
    "{number}-{digest}.json", RECEIPTS, unused="no manifest and no run to resume names this receipt"
)
WORKING = Kind(
    "working-{number}-{digest}.json", RECEIPTS, unused="left by a killed attempt at a shard"
)
OPEN = Kind("open-{number}-{digest}.json", RECEIPTS, unused="says why a shard was left open once")
MANIFEST = Kind("manifest-{digest}.json")
NEEDED = Kind(
    "needed-{job}-{job}-{number}-{digest}.bin",
    content=("docs", "delete it and run again"),
    unused="the needed docs of a job that ended",
    while_idle=True,
)
TASKS = Kind(
    "tasks-{job}-{digest}.parquet",
    content=("tasks", "delete it and run again"),
    unused="the tasks of a job that ended",
    while_idle=True,
)
SCAN = Kind(
    "unit-{number}-{digest}.json",
    SCANS,
    unused="a report on a corpus that no plan reads",
    while_idle=True,
)
_OF_OUTPUT = (PLAN, POINTER, PROBE, PROBING, LAUNCHER, RETRY, SHARDS, MACHINE, REJECT, ANSWER)
_OF_STAGE = (PART, RECEIPT, WORKING, OPEN, MANIFEST, NEEDED, TASKS, SCAN)


# In a document: the name of a file of `rejects/`; empty where no row was rejected.
RejectsFile: TypeAlias = Annotated[str, Field(pattern=rf"^({REJECT.pattern})?$")]


@dataclass(frozen=True)
class Entry:
    """A file of ours.

    `path` is below the output or the stage's folder. An unfinished file (`temporary`: being
    written, or left by a killed process) has the kind that it was to become, or None where its name
    does not tell. `number` is the shard, corpus unit or range of hashes in its name, or -1, and
    `digest` the short digest in it.
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

    def is_complete(self, kind: Kind) -> bool:
        """Whether it is a finished file of a kind."""
        return self.kind is kind and not self.temporary


def list_output(output: str) -> list[Entry]:
    """Our files at the top of an output, where a user may keep others, and the files on its
    machines, rejected rows and kept answers.
    """
    top = [entry for entry in list_folder(output, kinds=_OF_OUTPUT) if entry.kind is not None]
    return [
        *top,
        *list_folder(output, MACHINES, _OF_OUTPUT),
        *list_folder(output, REJECTS, _OF_OUTPUT),
        *list_answers(output),
    ]


def list_answers(output: str) -> list[Entry]:
    """The answers that stages keep in an output."""
    return list_folder(output, ASKED, _OF_OUTPUT)


def list_stage(url: str) -> list[Entry]:
    """Our files in a stage's folder and in the folders below it."""
    return [entry for folder in ("", RECEIPTS, SCANS) for entry in list_folder(url, folder)]


def list_folder(url: str, folder: str = "", kinds: Sequence[Kind] = _OF_STAGE) -> list[Entry]:
    """Our files in a stage's folder, or in a folder below it, and all unfinished files of ours."""
    entries = []
    for name, state in sorted(file_states(storage.join(url, folder) if folder else url).items()):
        final = final_name(name) or name
        temporary = final != name
        matches = (
            (kind, re.fullmatch(kind.pattern, final)) for kind in kinds if kind.folder == folder
        )
        kind, match = next(((kind, match) for kind, match in matches if match), (None, None))
        if temporary or kind is not None:
            groups = {} if match is None else match.groupdict()
            number, short = int(groups.get("number") or -1), groups.get("digest", "")
            entries.append(
                Entry(
                    storage.join(folder, name) if folder else name,
                    kind,
                    temporary,
                    number,
                    short,
                    state,
                )
            )
    return entries


def manifest_name(shard_digests: Sequence[str]) -> str:
    """The name of the manifest that seals these shards."""
    return MANIFEST.name(digest(shard_digests))


def asked_name(score_digest: str, key: str) -> str:
    """The name of a kept answer, given the digest of what decides all answers of its stage and 20
    digits for the question.
    """
    return f"{score_digest[:SHORT]}{key}.json"


def needed_prefix(shard_digests: Sequence[str], what: Sequence[str]) -> str:
    """The beginning of the names of one list of needed docs, before the number of the range.

    Other plans need other docs, and theirs stay untouched; `what` decides the docs of the list.
    """
    return f"needed-{digest(shard_digests)[:SHORT]}-{digest(what)[:SHORT]}-"


def tasks_prefix(shard_digests: Sequence[str]) -> str:
    """The beginning of the names of the tasks of a stage's jobs."""
    return f"tasks-{digest(shard_digests)[:SHORT]}-"


def list_ranges(url: str, prefix: str) -> dict[int, tuple[str, int]]:
    """The files of one list of needed docs in a stage's folder, by range: the URL and size of
    each.
    """
    entries = [
        entry
        for entry in list_folder(url)
        if entry.is_complete(NEEDED) and entry.name.startswith(prefix)
    ]
    return {
        entry.number: (storage.join(url, entry.path), entry.state.size_bytes) for entry in entries
    }
