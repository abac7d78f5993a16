"""The results file: one JSON object whose parts can be measured one at a time and put together."""

import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

_WHOLE_PATH = re.compile(r"(^|=)/(?:.*/)?")


@dataclass(frozen=True)
class Target:
    """What is wanted of a figure: `measured` is at most, or at least, `limit`."""

    name: str
    measured: float
    wanted: Literal["at most", "at least"]
    limit: float

    @property
    def met(self) -> bool:
        """Whether the figure is as wanted."""
        return self.measured <= self.limit if self.wanted == "at most" else self.measured >= self.limit


@dataclass(frozen=True)
class Part:
    """One part of the benchmark."""

    figures: dict[str, Any]
    targets: tuple[Target, ...] = ()


def command_line(module: str, arguments: Sequence[str] | None) -> str:
    """The command that runs a benchmark, from its arguments; None is those of this process.

    Where things lie on this machine is nobody's business: of a whole path the last name is shown.
    """
    given = sys.argv[1:] if arguments is None else arguments
    return " ".join([f"python -m {module}", *(_WHOLE_PATH.sub(r"\1", argument) for argument in given)])


def part_to_json(part: Part, seconds: float, command: str, load: float) -> dict[str, Any]:
    """A part as it stands in the file: its figures and targets, when they were taken, and how."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "command": command,
        "load_average_before": load,
        "seconds": round(seconds, 1),
        "figures": part.figures,
        "targets": [{**asdict(target), "met": target.met} for target in part.targets],
    }


def open_results(
    path: Path, machine: dict[str, Any], settings: dict[str, Any], benchmark: str = "SQuAD 1.1"
) -> dict[str, Any]:
    """The results that a file holds, without parts where they are of another machine or other settings."""
    empty = {"benchmark": benchmark, "machine": machine, "settings": settings, "parts": {}}
    if not path.exists():
        return empty
    found: dict[str, Any] = json.loads(path.read_text())
    return found if all(found.get(key) == empty[key] for key in ("benchmark", "machine", "settings")) else empty


def write_results(path: Path, results: dict[str, Any], order: Iterable[str]) -> dict[str, Any]:
    """Writes the results with their parts in order, and returns them so."""
    parts = {name: results["parts"][name] for name in order if name in results["parts"]}
    ordered = {**results, "parts": parts}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(ordered, indent=1) + "\n")
    return ordered
