"""The time that an engine needs per shard: the same small run with few shards and with many, stage
by stage.

The shards' own time, by their receipts, is subtracted from the difference: the rest is the time of
the engine, the launcher and the storage.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from beamrank.commit.plan import read_plan
from benchmarks import synthetic
from benchmarks.outputs import receipts_seconds, run_stage
from benchmarks.results import Part

_PASSAGES = 1000
_STAGES: tuple[str, ...] = ("tokenize", "mono")

# The seconds of a command, and those in its receipts.
Seconds = tuple[float, float]


@dataclass(frozen=True)
class Row:
    """One stage on one engine: median seconds of the command with few shards and with many.

    Attributes:
        runner: the name in `--runner`.
        stage: tokenize (the join) or mono.
        few_seconds: with few shards: mostly the start of Python and of the engine.
        many_seconds: with many shards.
        receipts_seconds: the difference of the seconds in the receipts.
        shard_milliseconds: the rest of the difference, per additional shard.
    """

    runner: str
    stage: str
    few_seconds: float
    many_seconds: float
    receipts_seconds: float
    shard_milliseconds: float


def measure(options: argparse.Namespace, work: Path) -> Iterator[tuple[str, Part]]:
    """Yields a part for each runner."""
    for runner in options.runners:
        rows = _measure(work / runner, runner, options.shards, options.rounds)
        yield runner, Part({"rows": [asdict(row) for row in rows]})


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
    return Row(
        runner, stage, round(few[0], 2), round(many[0], 2), round(own, 2), round(milliseconds, 1)
    )
