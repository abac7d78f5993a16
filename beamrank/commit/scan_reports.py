"""Reports of a scan of the corpus, or of a given run: one a unit, so that rows are counted once, however often read.

Reports are named by the corpus, not by the candidates: every pass, attempt and set of candidates finds the same bad
rows in a unit.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from beamrank.commit.listing import SCAN, SCANS, RejectsFile, list_folder, scan_name
from beamrank.storage import files as storage
from beamrank.storage.digested import FileState, file_states
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
        storage.replace(storage.join(folder, SCANS, scan_name(self.unit, corpus_digest)), self.to_json())


@dataclass(frozen=True)
class ScanTotal:
    """All units together."""

    docs: int
    bad_rows: int
    examples: tuple[str, ...]
    seconds: float = 0.0
    twice_encoded: int = 0
    twice_example: str = ""
    remark: str = ""
    kind: str = "docs"


class ScanWatch:
    """Counts the units that are scanned after its creation."""

    def __init__(self, folder: str) -> None:
        self._folder = storage.join(folder, SCANS)
        self._before = self._reports()

    def count(self) -> int:
        """The number of units scanned since, again or for the first time."""
        return sum(state != self._before.get(name) for name, state in self._reports().items())

    def _reports(self) -> dict[str, FileState]:
        return {name: state for name, state in file_states(self._folder).items() if name.endswith(".json")}


def read_reports(folder: str, corpus_digests: Collection[str]) -> list[ScanReport]:
    """The valid reports on the units of some corpora."""
    digests = {each[:SHORT] for each in corpus_digests}
    entries = list_folder(folder, SCANS)
    names = [entry.name for entry in entries if entry.is_whole(SCAN) and entry.digest in digests]
    contents = storage.read_files(storage.join(folder, SCANS), names).values()
    return [report for report in map(ScanReport.from_json, contents) if report is not None]


def read_scans(folder: str, corpus_digest: str) -> ScanTotal:
    """The sum of a corpus's reports, by unit; a truncated one counts once its unit is read again."""
    reports = read_reports(folder, [corpus_digest])
    examples = [example for report in reports for example in report.examples]
    return ScanTotal(
        sum(one.docs for one in reports),
        sum(one.bad_rows for one in reports),
        tuple(examples[:5]),
        sum(one.seconds for one in reports),
        sum(one.twice_encoded for one in reports),
        next((one.twice_example for one in reports if one.twice_example), ""),
        reports[0].remark if reports and all(one.remark for one in reports) else "",
        reports[0].kind if reports else "docs",
    )
