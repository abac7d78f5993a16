"""How a job grows with its topics: 100 candidates each, from Parquet, and scores from a table of
hashes. Each stage is one `beamrank run --stage`.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beamrank.commit.plan import read_current, read_plan
from benchmarks import hash_backend, synthetic
from benchmarks.outputs import part_of, run_stage, sealed
from benchmarks.results import Part, Target
from benchmarks.subprocess_meter import Usage, run_metered

TOPICS = (10_000, 100_000, 1_000_000)
K = 100
_BASE_TOPICS = 1000
_PASSAGES, _WORDS = 100_000, 6
_STAGES = ("retrieve", "tokenize", "mono", "runs")
_SHUFFLES = ("retrieve", "tokenize")
_PARTS = ("plan", "launch", "work", "seal")
_GROWTH, _MORE_MIB = 1.15, 1024
_PLAN_SECONDS, _PLAN_MIB = 600, 2048
_PLAN = """
import sys
from beamrank.config.load import load_config
from pipelines.console.progress import ConsoleProgress
from pipelines.plan.make_plan import make_plan
make_plan(load_config(sys.argv[1]), ConsoleProgress(quiet=True)).publish()
"""

Row = Mapping[str, Any]
"""A size: its `topics` and `shards`; its `steps`, of which `runs` is without qrels; and
`evaluate_seconds`, what qrels add to that.
"""


def measure(options: argparse.Namespace, work: Path) -> Iterator[tuple[str, Part]]:
    """Yields the part of the runner after each size, with the sizes that were measured before; then
    a large plan.
    """
    plugins = work / "plugins"
    hash_backend.install(plugins)
    rows = {row["topics"]: row for row in options.measured(options.runner).get("rows", [])}
    for topics in (_BASE_TOPICS, *(options.topics or TOPICS)):
        if topics != _BASE_TOPICS or topics not in rows:
            rows[topics] = _measure(work, options, topics, str(plugins))
        known = [rows[topics] for topics in sorted(rows)]
        figures = {"rows": known, "growth": growth(known)}
        yield options.runner, Part(figures, targets(options.runner, known))
    if options.planned:
        config = write_config(work, work / "plan", options.planned, k=1)
        usage = run_metered([sys.executable, "-c", _PLAN, config], PYTHONPATH=str(plugins))
        part = part_of(usage, _PLAN_SECONDS, _PLAN_MIB, topics=options.planned)
        yield f"plan of {options.planned:,} topics", part


def _measure(work: Path, options: argparse.Namespace, topics: int, plugins: str) -> Row:
    folder = work / f"{options.runner}-{topics}"
    config, output = write_config(work, folder, topics, qrels="qrels.txt"), folder / "out"
    # What a measurement that was cut off has left would be resumed.
    shutil.rmtree(output, ignore_errors=True)
    flags = ["--runner", options.runner, "--", *options.beam_flags]
    steps = {}
    for stage in _STAGES:
        print(f"{topics:,} topics: {stage}", file=sys.stderr)
        usage = run_stage(config, output, stage, "--set", "qrels=null", *flags, PYTHONPATH=plugins)
        steps[stage] = _step(output, stage, usage)
    shutil.rmtree(output / "runs")
    seconds = run_stage(config, output, "runs", *flags, PYTHONPATH=plugins).seconds
    return {
        "topics": topics,
        "shards": len(read_plan(str(output)).shards),
        "steps": steps,
        "evaluate_seconds": round(seconds - steps["runs"]["seconds"], 1),
    }


def _step(output: Path, stage: str, usage: Usage) -> dict[str, float]:
    """A command: the seconds until the plan is written, from then to the begin of the first shard,
    to the last receipt, and to the manifest, by the times of its files; and its memory.
    """
    current = read_current(str(output))
    assert current is not None
    planned = (output / current.plan).stat().st_mtime
    times = [planned] * 3
    if stage != "runs":
        plan = read_plan(str(output))
        name = plan.of_step(stage)[0].name
        ends = {
            receipt.committed_seconds: receipt.seconds for receipt in sealed(plan, name).receipts
        }
        sealed_at = max(path.stat().st_mtime for path in (output / name).glob("manifest-*.json"))
        times = [min(end - seconds for end, seconds in ends.items()), max(ends), sealed_at]
    spans = np.diff([usage.started, planned, *times]).round(2).tolist()
    return {
        "seconds": round(usage.seconds, 1),
        **{f"{part}_seconds": span for part, span in zip(_PARTS, spans, strict=True)},
        "launcher_peak_mib": usage.driver_peak_bytes >> 20,
        "worker_peak_mib": usage.worker_peak_bytes >> 20,
    }


def write_config(work: Path, folder: Path, topics: int, k: int = K, **more: Any) -> Path:
    """Writes short passages, and topics with their candidates as Parquet; those that are there
    stay. `more` are further keys.
    """
    # The join of a large corpus is measured by `scale`.
    corpus, path = work / "corpus.tsv", folder / "config.yaml"
    if not corpus.exists():
        synthetic.write_corpus(corpus, _PASSAGES, _WORDS)
    if path.exists():
        return path
    more |= {"backend": hash_backend.NAME, "measures": ["RR@10", "nDCG@10", "R@100"]}
    return synthetic.write_config(folder, corpus, _PASSAGES, topics, k, "given.parquet", **more)


def _seconds(row: Row) -> dict[str, float]:
    """Of all commands: plan, launch, work, seal; write; evaluate."""
    stages = [step for name, step in row["steps"].items() if name != "runs"]
    return {
        **{part: sum(step[f"{part}_seconds"] for step in stages) for part in _PARTS},
        "write": row["steps"]["runs"]["seconds"],
        "evaluate": row["evaluate_seconds"],
    }


def growth(rows: Sequence[Row]) -> dict[str, float]:
    """The seconds of the largest size over the size before, per topic."""
    if len(rows) < 3:
        return {}
    before, last = map(_seconds, rows[-2:])
    times = rows[-1]["topics"] / rows[-2]["topics"]
    return {name: round(last[name] / max(before[name], 1e-9) / times, 3) for name in last}


def targets(runner: str, rows: Sequence[Row]) -> tuple[Target, ...]:
    """Each part at most 1.15 times linear, and a launcher that is flat."""
    if len(rows) < 2:
        return ()
    # `local` keeps Beam's shuffle in the launcher.
    left_out = _SHUFFLES if runner == "local" else ()
    least, most = (
        max(
            step["launcher_peak_mib"] for name, step in row["steps"].items() if name not in left_out
        )
        for row in (rows[0], rows[-1])
    )
    names = f"{rows[-1]['topics']:,} topics"
    above = f"launcher's peak MiB above {rows[0]['topics']:,} topics, {names}"
    return (
        Target(above, most - least, "at most", _MORE_MIB),
        *(
            Target(f"{name} per topic, {names} over the size before", value, "at most", _GROWTH)
            for name, value in growth(rows).items()
        ),
    )
