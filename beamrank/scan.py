"""What a scan of the corpus found: one report a unit, so that rows are counted once however often units are read."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from beamrank import storage
from beamrank.fingerprint import SHORT, digest

SCANS = "scans"


@dataclass(frozen=True)
class ScanReport:
    """One corpus unit: how many docs it held, how many rows were bad, and the first of those."""

    unit: int
    docs: int
    bad_rows: int
    examples: tuple[str, ...]

    def publish(self, folder: str, corpus_digest: str) -> None:
        """Writes the report; scanning the unit again changes nothing."""
        storage.publish(_url(folder, corpus_digest, self.unit), json.dumps(asdict(self)).encode())


@dataclass(frozen=True)
class ScanTotal:
    """All units together."""

    docs: int
    bad_rows: int
    examples: tuple[str, ...]


def _name(corpus_digest: str, unit: int) -> str:
    return f"unit-{unit:05d}-{digest([corpus_digest, unit])[:SHORT]}.json"


def _url(folder: str, corpus_digest: str, unit: int) -> str:
    return storage.join(folder, SCANS, _name(corpus_digest, unit))


def count_scans(folder: str, corpus_digest: str, units: int) -> int:
    """How many units have been scanned."""
    present = storage.sizes_bytes(storage.join(folder, SCANS))
    return sum(_name(corpus_digest, unit) in present for unit in range(units))


def read_scans(folder: str, corpus_digest: str, units: Sequence[int]) -> ScanTotal:
    """The sum of the reports."""
    present = storage.sizes_bytes(storage.join(folder, SCANS))
    reports = [
        ScanReport(**json.loads(storage.read_bytes(_url(folder, corpus_digest, unit))))
        for unit in units
        if _name(corpus_digest, unit) in present
    ]
    examples = [example for report in reports for example in report.examples]
    return ScanTotal(sum(one.docs for one in reports), sum(one.bad_rows for one in reports), tuple(examples[:5]))
