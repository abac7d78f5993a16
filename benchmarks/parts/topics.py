"""How a job grows with its topics: 100 candidates each, from Parquet, and scores from a table of
hashes. Each stage is one `beamrank run --stage`.
"""

import argparse
import random
import re
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from beamrank.commit.plan import read_current, read_plan
from benchmarks import hash_backend, synthetic
from benchmarks.hosts import LAUNCHER, POOL_PORT, Host, Place, Pools, two_hosts
from benchmarks.outputs import part_of, run_stage, sealed
from benchmarks.results import Part, Target
from benchmarks.subprocess_meter import BEAMRANK, Usage, run_metered

TOPICS = (10_000, 100_000, 1_000_000)
K = 100
_BASE_TOPICS = 1000
_PASSAGES, _WORDS = 100_000, 6
_STAGES = ("retrieve", "tokenize", "mono", "runs")
_SHUFFLES = ("retrieve", "tokenize")
_PARTS = ("plan", "launch", "work", "seal")
_GROWTH, _MORE_MIB = 1.15, 1024
_PLAN_SECONDS, _PLAN_MIB = 600, 2048
_LAUNCHER_MIB = 1_200_000_000 >> 20
_MEMORY = "4g"
_POLL_SECONDS = 0.1
# A line of a worker's log: TIME LEVEL STAGE SHARD PID LOGGER MESSAGE.
_STARTED = re.compile(r"^\S+ INFO (\S+) (\d+) \d+ models\.stages\.attempt started$", re.MULTILINE)
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
    if options.two_hosts:
        yield from _on_two_hosts(work, options, str(plugins))
        return
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
    flags, steps = _flags(options), {}
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


def _flags(options: argparse.Namespace) -> list[str]:
    return ["--runner", options.runner, "--", *options.beam_flags]


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


def _on_two_hosts(
    work: Path, options: argparse.Namespace, plugins: str
) -> Iterator[tuple[str, Part]]:
    """Yields a part for each size: an undisturbed run, then as many as `rounds` that each lose a
    host once a drawn number of shards is done.
    """
    # Java and pools of these tests.
    from tests.support.services.clusters import class_path, spark_cluster

    folder = work / "hosts"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with ExitStack() as stack:
        hosts = stack.enter_context(two_hosts(folder))
        places, jars = [host.place for host in hosts], class_path("spark")
        pools = Pools(hosts, folder, {"PYTHONPATH": plugins}, stack)
        cluster = stack.enter_context(
            spark_cluster(folder / "cluster", Place(LAUNCHER), places, jars, _MEMORY)
        )
        pool = ("--environment_type=EXTERNAL", f"--environment_config=localhost:{POOL_PORT}")
        options.runner = "spark"
        options.beam_flags = [f"--spark_master_url={cluster.address}", *pool, *cluster.flags]
        for topics in options.topics or TOPICS[:2]:
            output = work / f"spark-{topics}/out"
            row = _measure(work, options, topics, plugins)
            expected, losses = _contents(output), []
            for seed in range(options.rounds):
                drawn, host = random.Random(seed), hosts[seed % len(hosts)]
                # Shards of tokenize or mono are left: the launcher retrieves by itself.
                receipts = drawn.randrange(row["shards"], 3 * row["shards"])
                shutil.rmtree(output)
                losing = threading.Thread(
                    target=_lose,
                    args=(pools, host, cluster.join, output, receipts),
                    daemon=True,
                )
                losing.start()
                config = str(output.with_name("config.yaml"))
                command = [BEAMRANK, "run", config, "--output", str(output), *_flags(options)]
                usage = run_metered(command, PYTHONPATH=plugins)
                losing.join()
                losses.append(
                    {
                        "seed": seed,
                        "host": host.name,
                        "receipts_before": receipts,
                        "same_bytes": _contents(output) == expected,
                        "repeated": repeated(output),
                        "seconds": round(usage.seconds, 1),
                        "launcher_peak_mib": usage.driver_peak_bytes >> 20,
                    }
                )
                yield (
                    f"{topics:,} topics",
                    Part({**row, "losses": losses}, targets_of_losses(row, losses)),
                )


def _lose(
    pools: Pools,
    host: Host,
    join: Callable[[Place], None],
    output: Path,
    receipts: int,
) -> None:
    """Crashes a host once an output has so many receipts, and starts it again."""
    while len([*output.glob("*/receipts/[0-9]*.json")]) < receipts:
        time.sleep(_POLL_SECONDS)
    pools.lose(host, join).join()


def _contents(output: Path) -> dict[str, bytes]:
    """A hash of each part and run of an output."""
    files = chain(output.glob("*/part-*.parquet"), output.glob("runs/*.trec"))
    return {path.name: blake2b(path.read_bytes()).digest() for path in files}


def repeated(output: Path) -> int:
    """How many shards workers started twice."""
    logs = (path.read_text(errors="replace") for path in (output / "logs").iterdir())
    starts = Counter(shard for log in logs for shard in _STARTED.findall(log))
    return starts.total() - len(starts)


def targets_of_losses(row: Row, losses: Sequence[Row]) -> tuple[Target, ...]:
    """The same bytes, at most one shard twice for a lost slot, and the launcher's memory."""
    peaks = (one["launcher_peak_mib"] for one in (*row["steps"].values(), *losses))
    changed = sum(not one["same_bytes"] for one in losses)
    return (
        Target("runs with other bytes", changed, "at most", 0),
        Target("shards twice, a lost host", max(one["repeated"] for one in losses), "at most", 1),
        Target("launcher's peak MiB", max(peaks), "at most", _LAUNCHER_MIB),
    )
