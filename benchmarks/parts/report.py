"""Seconds and peak memory of `beamrank report` on a finished run of many topics
(synthetic_output.py).
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import synthetic
from benchmarks.results import Part, Target
from benchmarks.subprocess_meter import BEAMRANK, run_metered
from benchmarks.synthetic_output import write_output

_PASSAGES = 1_000_000
_WANTED_SECONDS, _WANTED_MIB = 120, 2048


def measure(options: argparse.Namespace, work: Path) -> Iterator[tuple[str, Part]]:
    """Yields a part for each duo.k."""
    corpus = work / "corpus.tsv"
    if not corpus.exists():
        synthetic.write_corpus(corpus, _PASSAGES)
    for duo_k in options.duo_k:
        print(
            f"{options.queries:,} topics, {options.k:,} candidates, duo.k {duo_k}", file=sys.stderr
        )
        output = write_output(work / "run", corpus, _PASSAGES, options.queries, options.k, duo_k)
        page = work / f"report-{duo_k}"
        usage = run_metered([BEAMRANK, "report", output, "--output", page, "--quiet"])
        yield f"duo.k {duo_k}", _part(usage.seconds, usage.peak_bytes >> 20, page)


def _part(seconds: float, peak_mib: int, page: Path) -> Part:
    sizes = {name: (page / name).stat().st_size for name in ("report.html", "curves.csv")}
    return Part(
        {
            "report_seconds": round(seconds, 1),
            "peak_mib": peak_mib,
            "passages": _PASSAGES,
            "bytes": sizes,
        },
        (
            Target("seconds of the report", round(seconds, 1), "at most", _WANTED_SECONDS),
            Target("peak MiB of the report", peak_mib, "at most", _WANTED_MIB),
        ),
    )
