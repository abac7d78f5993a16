"""What the checks found in one run: everything is counted, the first few of each code are kept."""

from collections import Counter
from dataclasses import dataclass, field

EXAMPLES = 5


@dataclass(frozen=True, order=True)
class Finding:
    """One finding."""

    line: int
    code: str
    message: str


@dataclass
class Findings:
    """The findings of one run.

    Attributes:
        counts: how many there are of each code.
    """

    counts: Counter[str] = field(default_factory=Counter)
    _kept: dict[str, list[Finding]] = field(default_factory=dict)

    def add(self, line: int, code: str, message: str) -> None:
        """Counts a finding; keeps those on the first lines."""
        self.counts[code] += 1
        kept = self._kept.setdefault(code, [])
        if len(kept) < EXAMPLES or line < kept[-1].line:
            kept.append(Finding(line, code, message))
            kept.sort()
            del kept[EXAMPLES:]

    @property
    def examples(self) -> list[Finding]:
        """Those that were kept, in the order of their lines."""
        return sorted(finding for kept in self._kept.values() for finding in kept)

    def left_out(self) -> list[tuple[str, int]]:
        """The codes with findings that were not kept, and how many."""
        return [(code, count - EXAMPLES) for code, count in sorted(self.counts.items()) if count > EXAMPLES]
