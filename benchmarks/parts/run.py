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
from benchmarks import bare
from benchmarks.outputs import receipts_seconds, sealed
from benchmarks.results import Part, Target
from benchmarks.subprocess_meter import BEAMRANK, Usage, run_apart, run_metered
from benchmarks.workspace import Workspace
from models.lucene.index import INFO_NAME

_WANTED_RATIO = 1.2
_SHARDS_AGAIN = 2
_UNITS = {"retrieve": "topics", "tokenize": "passages", "mono": "pairs", "duo": "triples"}


def measure(workspace: Workspace) -> Part:
    """Seconds and rates of each stage, and the seconds of the command over the sum of its parts."""
    folder = workspace.folder / "whole-run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    output, index = folder / "out", folder / "index"
    config = workspace.config(workspace.topics, workspace.settings.depths, index)
    command = run_metered([BEAMRANK, "run", config, "--output", output])
    plan = read_plan(str(output))
    parts = {"index": run_apart(bare.index_seconds, config, folder)}
    over_bare = {}
    for stage in plan.stages:
        if stage.step in ("mono", "duo"):
            load, seconds = run_apart(bare.scoring_seconds, output, stage.name, _SHARDS_AGAIN)
            parts[f"{stage.name}: load"] = load
            parts[f"{stage.name}: receipts"] = receipts_seconds(plan, stage.name)
            over_bare[stage.name] = receipts_seconds(plan, stage.name, _SHARDS_AGAIN) / seconds
        else:
            parts[stage.name] = run_apart(bare.stage_seconds, config, output, stage.name)
    parts["runs and measures"] = run_apart(bare.runs_seconds, config, output)
    measures = json.loads((output / "runs" / "measures.json").read_text())
    del measures["per_query"]
    ratio = round(command.seconds / sum(parts.values()), 3)
    return Part(
        {
            "topics": len(plan.topics),
            "shards": len(plan.shards),
            "command_seconds": round(command.seconds, 1),
            "command_peak_mib": command.peak_bytes >> 20,
            "stages": list(_stages(plan, command, index, len(workspace.squad.passages))),
            "parts_seconds": {name: round(seconds, 2) for name, seconds in parts.items()},
            "sum_of_parts_seconds": round(sum(parts.values()), 1),
            "ratio": ratio,
            "receipts_over_bare": {kind: round(value, 3) for kind, value in over_bare.items()},
            "measures": measures,
        },
        (Target("whole run over the sum of its parts", ratio, "at most", _WANTED_RATIO),),
    )


def _stages(plan: Plan, command: Usage, index: Path, passages: int) -> Iterator[dict[str, Any]]:
    """Each stage's wall clock time, from the end of the stage before, and its rate."""
    clock = (index / INFO_NAME).stat().st_mtime
    yield _stage("start and index", clock - command.started, passages, "passages")
    for spec in plan.stages:
        manifest, folder = sealed(plan, spec.name), Path(plan.folder(spec.name).url)
        end = max(path.stat().st_mtime for path in folder.glob("manifest-*.json"))
        work = {"retrieve": len(plan.topics), "tokenize": passages}.get(spec.step)
        row = _stage(
            spec.step, end - clock, work or manifest.total("inferences"), _UNITS[spec.step]
        )
        row["receipts_seconds"] = round(receipts_seconds(plan, spec.name), 2)
        if tokens := manifest.total("tokens"):
            row["tokens_per_second"] = round(tokens / row["seconds"])
            row["padding_share"] = round(1 - tokens / manifest.total("padded_tokens"), 4)
        yield row
        clock = end
    seconds = command.started + command.seconds - clock
    yield _stage("runs and measures", seconds, len(plan.topics), "topics")


def _stage(name: str, seconds: float, work: int, unit: str) -> dict[str, Any]:
    row = {"stage": name, "seconds": round(seconds, 2), "work": work, "unit": unit}
    return {**row, "per_second": round(work / seconds, 1)}
