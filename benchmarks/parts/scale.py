"""How the join grows with the corpus and with the candidates.

Collections are synthetic (synthetic.py); each row is one `beamrank run --stage tokenize`, from
corpus to tokenized shards.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from beamrank.commit.plan import read_plan
from beamrank.commit.scans import read_scans
from benchmarks import synthetic
from benchmarks.outputs import run_stage, sealed
from benchmarks.results import Part, Target

_MILLION = 1_000_000
_FEWEST_TOPICS = 1000
_TOPICS = (500, 1000, 2000, 4000, 8000)
_WANTED_SECONDS, _WANTED_MIB = 600, 6 * 1024
# The largest corpus over the smallest: the scan per passage, and the memory.
_WANTED_GROWTH = 1.1


@dataclass(frozen=True)
class Row:
    """One join; `scan_seconds` is the sum over its corpus units."""

    passages: int
    topics: int
    candidates: int
    shards: int
    seconds: float
    scan_seconds: float
    driver_peak_mib: int
    worker_peak_mib: int


def measure(options: argparse.Namespace, work: Path) -> Iterator[tuple[str, Part]]:
    """Yields a part for the corpus and one for the candidates, each again after every row."""
    for name, sizes in _sizes(options).items():
        rows: list[Row] = []
        for passages, topics in sizes:
            rows.append(_measure(work, options, passages, topics))
            part = Part({"rows": list(map(asdict, rows))}, targets(name, rows))
            yield f"{options.runner}: {name}", part


def _sizes(options: argparse.Namespace) -> dict[str, list[tuple[int, int]]]:
    """(passages, topics) of each row: one grows while the other is constant."""
    passages = [round(millions * _MILLION) for millions in options.passages]
    return {
        "corpus": [(count, _FEWEST_TOPICS) for count in passages],
        "candidates": [(min(passages), count) for count in options.topics or _TOPICS],
    }


def _measure(work: Path, options: argparse.Namespace, passages: int, topics: int) -> Row:
    print(f"{passages:,} passages, {topics:,} topics", file=sys.stderr)
    corpus, folder = work / f"corpus-{passages}.tsv", work / f"{passages}-{topics}"
    if not corpus.exists():
        synthetic.write_corpus(corpus, passages)
    config = synthetic.write_config(folder, corpus, passages, topics, options.k)
    output = folder / "out"
    # The output of an earlier measurement would be resumed.
    shutil.rmtree(output, ignore_errors=True)
    run_stage(config, output, "retrieve")
    usage = run_stage(
        config, output, "tokenize", "--runner", options.runner, "--", *options.beam_flags
    )
    plan = read_plan(str(output))
    (stage,) = plan.of_step("tokenize")
    scans = read_scans(plan.folder(stage.name).url, str(stage.corpus_digest))
    return Row(
        passages=passages,
        topics=topics,
        candidates=sealed(plan, stage.name).total("docs"),
        shards=len(plan.shards),
        seconds=round(usage.seconds, 1),
        scan_seconds=round(scans.seconds, 1),
        driver_peak_mib=usage.driver_peak_bytes >> 20,
        worker_peak_mib=usage.worker_peak_bytes >> 20,
    )


def targets(name: str, rows: Sequence[Row]) -> tuple[Target, ...]:
    """The targets of a growing corpus. Its scan should be linear; the rest of a command is mostly
    its start.
    """
    if name != "corpus" or len(rows) < 2:
        return ()
    first, last = rows[0], rows[-1]
    times = last.passages / first.passages
    peak = [max(row.driver_peak_mib, row.worker_peak_mib) for row in (first, last)]
    scan = round(last.scan_seconds / first.scan_seconds / times, 3)
    size, growth = f"{last.passages:,} passages", "largest over smallest corpus"
    limits = {
        f"seconds of {size}": (last.seconds, _WANTED_SECONDS),
        f"peak MiB of a process, {size}": (max(peak), _WANTED_MIB),
        f"seconds of the scan per passage, {growth}": (scan, _WANTED_GROWTH),
        f"peak memory, {growth}": (round(peak[1] / peak[0], 3), _WANTED_GROWTH),
    }
    return tuple(Target(name, value, "at most", most) for name, (value, most) in limits.items())
