"""What a scan of the corpus found: one report a unit, so that rows are counted once however often units are read.

Reports are named by the corpus, not by the candidates: every pass, every attempt and every set of candidates finds the
same bad rows in a unit.
"""

import json
from dataclasses import asdict, dataclass

from beamrank import storage
from beamrank.fingerprint import SHORT

SCANS = "scans"


@dataclass(frozen=True)
class ScanReport:
    """One corpus unit: how many docs it held, how many rows were bad, the first of those, and what reading it took."""

    unit: int
    docs: int
    bad_rows: int
    examples: tuple[str, ...]
    seconds: float = 0.0

    def publish(self, folder: str, corpus_digest: str) -> None:
        """Writes the report, also over the same one of an earlier scan, so that its time shows that a scan goes on."""
        storage.replace(_url(folder, corpus_digest, self.unit), json.dumps(asdict(self)).encode())


@dataclass(frozen=True)
class ScanTotal:
    """All units together."""

    docs: int
    bad_rows: int
    examples: tuple[str, ...]
    seconds: float = 0.0


def _url(folder: str, corpus_digest: str, unit: int) -> str:
    return storage.join(folder, SCANS, f"unit-{unit:05d}-{corpus_digest[:SHORT]}.json")


class ScanWatch:
    """Counts the units that are scanned from now on."""

    def __init__(self, folder: str) -> None:
        self._folder = storage.join(folder, SCANS)
        self._before = storage.states(self._folder)

    def count(self) -> int:
        """How many units have been scanned since, again or for the first time."""
        return sum(state != self._before.get(name) for name, state in storage.states(self._folder).items())


def read_scans(folder: str, corpus_digest: str) -> ScanTotal:
    """The sum of a corpus's reports, by unit."""
    present = sorted(storage.sizes_bytes(storage.join(folder, SCANS)))
    reports = [
        ScanReport(**json.loads(storage.read_bytes(storage.join(folder, SCANS, name))))
        for name in present
        if name.endswith(f"-{corpus_digest[:SHORT]}.json")
    ]
    examples = [example for report in reports for example in report.examples]
    return ScanTotal(
        sum(one.docs for one in reports),
        sum(one.bad_rows for one in reports),
        tuple(examples[:5]),
        sum(one.seconds for one in reports),
    )
