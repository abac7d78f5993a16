"""Reports of a scan of the corpus, or of a given run: one a unit, so that rows are counted once, however often read.

Reports are named by the corpus, not by the candidates: every pass, attempt and set of candidates finds the same bad
rows in a unit.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from beamrank.commit.listing import SCAN, SCANS, RejectsFile, list_folder
from beamrank.storage import files as storage
from beamrank.storage.digested import file_states
from beamrank.storage.documents import SHORT, Count, Document, Seconds


@dataclass(frozen=True)
class ScanReport(Document):
    """One corpus unit: how many docs and bad rows it has, the first bad rows, and how long reading took.

    `content` is its `unit_digest`, `docs_file` names the file beside the report with the hashes of its docs, and
    `rejects_file` that with its bad rows below `rejects/`. Of a given run, `twice_encoded` texts were encoded as UTF-8
    twice, `remark` is on the order of its candidates, and `kind` that of its bad rows.
    """

    unit: Count
    docs: Count
    bad_rows: Count
    examples: tuple[str, ...]
    seconds: Seconds = 0.0
    content: str = ""
    docs_file: Annotated[str, Field(pattern=rf"^(docs-[0-9a-f]{{{SHORT}}}\.bin)?$")] = ""
    rejects_file: RejectsFile = ""
    twice_encoded: Count = 0
    twice_example: str = ""
    remark: str = ""
    kind: str = "docs"

    def publish(self, folder: str, corpus_digest: str) -> None:
        """Writes the report, also over that of an earlier scan, so that its time shows the progress of this one."""
        storage.replace(storage.join(folder, SCANS, SCAN.name(corpus_digest, self.unit)), self.to_json())


def watch_scans(folder: str) -> Callable[[], int]:
    """A function that counts the units that were scanned since this call, again or for the first time."""
    scans = storage.join(folder, SCANS)
    before = file_states(scans)
    return lambda: sum(
        name.endswith(".json") and state != before.get(name) for name, state in file_states(scans).items()
    )


def read_reports(folder: str, corpus_digests: Collection[str]) -> list[ScanReport]:
    """The valid reports on the units of some corpora."""
    digests = {each[:SHORT] for each in corpus_digests}
    entries = list_folder(folder, SCANS)
    names = [entry.name for entry in entries if entry.is_whole(SCAN) and entry.digest in digests]
    contents = storage.read_files(storage.join(folder, SCANS), names).values()
    return [report for report in map(ScanReport.from_json, contents) if report is not None]


def read_scans(folder: str, corpus_digest: str) -> ScanReport:
    """The sum of a corpus's reports, whose `unit` is how many they are.

    A truncated report counts once its unit is read again.
    """
    reports = read_reports(folder, [corpus_digest])
    first = reports[0] if reports else ScanReport(0, 0, 0, ())
    return ScanReport(
        unit=len(reports),
        docs=sum(one.docs for one in reports),
        bad_rows=sum(one.bad_rows for one in reports),
        examples=tuple(example for report in reports for example in report.examples)[:5],
        seconds=sum(one.seconds for one in reports),
        twice_encoded=sum(one.twice_encoded for one in reports),
        twice_example=next((one.twice_example for one in reports if one.twice_example), ""),
        remark=first.remark if all(one.remark for one in reports) else "",
        kind=first.kind,
    )
