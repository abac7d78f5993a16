"""Peak memory of each stage's processes, with an increasing number of topics and small depths.

Each stage is a command of its own (`beamrank run --stage`), so one stage's peak cannot hide
another's.
"""

import shutil
from dataclasses import asdict

from benchmarks.outputs import run_stage
from benchmarks.results import Part, Target
from benchmarks.workspace import Depths, Workspace

_STAGES = ("retrieve", "tokenize", "mono", "duo", "runs")
_DEPTHS = Depths(bm25=100, mono=3, duo=2)
_WANTED_GROWTH = 1.05
# Java grows its heap before it collects garbage; a small heap shows what is needed.
_JAVA_HEAP = "256m"


def measure(workspace: Workspace) -> Part:
    """The peaks, and the most topics' peaks over the fewest's."""
    sizes = workspace.settings.memory_topics
    # Indexing must not count as a stage's peak.
    workspace.index()
    peaks = {str(topics): _peaks_mib(workspace, topics) for topics in sizes}
    fewest, most = peaks[str(min(sizes))], peaks[str(max(sizes))]
    growth = {stage: round(most[stage] / fewest[stage], 3) for stage in _STAGES}
    worst = max(ratio for stage, ratio in growth.items() if stage != "tokenize")
    times = max(sizes) / min(sizes)
    return Part(
        figures={
            "depths": asdict(_DEPTHS),
            "java_heap": _JAVA_HEAP,
            "peak_mib_by_topics": peaks,
            "growth": growth,
        },
        targets=(
            Target(
                f"peak memory with {times:g} times the topics, join apart",
                worst,
                "at most",
                _WANTED_GROWTH,
            ),
        ),
    )


def _peaks_mib(workspace: Workspace, topics: int) -> dict[str, int]:
    output = workspace.folder / f"memory-{topics}"
    shutil.rmtree(output, ignore_errors=True)
    config = workspace.config(workspace.squad.chosen(topics), _DEPTHS)
    heap = {"BEAMRANK_JAVA_HEAP": _JAVA_HEAP}
    return {stage: run_stage(config, output, stage, **heap).peak_bytes >> 20 for stage in _STAGES}
