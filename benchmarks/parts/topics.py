"""How a job grows with its topics: 100 candidates each, from Parquet, and scores from a table of
hashes.

Each stage is one `beamrank run --stage`; a size is measured again from its first stage that has no
figures in `--work`.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from beamrank.commit.plan import read_current, read_plan
from benchmarks import hash_backend, synthetic
from benchmarks.results import Part, Target
from benchmarks.subprocess_meter import BEAMRANK, Usage, run_metered

TOPICS = (10_000, 100_000, 1_000_000)
K = 100
_BASE_TOPICS = 1000
_PLANNED, _PLAN_WORDS = 10_000_000, 8
_PASSAGES, _WORDS = 100_000, 6
_TOPICS_AT_ONCE = 1000
_STAGES = ("retrieve", "tokenize", "mono", "runs")
_SHUFFLES = ("retrieve", "tokenize")
_GROWTH, _MORE_MIB = 1.15, 1024
_PLAN_SECONDS, _PLAN_MIB = 600, 2048
_SEED = 20_261_125
_PLAN = """
import sys
from beamrank.config.run import load_config
from pipelines.console.progress import ConsoleProgress
from pipelines.plan.make_plan import make_plan
make_plan(load_config(sys.argv[1]), ConsoleProgress(quiet=True)).publish()
"""


@dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        seconds: of the whole command.
        plan_seconds: until the plan is written; the start of Python is in it.
        launch_seconds: from then to the begin of the first shard.
        work_seconds: from there to the last receipt.
        seal_seconds: from the last receipt to the manifest.
        launcher_peak_mib, worker_peak_mib: the largest resident memory.
    """

    seconds: float
    plan_seconds: float
    launch_seconds: float
    work_seconds: float
    seal_seconds: float
    launcher_peak_mib: int
    worker_peak_mib: int


@dataclass(frozen=True)
class Row:
    """A size. `write` is the step `runs` without qrels; `evaluate_seconds` is what qrels add
    to it.
    """

    topics: int
    shards: int
    steps: Mapping[str, Any]
    evaluate_seconds: float

    def launcher_peak_mib(self, runner: str) -> int:
        """On `local` of the steps without a shuffle, which Beam keeps in this process there."""
        steps = (
            step for name, step in self.steps.items() if runner != "local" or name not in _SHUFFLES
        )
        return max(int(step["launcher_peak_mib"]) for step in steps)

    def seconds(self, what: str) -> float:
        """Of all commands: plan, launch, work, seal; write; evaluate."""
        if what == "evaluate":
            return self.evaluate_seconds
        if what == "write":
            return float(self.steps["runs"]["seconds"])
        return float(
            sum(step[f"{what}_seconds"] for name, step in self.steps.items() if name != "runs")
        )


def measure(options: argparse.Namespace, work: Path) -> Iterator[tuple[str, Part]]:
    """Yields the part of the runner after each size, with the sizes that were measured before; then
    a large plan.
    """
    plugins = work / "plugins"
    hash_backend.install(plugins)
    rows = {row["topics"]: Row(**row) for row in options.measured(options.runner).get("rows", [])}
    for topics in (_BASE_TOPICS, *(options.topics or TOPICS)):
        if topics != _BASE_TOPICS or topics not in rows:
            rows[topics] = _measure(work, options, topics, str(plugins))
        found = [rows[each] for each in sorted(rows)]
        yield (
            options.runner,
            Part(
                {"rows": [asdict(row) for row in found], "growth": growth(found)},
                targets(options.runner, found),
            ),
        )
    if options.planned:
        yield (
            f"plan of {options.planned:,} topics",
            _measure_plan(work, options.planned, str(plugins)),
        )


def _measure(work: Path, options: argparse.Namespace, topics: int, plugins: str) -> Row:
    folder = work / f"{options.runner}-{topics}"
    config = write_config(folder, topics)
    flags = [
        "--runner",
        options.runner,
        *(["--", *options.beam_flags] if options.beam_flags else []),
    ]
    steps: dict[str, Any] = {}
    for name in (*_STAGES, "evaluate"):
        stage, sets = ("runs", []) if name == "evaluate" else (name, ["--set", "qrels=null"])
        kept = folder / f"{name}.json"
        if not kept.exists():
            print(f"{topics:,} topics: {name}", file=sys.stderr)
            # What a measurement that was cut off has left would be resumed.
            for part in (folder / "out").glob(f"{stage}*"):
                shutil.rmtree(part)
            usage = run_metered(
                [BEAMRANK, "run", config, *sets, "--stage", stage, *flags], PYTHONPATH=plugins
            )
            kept.write_text(json.dumps(asdict(_step(folder / "out", stage, usage))))
        steps[name] = json.loads(kept.read_text())
    evaluated = steps.pop("evaluate")
    shards = len(read_plan(str(folder / "out")).shards)
    return Row(topics, shards, steps, round(evaluated["seconds"] - steps["runs"]["seconds"], 1))


def _step(output: Path, stage: str, usage: Usage) -> Step:
    """The parts of a command, by the times of its files."""
    current = read_current(str(output))
    assert current is not None
    planned = (output / current.plan).stat().st_mtime
    times = [planned] * 3
    if stage != "runs":
        plan = read_plan(str(output))
        name = plan.of_step(stage)[0].name
        manifest = plan.seal(name)
        assert manifest is not None
        begun = min(receipt.committed_seconds - receipt.seconds for receipt in manifest.receipts)
        done = max(receipt.committed_seconds for receipt in manifest.receipts)
        sealed = max(path.stat().st_mtime for path in (output / name).glob("manifest-*.json"))
        times = [begun, done, sealed]
    plan_seconds, launch, work, seal = np.diff([usage.started, planned, *times]).round(2).tolist()
    peaks = usage.driver_peak_bytes >> 20, usage.worker_peak_bytes >> 20
    return Step(round(usage.seconds, 1), plan_seconds, launch, work, seal, *peaks)


def _measure_plan(work: Path, topics: int, plugins: str) -> Part:
    folder = work / f"plan-{topics}"
    config = write_config(folder, topics, candidates=False)
    usage = run_metered([sys.executable, "-c", _PLAN, config], PYTHONPATH=plugins)
    peak = usage.driver_peak_bytes >> 20
    return Part(
        {"topics": topics, "seconds": round(usage.seconds, 1), "peak_mib": peak},
        (
            Target(
                f"seconds of a plan of {topics:,} topics",
                round(usage.seconds, 1),
                "at most",
                _PLAN_SECONDS,
            ),
            Target(f"peak MiB of a plan of {topics:,} topics", peak, "at most", _PLAN_MIB),
        ),
    )


def write_config(folder: Path, topics: int, candidates: bool = True) -> Path:
    """Writes a small corpus, topics and a run as Parquet, and qrels; those that are there stay."""
    path = folder / "config.yaml"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    rng, words = np.random.default_rng(_SEED), synthetic.vocabulary()
    _write_corpus(folder / "corpus.tsv", rng, words)
    _write_topics(
        folder / "topics.parquet", topics, _WORDS if candidates else _PLAN_WORDS, rng, words
    )
    _write_run(folder / "given.parquet", folder / "qrels.txt", topics if candidates else 1, rng)
    values = {
        "run_tag": "hashes",
        "corpus": {"path": "corpus.tsv", "format": "tsv"},
        "topics": {"path": "topics.parquet", "format": "parquet"},
        "candidates": {"run": "given.parquet", "k": K},
        "mono": {"checkpoint": "embedded:mono", "k": K},
        "backend": hash_backend.NAME,
        "measures": ["RR@10", "nDCG@10", "R@100"],
        "output": "out",
        **({"qrels": "qrels.txt"} if candidates else {}),
    }
    path.write_text(yaml.safe_dump(values))
    return path


def _write_corpus(path: Path, rng: np.random.Generator, words: Any) -> None:
    """Few and short passages: the join of a large corpus is measured by `scale`."""
    drawn = words[rng.integers(len(words), size=(_PASSAGES, _WORDS))]
    path.write_text("".join(f"{number}\t{' '.join(row)}\n" for number, row in enumerate(drawn)))


def _write_topics(
    path: Path, topics: int, length: int, rng: np.random.Generator, words: Any
) -> None:
    schema = pa.schema({"query_id": pa.string(), "text": pa.string()})
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, topics, 1 << 16):
            numbers = range(start, min(start + (1 << 16), topics))
            texts = [
                " ".join(row)
                for row in words[rng.integers(len(words), size=(len(numbers), length))]
            ]
            writer.write_table(
                pa.table([[f"q{number}" for number in numbers], texts], schema=schema)
            )


def _write_run(path: Path, qrels: Path, topics: int, rng: np.random.Generator) -> None:
    """K passages a topic, drawn evenly, and one judged doc among them."""
    kinds = {
        "query_id": pa.string(),
        "doc_id": pa.string(),
        "rank": pa.int32(),
        "score": pa.float32(),
    }
    schema, ids = pa.schema(kinds), np.array([str(number) for number in range(_PASSAGES)], object)
    # Distinct in a topic: multiples of a number without a common divisor, from a random start.
    steps = np.arange(K) * 977
    ranks = np.arange(1, K + 1)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer, qrels.open("w") as judged:
        for start in range(0, topics, _TOPICS_AT_ONCE):
            names = [f"q{number}" for number in range(start, min(start + _TOPICS_AT_ONCE, topics))]
            docs = ids[(rng.integers(_PASSAGES, size=(len(names), 1)) + steps) % _PASSAGES]
            columns = [
                np.repeat(names, K),
                docs.ravel(),
                np.tile(ranks, len(names)),
                np.tile(-ranks, len(names)),
            ]
            arrays = [
                pa.array(column.tolist(), kind)
                for column, kind in zip(columns, schema.types, strict=True)
            ]
            writer.write_table(pa.table(arrays, schema=schema))
            places = rng.integers(K, size=len(names))
            judged.writelines(
                f"{name} 0 {row[place]} 1\n"
                for name, row, place in zip(names, docs, places, strict=True)
            )


def growth(rows: Sequence[Row]) -> dict[str, float]:
    """The seconds of the largest size over those of the one before, per topic."""
    if len(rows) < 3:
        return {}
    before, last = rows[-2:]
    times = last.topics / before.topics
    names = ("plan", "launch", "work", "seal", "write", "evaluate")
    return {
        name: round(last.seconds(name) / max(before.seconds(name), 1e-9) / times, 3)
        for name in names
    }


def targets(runner: str, rows: Sequence[Row]) -> tuple[Target, ...]:
    """Each part at most 1.15 times linear, and a launcher that is flat."""
    if len(rows) < 2:
        return ()
    more = rows[-1].launcher_peak_mib(runner) - rows[0].launcher_peak_mib(runner)
    names = f"{rows[-1].topics:,} topics"
    return (
        Target(
            f"launcher's peak MiB above that of {rows[0].topics:,} topics, {names}",
            more,
            "at most",
            _MORE_MIB,
        ),
        *(
            Target(
                f"seconds of {name} per topic, {names} over the size before",
                value,
                "at most",
                _GROWTH,
            )
            for name, value in growth(rows).items()
        ),
    )
