"""Measures what an engine takes for each shard, and writes benchmarks/results/engines.json.

    python -m benchmarks.parts.engines [--runners local prism flink spark] [--shards 4 64] [--rounds 3]

The same small run with few shards and with many, stage by stage. What the shards themselves took, by their receipts, is
left out of the difference: what remains is the engine's, the launcher's and the storage's.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from beamrank.stages.plan import StageKind, read_plan
from benchmarks import results, synthetic
from benchmarks.machine import describe_machine, load_average
from benchmarks.watched import BEAMRANK, be_quiet, watch

_RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "engines.json"
_PASSAGES = 1000
_STAGES: tuple[StageKind, ...] = ("tokenize", "mono")

# Of a command, and of its receipts together.
Seconds = tuple[float, float]


@dataclass(frozen=True)
class Row:
    """One stage on one engine: seconds of the command, the median of all rounds, with few shards and with many.

    Attributes:
        runner: our word.
        stage: the join, or mono.
        few_seconds: with the fewer shards; this is mostly the start of Python and of the engine.
        many_seconds: with the more shards.
        receipts_seconds: what the shards of the latter took in all less those of the former, by their receipts.
        shard_milliseconds: what is left of the difference, for each shard more.
    """

    runner: str
    stage: str
    few_seconds: float
    many_seconds: float
    receipts_seconds: float
    shard_milliseconds: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures each runner; its rows are in the results as soon as they are there."""
    options = _parser().parse_args(arguments)
    command = results.command_line("benchmarks.parts.engines", arguments)
    load = load_average()
    be_quiet()
    settings = {"shards": options.shards, "rounds": options.rounds}
    found = results.open_results(options.output, describe_machine(), settings, "synthetic passages")
    for runner in options.runners:
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="beamrank-engines-") as folder:
            rows = _measure(Path(folder), runner, options.shards, options.rounds)
        part = results.Part({"rows": [asdict(row) for row in rows]})
        found["parts"][runner] = results.part_to_json(part, time.monotonic() - start, command, load)
        found = results.write_results(options.output, found, sorted(found["parts"]))


def _measure(folder: Path, runner: str, shards: Sequence[int], rounds: int) -> list[Row]:
    corpus = folder / "corpus.tsv"
    synthetic.write_corpus(corpus, _PASSAGES)
    few, many = (_run(folder / str(count), corpus, runner, count, max(shards), rounds) for count in sorted(shards))
    return [compare(runner, stage, few[stage], many[stage], max(shards) - min(shards)) for stage in _STAGES]


def _run(folder: Path, corpus: Path, runner: str, shards: int, topics: int, rounds: int) -> dict[str, Seconds]:
    """The median of each stage's seconds."""
    print(f"{runner}, {shards} shards", file=sys.stderr)
    config = synthetic.write_config(folder, corpus, _PASSAGES, topics, 1, shards=shards, threads=1)
    taken: dict[str, list[Seconds]] = {stage: [] for stage in _STAGES}
    for _ in range(rounds):
        shutil.rmtree(folder / "out", ignore_errors=True)
        watch([BEAMRANK, "run", config, "--stage", "retrieve"])
        for stage in _STAGES:
            watched = watch([BEAMRANK, "run", config, "--stage", stage, "--runner", runner])
            taken[stage].append((watched.seconds, _receipts_seconds(folder / "out", stage)))
    return {
        stage: (statistics.median(seconds for seconds, _ in each), statistics.median(own for _, own in each))
        for stage, each in taken.items()
    }


def _receipts_seconds(output: Path, stage: StageKind) -> float:
    plan = read_plan(str(output))
    manifest = plan.sealed(plan.of_kind(stage)[0].name)
    assert manifest is not None
    return sum(receipt.seconds for receipt in manifest.receipts)


def compare(runner: str, stage: str, few: Seconds, many: Seconds, more_shards: int) -> Row:
    """What remains for each shard more of the difference of two runs, without what the shards took themselves."""
    own = many[1] - few[1]
    milliseconds = (many[0] - few[0] - own) / more_shards * 1000
    return Row(runner, stage, round(few[0], 2), round(many[0], 2), round(own, 2), round(milliseconds, 1))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.parts.engines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runners", nargs="+", default=["local", "prism", "flink", "spark"], help="(%(default)s)")
    parser.add_argument("--shards", type=int, nargs=2, default=[4, 64], help="few and many (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts (%(default)s)")
    parser.add_argument("--output", type=Path, default=_RESULTS, help="the results (%(default)s)")
    return parser


if __name__ == "__main__":
    main()
