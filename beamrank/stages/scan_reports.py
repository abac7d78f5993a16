"""What a scan of the corpus found: one report a unit, so that rows are counted once however often units are read.

Reports are named by the corpus, not by the candidates: every pass, every attempt and every set of candidates finds the
same bad rows in a unit.
"""

import re
from dataclasses import asdict, dataclass

from pydantic import ConfigDict, TypeAdapter

from beamrank.digests import SHORT, checked_json, checked_record
from beamrank.storage import files as storage
from beamrank.storage.documents import Count, Seconds
from beamrank.storage.file_states import fingerprints

SCANS = "scans"


@dataclass(frozen=True)
class ScanReport:
    """One corpus unit: how many docs it held, how many rows were bad, the first of those, and what reading it took."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    unit: Count
    docs: Count
    bad_rows: Count
    examples: tuple[str, ...]
    seconds: Seconds = 0.0

    def publish(self, folder: str, corpus_digest: str) -> None:
        """Writes the report, also over the same one of an earlier scan, so that its time shows that a scan goes on."""
        storage.replace(_url(folder, corpus_digest, self.unit), checked_json(asdict(self)))

    @classmethod
    def from_json(cls, content: bytes) -> "ScanReport | None":
        """A report, or None where the bytes are not one (cut short, say)."""
        return checked_record(_REPORT, content)


_REPORT = TypeAdapter(ScanReport)


@dataclass(frozen=True)
class ScanTotal:
    """All units together."""

    docs: int
    bad_rows: int
    examples: tuple[str, ...]
    seconds: float = 0.0


def _url(folder: str, corpus_digest: str, unit: int) -> str:
    return storage.join(folder, SCANS, scan_name(unit, corpus_digest))


def scan_name(unit: int, corpus_digest: str) -> str:
    """The name that a unit's report has below `scans/`."""
    return f"unit-{unit:05d}-{corpus_digest[:SHORT]}.json"


def is_scan_name(name: str) -> bool:
    """Whether `scan_name` gives such names."""
    return re.fullmatch(rf"unit-\d{{5,}}-[0-9a-f]{{{SHORT}}}\.json", name) is not None


class ScanWatch:
    """Counts the units that are scanned from now on."""

    def __init__(self, folder: str) -> None:
        self._folder = storage.join(folder, SCANS)
        self._before = fingerprints(self._folder)

    def count(self) -> int:
        """How many units have been scanned since, again or for the first time."""
        return sum(state != self._before.get(name) for name, state in fingerprints(self._folder).items())


def read_scans(folder: str, corpus_digest: str) -> ScanTotal:
    """The sum of a corpus's reports, by unit; one that was cut short counts when its unit has been read again."""
    scans = storage.join(folder, SCANS)
    names = [name for name in sorted(storage.sizes_bytes(scans)) if name.endswith(f"-{corpus_digest[:SHORT]}.json")]
    found = [ScanReport.from_json(content) for content in storage.read_files(scans, names).values()]
    reports = [report for report in found if report is not None]
    examples = [example for report in reports for example in report.examples]
    return ScanTotal(
        sum(one.docs for one in reports),
        sum(one.bad_rows for one in reports),
        tuple(examples[:5]),
        sum(one.seconds for one in reports),
    )
