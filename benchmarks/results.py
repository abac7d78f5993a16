"""The results file: one JSON object whose parts can be measured one at a time."""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.machine import load_average, measured_on

_PLACES = {"--work", "--output"}
_WHOLE_PATH = re.compile(r"(^|=)/(?:.*/)?")


@dataclass(frozen=True)
class Target:
    """A target of a figure: `measured` should be at most, or at least, `limit`."""

    name: str
    measured: float
    wanted: Literal["at most", "at least"]
    limit: float

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return (
            self.measured <= self.limit if self.wanted == "at most" else self.measured >= self.limit
        )


@dataclass(frozen=True)
class Part:
    """One part of a benchmark."""

    figures: dict[str, Any]
    targets: tuple[Target, ...] = ()


class Results:
    """A results file. Parts that were measured on another machine or with other settings are
    dropped.
    """

    def __init__(
        self,
        path: Path,
        benchmark: str,
        settings: dict[str, Any],
        command: str,
        order: Sequence[str] = (),
    ) -> None:
        """Reads the file; takes the load of the machine now, before anything is measured.

        Args:
            path: the file.
            benchmark: its name.
            settings: what decides the figures beside the machine.
            command: the command that measures it again.
            order: the order of the parts; by default they are sorted by name.
        """
        self._path, self._command, self._order = path, command, order
        self._load = load_average()
        same = {"benchmark": benchmark, "machine": measured_on(), "settings": settings}
        self._document: dict[str, Any] = {**same, "parts": {}}
        if path.exists():
            stored: dict[str, Any] = json.loads(path.read_text())
            if all(stored.get(key) == value for key, value in same.items()):
                self._document = stored

    def figures(self, name: str) -> dict[str, Any]:
        """The figures of a part that was measured before; empty without one."""
        return dict(self._document["parts"].get(name, {}).get("figures", {}))

    def write(self, name: str, part: Part, seconds: float) -> dict[str, Any]:
        """Adds or replaces a part, with when and how it was measured; returns the whole
        document.
        """
        parts = self._document["parts"]
        parts[name] = {
            "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            "command": self._command,
            "load_average_before": self._load,
            "seconds": round(seconds, 1),
            "figures": part.figures,
            "targets": [{**asdict(target), "met": target.met} for target in part.targets],
        }
        order = [name for name in self._order or sorted(parts) if name in parts]
        self._document["parts"] = {name: parts[name] for name in order}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._document, indent=1) + "\n")
        return self._document


def command_line(module: str, arguments: Sequence[str]) -> str:
    """The command that runs a module with arguments, but for where it works and writes.

    Of an absolute path, only the last name is shown.
    """
    pairs = zip(["", *arguments], arguments, strict=False)
    shown = [word for before, word in pairs if not _PLACES & {before, word.partition("=")[0]}]
    return " ".join(
        [f"python -m {module}", *(_WHOLE_PATH.sub(r"\1", argument) for argument in shown)]
    )
