"""Measures how the join grows with the corpus and with the candidates, and writes benchmarks/results/scale.json.

    python -m benchmarks.parts.scale [--passages 1 2 4 8] [--topics 500 1000 2000 4000 8000] [--runner local]

Collections are synthetic (synthetic.py); each row is one `beamrank run --stage tokenize`: corpus to tokenized shards.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy import stats

from beamrank.stages.plan import read_plan
from beamrank.stages.scan_reports import read_scans
from benchmarks import results, synthetic
from benchmarks.machine import describe_machine, load_average
from benchmarks.results import Part, Target
from benchmarks.watched import BEAMRANK, be_quiet, watch

_RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "scale.json"
_MILLION = 1_000_000
_FEWEST_TOPICS = 1000
_WANTED_SECONDS, _WANTED_MIB = 600, 6 * 1024
# How far the largest corpus may lie above the smallest: its scan for each passage, and its memory.
_WANTED_GROWTH = 1.1


@dataclass(frozen=True)
class Row:
    """One join; `scan_seconds` are the seconds of all its corpus units together."""

    passages: int
    topics: int
    candidates: int
    shards: int
    seconds: float
    scan_seconds: float
    driver_peak_mib: int
    worker_peak_mib: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures each size, the corpus first and then the topics; a row is in the results as soon as it is there.

    Every runner has parts of its own in them.
    """
    options = _parser().parse_args(arguments)
    command = results.command_line("benchmarks.parts.scale", arguments)
    load = load_average()
    be_quiet()
    folder = nullcontext(str(options.work)) if options.work else tempfile.TemporaryDirectory(prefix="beamrank-scale-")
    with folder as path:
        work = Path(path)
        work.mkdir(parents=True, exist_ok=True)
        found = results.open_results(options.output, describe_machine(), {"k": options.k}, "synthetic passages")
        for name, sizes in _parts(options).items():
            start = time.monotonic()
            rows: list[Row] = []
            for size in sizes:
                rows.append(_measure(work, options, *size))
                part = Part({"rows": [asdict(row) for row in rows], **_growth(rows)}, targets(name, rows))
                found["parts"][f"{options.runner}: {name}"] = results.part_to_json(
                    part, time.monotonic() - start, command, load
                )
                found = results.write_results(options.output, found, sorted(found["parts"]))


def _parts(options: argparse.Namespace) -> dict[str, list[tuple[int, int]]]:
    """(passages, topics) of each row: one grows while the other stays."""
    passages = [round(each * _MILLION) for each in options.passages]
    return {
        "corpus": [(each, _FEWEST_TOPICS) for each in passages],
        "candidates": [(min(passages), each) for each in options.topics],
    }


def _measure(work: Path, options: argparse.Namespace, passages: int, topics: int) -> Row:
    print(f"{passages:,} passages, {topics:,} topics", file=sys.stderr)
    corpus, folder = work / f"corpus-{passages}.tsv", work / f"{passages}-{topics}"
    if not corpus.exists():
        synthetic.write_corpus(corpus, passages)
    config = synthetic.write_config(folder, corpus, passages, topics, options.k)
    output = folder / "out"
    # What an earlier measurement left would be resumed.
    shutil.rmtree(output, ignore_errors=True)
    command = [BEAMRANK, "run", str(config), "--output", str(output), "--stage"]
    watch([*command, "retrieve"])
    watched = watch([*command, "tokenize", "--runner", options.runner, "--", *options.beam_flags])
    plan = read_plan(str(output))
    stage = plan.of_kind("tokenize")[0]
    manifest = plan.sealed(stage.name)
    assert manifest is not None
    return Row(
        passages=passages,
        topics=topics,
        candidates=manifest.total("docs"),
        shards=len(plan.shards),
        seconds=round(watched.seconds, 1),
        scan_seconds=round(read_scans(plan.folder(stage.name).url, stage.keys["corpus"]).seconds, 1),
        driver_peak_mib=watched.driver_peak_bytes >> 20,
        worker_peak_mib=watched.worker_peak_bytes >> 20,
    )


def _growth(rows: Sequence[Row]) -> dict[str, Any]:
    """Seconds as a line over passages or candidates, whichever grows."""
    name = "passages" if len({row.passages for row in rows}) > 1 else "candidates"
    if len(rows) < 2:
        return {}
    line = stats.linregress([getattr(row, name) for row in rows], [row.seconds for row in rows])
    return {
        "over": name,
        "seconds_per_million": round(line.slope * _MILLION, 2),
        "seconds_at_none": round(line.intercept, 1),
        "r_squared": round(line.rvalue**2, 4),
    }


def targets(name: str, rows: Sequence[Row]) -> tuple[Target, ...]:
    """What is wanted of a growing corpus. Its scan shall be linear: the rest of a command is mostly its start."""
    if name != "corpus" or len(rows) < 2:
        return ()
    first, last = rows[0], rows[-1]
    times = last.passages / first.passages
    peak = [max(row.driver_peak_mib, row.worker_peak_mib) for row in (first, last)]
    return (
        Target(f"seconds of {last.passages:,} passages", last.seconds, "at most", _WANTED_SECONDS),
        Target(f"peak MiB of a process, {last.passages:,} passages", max(peak), "at most", _WANTED_MIB),
        Target(
            "seconds of the scan per passage, largest over smallest corpus",
            round(last.scan_seconds / first.scan_seconds / times, 3),
            "at most",
            _WANTED_GROWTH,
        ),
        Target("peak memory, largest over smallest corpus", round(peak[1] / peak[0], 3), "at most", _WANTED_GROWTH),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.parts.scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--passages", type=float, nargs="+", default=[1, 2, 4, 8], help="millions (%(default)s)")
    parser.add_argument("--topics", type=int, nargs="+", default=[500, 1000, 2000, 4000, 8000], help="(%(default)s)")
    parser.add_argument("--k", type=int, default=1000, help="candidates a topic (%(default)s)")
    parser.add_argument("--runner", default="local", help="as for beamrank run (%(default)s)")
    parser.add_argument("--work", type=Path, help="keep what is made here, instead of in a temporary folder")
    parser.add_argument("--output", type=Path, default=_RESULTS, help="the results (%(default)s)")
    parser.add_argument("beam_flags", nargs="*", help="Beam's own flags, after --")
    return parser


if __name__ == "__main__":
    main()
