"""The whole cascade as a user runs it: one `beamrank run` into an empty folder, against the sum of
its parts.

A stage's share of the wall clock time follows from the times at which the outputs were sealed. The
parts are the same work as bare calls of the library, without Beam and each in a process of its own
(bare.py). Scoring, which is most of the run, is not repeated: its part is the time to load the
model plus the seconds in the receipts. A few shards are scored again, to check these seconds.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from beamrank.commit.plan import Plan, read_plan
from beamrank.commit.receipts import Manifest
from benchmarks import bare
from benchmarks.results import Part, Target
from benchmarks.subprocess_meter import BEAMRANK, Usage, run_apart, run_metered
from benchmarks.workspace import Workspace
from models.lucene.index import INFO_NAME

_WANTED_RATIO = 1.2
_SHARDS_AGAIN = 2


def measure(workspace: Workspace) -> Part:
    """Seconds and rates of each stage, and the seconds of the command over the sum of its parts."""
    folder = workspace.folder / "whole-run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    output, index = folder / "out", folder / "index"
    config = workspace.config(workspace.topics, workspace.settings.depths, index)
    command = run_metered([BEAMRANK, "run", config, "--output", output])
    plan = read_plan(str(output))
    stages = list(_stages(plan, command, index, len(workspace.squad.passages)))
    again = {
        kind: run_apart(bare.scoring_seconds, str(output), kind, _shards_again(plan))
        for kind in ("mono", "duo")
    }
    parts = _parts(plan, config, folder, output, {kind: load for kind, (load, _) in again.items()})
    measures = json.loads((output / "runs" / "measures.json").read_text())
    ratio = round(command.seconds / sum(parts.values()), 3)
    return Part(
        figures={
            "topics": len(plan.topics),
            "shards": len(plan.shards),
            "command_seconds": round(command.seconds, 1),
            "command_peak_mib": command.peak_bytes >> 20,
            "stages": stages,
            "parts_seconds": {name: round(seconds, 2) for name, seconds in parts.items()},
            "sum_of_parts_seconds": round(sum(parts.values()), 1),
            "ratio": ratio,
            "receipts_over_bare": {
                kind: round(_receipt_seconds(plan, kind, _shards_again(plan)) / seconds, 3)
                for kind, (_, seconds) in again.items()
            },
            "measures": {name: means for name, means in measures.items() if name != "per_query"},
        },
        targets=(Target("whole run over the sum of its parts", ratio, "at most", _WANTED_RATIO),),
    )


def _stages(plan: Plan, command: Usage, index: Path, passages: int) -> Iterator[dict[str, Any]]:
    """Each stage's wall clock time, from the end of the stage before, and its rate."""
    clock = (index / INFO_NAME).stat().st_mtime
    yield _stage("start and index", clock - command.started, None, passages, "passages")
    for spec in plan.stages:
        manifest = _sealed(plan, spec.name)
        sealed = _sealed_at(plan, spec.name)
        unit = {"retrieve": "topics", "tokenize": "passages", "mono": "pairs", "duo": "triples"}[
            spec.step
        ]
        work = {"retrieve": len(plan.topics), "tokenize": passages}.get(
            spec.step
        ) or manifest.total("inferences")
        work_seconds = sum(receipt.seconds for receipt in manifest.receipts)
        row = _stage(spec.step, sealed - clock, work_seconds, work, unit)
        if manifest.total("tokens"):
            row["tokens_per_second"] = round(manifest.total("tokens") / row["seconds"])
            row["padding_share"] = round(
                1 - manifest.total("tokens") / manifest.total("padded_tokens"), 4
            )
        yield row
        clock = sealed
    end = command.started + command.seconds
    yield _stage("runs and measures", end - clock, None, len(plan.topics), "topics")


def _stage(
    name: str, seconds: float, receipts: float | None, work: int, unit: str
) -> dict[str, Any]:
    return {
        "stage": name,
        "seconds": round(seconds, 2),
        "receipts_seconds": None if receipts is None else round(receipts, 2),
        "work": work,
        "unit": unit,
        "per_second": round(work / seconds, 1),
    }


def _sealed(plan: Plan, name: str) -> Manifest:
    manifest = plan.seal(name)
    assert manifest is not None
    return manifest


def _sealed_at(plan: Plan, name: str) -> float:
    return max(path.stat().st_mtime for path in Path(plan.folder(name).url).glob("manifest-*.json"))


def _shards_again(plan: Plan) -> int:
    return min(_SHARDS_AGAIN, len(plan.shards))


def _receipt_seconds(plan: Plan, name: str, shards: int | None = None) -> float:
    return sum(receipt.seconds for receipt in _sealed(plan, name).receipts[:shards])


def _parts(
    plan: Plan, config: Path, folder: Path, output: Path, loads: dict[str, float]
) -> dict[str, float]:
    """Seconds of each part, in the order of the run."""
    parts = {
        "index": run_apart(bare.index_seconds, str(config), str(folder)),
        "retrieve": run_apart(bare.retrieve_seconds, str(output)),
    }
    for spec in plan.of_step("tokenize"):
        parts[spec.name] = run_apart(bare.tokenize_seconds, str(config), str(output), spec.name)
    for kind, load in loads.items():
        parts[f"{kind}: load"] = load
        parts[f"{kind}: receipts"] = _receipt_seconds(plan, kind)
    parts["runs and measures"] = run_apart(bare.runs_seconds, str(config), str(output))
    return parts
