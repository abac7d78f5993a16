"""The time that an engine needs per shard: the same small run with few shards and with many, stage
by stage.

The shards' own time, by their receipts, is subtracted from the difference: the rest is the time of
the engine, the launcher and the storage.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beamrank.commit.plan import read_plan
from benchmarks import synthetic
from benchmarks.outputs import receipts_seconds, run_stage
from benchmarks.results import Part

_PASSAGES = 1000
_STAGES: tuple[str, ...] = ("tokenize", "mono")

# The seconds of a command, and those in its receipts.
Seconds = tuple[float, float]


Row = dict[str, Any]
"""One stage on one engine: median `few_seconds` of the command with few shards, mostly the start of
Python and of the engine, and `many_seconds`; `receipts_seconds`, the difference of the seconds in
the receipts; `shard_milliseconds`, the rest of the difference, per additional shard.
"""


def measure(options: argparse.Namespace, work: Path) -> Iterator[tuple[str, Part]]:
    """Yields a part for each runner."""
    for runner in options.runners:
        rows = _measure(work / runner, runner, options.shards, options.rounds)
        yield runner, Part({"rows": rows})


def _measure(folder: Path, runner: str, shards: Sequence[int], rounds: int) -> list[Row]:
    folder.mkdir()
    corpus = folder / "corpus.tsv"
    synthetic.write_corpus(corpus, _PASSAGES)
    few, many = (
        _run(folder / str(count), corpus, runner, count, max(shards), rounds)
        for count in sorted(shards)
    )
    return [
        compare(runner, stage, few[stage], many[stage], max(shards) - min(shards))
        for stage in _STAGES
    ]


def _run(
    folder: Path, corpus: Path, runner: str, shards: int, topics: int, rounds: int
) -> dict[str, Seconds]:
    """The median seconds of each stage."""
    print(f"{runner}, {shards} shards", file=sys.stderr)
    config = synthetic.write_config(folder, corpus, _PASSAGES, topics, 1, shards=shards, threads=1)
    output = folder / "out"
    taken: dict[str, list[Seconds]] = {stage: [] for stage in _STAGES}
    for _ in range(rounds):
        shutil.rmtree(output, ignore_errors=True)
        run_stage(config, output, "retrieve")
        for stage in _STAGES:
            seconds = run_stage(config, output, stage, "--runner", runner).seconds
            plan = read_plan(str(output))
            taken[stage].append((seconds, receipts_seconds(plan, plan.of_step(stage)[0].name)))
    medians = np.median(list(taken.values()), axis=1).tolist()
    return {stage: (seconds, own) for stage, (seconds, own) in zip(taken, medians, strict=True)}


def compare(runner: str, stage: str, few: Seconds, many: Seconds, more_shards: int) -> Row:
    """The difference of two runs per additional shard, without the time of the shards
    themselves.
    """
    own = many[1] - few[1]
    milliseconds = (many[0] - few[0] - own) / more_shards * 1000
    seconds = {"few_seconds": few[0], "many_seconds": many[0], "receipts_seconds": own}
    rounded = {name: round(value, 2) for name, value in seconds.items()}
    shard = {"shard_milliseconds": round(milliseconds, 1)}
    return {"runner": runner, "stage": stage, **rounded, **shard}
