"""Seconds and peak memory of `beamrank convert msmarco` on a top1000 file of MS MARCO's size, to
TFRecord and back.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

from benchmarks import synthetic
from benchmarks.results import Part, Target
from benchmarks.subprocess_meter import BEAMRANK, run_metered

_PASSAGES = 8_841_823
_WANTED_SECONDS, _WANTED_MIB = 900, 4096


def measure(options: argparse.Namespace, work: Path) -> Iterator[tuple[str, Part]]:
    """Yields a part for each conversion."""
    lines = options.queries * options.k
    source = work / "top1000.dev.tsv"
    if not source.exists():
        synthetic.write_top1000(source, options.queries, options.k, _PASSAGES)
    examples = work / "tfrecord" / "dataset_dev.tf"
    for name, given, to in (
        ("to TFRecord", source, "tfrecord"),
        ("TFRecord to Parquet", examples, "parquet"),
    ):
        if not options.conversion or name in options.conversion:
            print(f"{lines:,} examples: {name}", file=sys.stderr)
            rmtree(work / to, ignore_errors=True)
            usage = run_metered(
                [BEAMRANK, "convert", "msmarco", given, "--output", work / to, "--to", to]
            )
            yield name, _part(lines, usage.seconds, usage.peak_bytes >> 20, given, work / to)
    rmtree(work / "parquet", ignore_errors=True)


def _part(lines: int, seconds: float, peak_mib: int, source: Path, output: Path) -> Part:
    written = sum(path.stat().st_size for path in output.iterdir())
    figures = {
        "examples": lines,
        "seconds": round(seconds, 1),
        "examples_per_second": round(lines / seconds),
        "peak_mib": peak_mib,
        "bytes_read": source.stat().st_size,
        "bytes_written": written,
    }
    limits = (
        Target("seconds", round(seconds, 1), "at most", _WANTED_SECONDS),
        Target("peak MiB", peak_mib, "at most", _WANTED_MIB),
    )
    return Part(figures, limits)
