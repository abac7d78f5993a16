"""Reports on the units of a corpus, or of a given run, that a stage has read."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from beamrank.commit import listing
from beamrank.formats.rejects import Rejects
from beamrank.storage import files as storage
from beamrank.storage.digested import file_states
from beamrank.storage.documents import SHORT, Count, Document, Seconds


@dataclass(frozen=True)
class ScanReport(Document):
    """One corpus unit: how many docs and bad rows it has, the first bad rows, and how long reading
    took.

    Reports are named by the corpus, not by the candidates: every pass, attempt and set of
    candidates finds the same bad rows in a unit, which count once, however often it is read.

    `rejects_file` is the file with its bad rows below `rejects/`. Of a given run, `twice_encoded`
    texts were encoded as UTF-8 twice, `remark` is on the order of its candidates, and `kind` that
    of its bad rows. `corpus` begins its digest.
    """

    unit: Count
    docs: Count
    bad_rows: Count
    examples: tuple[str, ...]
    seconds: Seconds = 0.0
    rejects_file: listing.RejectsFile = ""
    twice_encoded: Count = 0
    twice_example: str = ""
    remark: str = ""
    kind: str = "docs"
    corpus: str = ""

    def publish(self, folder: str, corpus_digest: str) -> None:
        """Writes the report, also over one of an earlier scan, so that its time shows the progress
        of this one.
        """
        name = listing.SCAN.name(corpus_digest, self.unit)
        content = replace(self, corpus=corpus_digest[:SHORT]).to_json()
        storage.replace(storage.join(folder, listing.SCANS, name), content)


def report_scan(
    folder: str,
    corpus_digest: str,
    unit: int,
    docs: int,
    rejects: Rejects,
    began: float,
    **more: Any,
) -> None:
    """Publishes the report of a unit that was read since `began`, and its rows that are left
    out.
    """
    ScanReport(
        unit,
        docs,
        rejects.count,
        rejects.examples,
        round(time.monotonic() - began, 3),
        rejects.publish(storage.parent(folder), unit),
        kind=rejects.kind,
        **more,
    ).publish(folder, corpus_digest)


def watch_scans(folder: str) -> Callable[[], int]:
    """A function that counts the units that were scanned since this call, again or for the first
    time.
    """
    scans = storage.join(folder, listing.SCANS)
    before = file_states(scans)
    return lambda: sum(
        name.endswith(".json") and state != before.get(name)
        for name, state in file_states(scans).items()
    )


def read_scans(folder: str, corpus_digest: str) -> ScanReport:
    """The sum of a corpus's reports, whose `unit` is how many they are.

    A truncated report counts once its unit is read again.
    """
    names = [
        entry.name
        for entry in listing.list_folder(folder, listing.SCANS)
        if entry.is_complete(listing.SCAN) and entry.digest == corpus_digest[:SHORT]
    ]
    reports = ScanReport.read(storage.join(folder, listing.SCANS), names)
    first = next(iter(reports), ScanReport(0, 0, 0, ()))
    docs, bad_rows, seconds, twice_encoded = (
        sum(map(attrgetter(name), reports))
        for name in ("docs", "bad_rows", "seconds", "twice_encoded")
    )
    return ScanReport(
        unit=len(reports),
        docs=docs,
        bad_rows=bad_rows,
        examples=tuple(example for report in reports for example in report.examples)[:5],
        seconds=seconds,
        twice_encoded=twice_encoded,
        twice_example=next((one.twice_example for one in reports if one.twice_example), ""),
        remark=first.remark if all(one.remark for one in reports) else "",
        kind=first.kind,
    )
