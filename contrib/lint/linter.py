"""Checks one run file: everything is counted, the first few findings of each code are kept."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from beamrank.formats.schemas import NO_HINTS, Hints
from beamrank.storage import files as storage
from beamrank.storage.local_files import is_pipe
from contrib.lint.check import TRACKS, RunState, Track
from contrib.lint.references import References
from contrib.lint.registry import CHECKS, LINE_CHECKS, RUN_CHECKS, TOPIC_CHECKS, UNUSABLE
from contrib.lint.run_rows import Line, Places, RunRows, TopicReturnsError, TopicRows

EXAMPLES = 5


@dataclass(frozen=True, order=True)
class Finding:
    line: int
    code: str
    message: str


@dataclass
class Findings:
    """All findings of a file.

    Attributes:
        counts: how many there are of each code.
        bad_rows: the lines of rows that cannot be used.
    """

    counts: Counter[str] = field(default_factory=Counter)
    bad_rows: set[int] = field(default_factory=set)
    _kept: dict[str, list[Finding]] = field(default_factory=dict)

    def add(self, line: int, code: str, message: str) -> None:
        """Counts a finding; keeps findings on the first lines."""
        self.counts[code] += 1
        if code in UNUSABLE:
            self.bad_rows.add(line)
        kept = self._kept.setdefault(code, [])
        if len(kept) < EXAMPLES or line < kept[-1].line:
            kept.append(Finding(line, code, message))
            kept.sort()
            del kept[EXAMPLES:]

    @property
    def examples(self) -> list[Finding]:
        """The findings that were kept, in the order of their lines."""
        return sorted(finding for kept in self._kept.values() for finding in kept)

    def left_out(self) -> list[tuple[str, int]]:
        """The codes with findings that were not kept, and how many."""
        return [
            (code, count - EXAMPLES)
            for code, count in sorted(self.counts.items())
            if count > EXAMPLES
        ]


@dataclass(frozen=True)
class Report:
    """The findings in a run; `places` tells the file and the line of a finding's `line`."""

    run: str
    findings: Findings
    state: RunState
    places: Places

    def count(self, severity: str) -> int:
        return sum(
            count
            for code, count in self.findings.counts.items()
            if CHECKS[code].severity == severity
        )

    def is_clean(self, max_bad_rows: int = 0) -> bool:
        """Whether nothing was found beside so many rows that cannot be used."""
        return (
            self.findings.counts.keys() <= UNUSABLE and len(self.findings.bad_rows) <= max_bad_rows
        )

    @property
    def has_scores(self) -> bool:
        return self.state.format is not None and self.state.format.has_scores

    def is_fixable(self, code: str) -> bool:
        """Whether `--fix` has a right answer to findings of a code in this run."""
        return bool(CHECKS[code].fix) and (self.has_scores or not CHECKS[code].needs_scores)


def lint_run(
    url: str,
    references: References | None = None,
    track: Track = TRACKS["generic"],
    hints: Hints = NO_HINTS,
) -> Report:
    """Checks a run: a file, compressed or not, a folder or a glob.

    One topic is in memory at a time. If a topic comes back later, the file is read again by way of
    temporary files.

    Raises:
        PreflightError: the file does not exist, or cannot be read.
    """
    references = references or References()
    if not is_pipe_url(url):
        try:
            return _lint(url, RunState(references, track), hints, is_contiguous=True)
        except TopicReturnsError:
            pass
    return _lint(url, RunState(references, track), hints, is_contiguous=False)


def is_pipe_url(url: str) -> bool:
    """Whether a file is a named pipe, which can be read only once."""
    return not storage.is_remote(url) and is_pipe(url)


def _lint(url: str, state: RunState, hints: Hints, *, is_contiguous: bool) -> Report:
    findings = Findings()

    def inspect(line: Line) -> None:
        for code, check in LINE_CHECKS.items():
            message = check.function(line, state)
            if message is not None:
                findings.add(line.number, code, message)

    rows = RunRows(url, inspect, hints)
    state.comments = rows.comments
    for topic in _topics(rows, is_contiguous):
        for code, check in TOPIC_CHECKS.items():
            for line, message in check.function(topic, state):
                findings.add(line, code, message)
        state.add(topic)
    for code, check in RUN_CHECKS.items():
        for line, message in check.function(state):
            findings.add(line, code, message)
    return Report(url, findings, state, rows.places)


def _topics(rows: RunRows, is_contiguous: bool) -> Iterator[TopicRows]:
    return rows.topics() if is_contiguous else rows.gathered()
