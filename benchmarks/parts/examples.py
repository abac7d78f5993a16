"""Seconds and peak memory of `beamrank convert msmarco` on a top1000 file of MS MARCO's size, to
TFRecord and back.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

from benchmarks import synthetic
from benchmarks.outputs import part_of
from benchmarks.results import Part
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
        print(f"{lines:,} examples: {name}", file=sys.stderr)
        rmtree(work / to, ignore_errors=True)
        usage = run_metered(
            [BEAMRANK, "convert", "msmarco", given, "--output", work / to, "--to", to]
        )
        figures = {
            "examples": lines,
            "examples_per_second": round(lines / usage.seconds),
            "bytes_read": given.stat().st_size,
            "bytes_written": sum(path.stat().st_size for path in (work / to).iterdir()),
        }
        yield name, part_of(usage, _WANTED_SECONDS, _WANTED_MIB, **figures)
    rmtree(work / "parquet", ignore_errors=True)
