"""Seconds and peak memory of `beamrank report` on a finished run of many topics, with scores from
a table of hashes.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import hash_backend, synthetic
from benchmarks.outputs import part_of
from benchmarks.results import Part
from benchmarks.subprocess_meter import BEAMRANK, run_metered

_PASSAGES = 1_000_000
_WANTED_SECONDS, _WANTED_MIB = 120, 2048


def measure(options: argparse.Namespace, work: Path) -> Iterator[tuple[str, Part]]:
    """Yields a part for each duo.k."""
    corpus, plugins, folder = work / "corpus.tsv", work / "plugins", work / "run"
    hash_backend.install(plugins)
    synthetic.write_corpus(corpus, _PASSAGES)
    for duo_k in options.duo_k:
        print(f"{options.queries:,} topics, duo.k {duo_k}", file=sys.stderr)
        duo = {"checkpoint": "embedded:duo", "k": duo_k}
        more: dict[str, Any] = {"duo": duo, "backend": hash_backend.NAME, "qrels": "qrels.txt"}
        config = synthetic.write_config(
            folder, corpus, _PASSAGES, options.queries, options.k, **more
        )
        # The stages before duo are done.
        output, page = folder / "out", work / f"report-{duo_k}"
        run_metered([BEAMRANK, "run", config, "--output", output], PYTHONPATH=str(plugins))
        usage = run_metered([BEAMRANK, "report", output, "--output", page, "--quiet"])
        sizes = {name: (page / name).stat().st_size for name in ("report.html", "curves.csv")}
        part = part_of(usage, _WANTED_SECONDS, _WANTED_MIB, passages=_PASSAGES, bytes=sizes)
        yield f"duo.k {duo_k}", part
