"""Commands that are measured, one stage of a run for example, and what they leave."""

from pathlib import Path
from typing import Any

from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest
from benchmarks.results import Part, Target
from benchmarks.subprocess_meter import BEAMRANK, Usage, run_metered


def run_stage(config: Path, output: Path, stage: str, *words: str, **environment: str) -> Usage:
    """Runs one stage of a configuration; `words` are further ones of the command."""
    command = [BEAMRANK, "run", str(config), "--output", str(output), "--stage", stage]
    return run_metered([*command, *words], **environment)


def sealed(plan: Plan, name: str) -> Manifest:
    """A stage that is finished."""
    manifest = plan.seal(name)
    assert manifest is not None, f"{name} is not finished"
    return manifest


def receipts_seconds(plan: Plan, name: str, shards: int | None = None) -> float:
    """The seconds in the receipts of a stage, or of its first shards."""
    return sum(receipt.seconds for receipt in sealed(plan, name).receipts[:shards])


def part_of(usage: Usage, most_seconds: float | None, most_mib: int, **figures: Any) -> Part:
    """The seconds and the peak memory of a command, with their targets; and further figures."""
    seconds, peak = round(usage.seconds, 1), usage.peak_bytes >> 20
    targets = [Target("peak MiB", peak, "at most", most_mib)]
    if most_seconds:
        targets.append(Target("seconds", seconds, "at most", most_seconds))
    return Part({**figures, "seconds": seconds, "peak_mib": peak}, tuple(targets))
