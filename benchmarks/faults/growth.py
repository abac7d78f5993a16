r"""Repeats a small run, in one process and as separate commands, and measures what grows.

    MALLOC_ARENA_MAX=1 python -m benchmarks.faults.growth --minutes 90 [--apart] \
        [--folder FOLDER] [--results FILE]

After each run: resident memory without mapped files, open files, threads, temporary files and files
of the cache; of separate commands the peak of memory in place of the first three. Each is a line of
the results; the slope of each a run is printed with its interval of 95 % (Theil and Sen's, of the
means of twenty parts, as runs in a row are alike; without the first fifth, in which libraries fill
their own caches). With MALLOC_ARENA_MAX=1, one arena for all threads, memory differs less from run
to run.
"""

import gc
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import psutil

from benchmarks.commands import parser_of, work_folder
from benchmarks.report import table

Sample = Mapping[str, float]
_WARM_UP = 0.2
_PARTS = 20


def slopes(samples: Sequence[Sample]) -> dict[str, tuple[float, ...]]:
    """The growth of each figure a run, and the ends of its interval."""
    from scipy.stats import theilslopes

    kept = samples[int(len(samples) * _WARM_UP) :]
    size = max(1, len(kept) // _PARTS)
    growth = {}
    for name in kept[0]:
        values = np.array([sample[name] for sample in kept[len(kept) % size :]])
        slope, _, low, high = theilslopes(values.reshape(-1, size).mean(axis=1), alpha=0.95)
        growth[name] = tuple((np.array([slope, low, high]) / size).tolist())
    return growth


def measure(
    run: Callable[[Path], Sample], folder: Path, seconds: float, results: Path | None = None
) -> list[Sample]:
    """Repeats a run into new outputs below a folder for so long, at least three times."""
    samples: list[Sample] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(samples) < 3:
        output = folder / f"out-{len(samples)}"
        of_process = run(output)
        shutil.rmtree(output)
        files = {
            f"files in {name}": float(sum(len(names) for *_, names in os.walk(folder / name)))
            for name in ("tmp", "cache")
        }
        samples.append({**of_process, **files})
        if results is not None:
            with results.open("a") as file:
                file.write(json.dumps(samples[-1]) + "\n")
    return samples


def _run_here(config: Path) -> Callable[[Path], Sample]:
    from pipelines.execute import run

    process = psutil.Process()

    def once(output: Path) -> Sample:
        run(config, output=output)
        gc.collect()
        memory = process.memory_info()
        # Of mapped files the kernel keeps as much as there is room for.
        own = (memory.rss - memory.shared) / 2**20
        return {
            "memory, MiB": own,
            "open files": process.num_fds(),
            "threads": process.num_threads(),
        }

    return once


def _run_apart(config: Path) -> Callable[[Path], Sample]:
    from benchmarks.subprocess_meter import BEAMRANK, run_metered

    def once(output: Path) -> Sample:
        usage = run_metered([BEAMRANK, "run", config, "--output", output])
        return {
            "peak memory, MiB": usage.peak_bytes / 2**20,
            "processes left": float(len(psutil.Process().children())),
        }

    return once


_OPTIONS = {
    "--minutes": (90.0, "how long"),
    "--apart": (False, "each run is a command of its own"),
    "--folder": (Path, "of the collection and the outputs"),
    "--results": (Path, "JSON lines, one a run"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and prints the slopes as a table."""
    options = parser_of("benchmarks.faults.growth", __doc__, _OPTIONS).parse_args(arguments)
    with work_folder(options.folder) as folder:
        for name in ("tmp", "cache"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        os.environ |= {"TMPDIR": str(folder / "tmp"), "BEAMRANK_CACHE": str(folder / "cache")}
        tempfile.tempdir = None
        from tests.support.small_collection import small_cascade

        config = small_cascade(folder).path
        started = time.monotonic()
        run = (_run_apart if options.apart else _run_here)(config)
        samples = measure(run, folder, options.minutes * 60, options.results)
        minutes = (time.monotonic() - started) / 60
    where = "commands" if options.apart else "runs in one process"
    print(f"{len(samples):,} {where} in {minutes:.0f} minutes\n")
    rows = []
    for name, slope in slopes(samples).items():
        growth = dict(zip(("growth", "from", "to"), slope, strict=True))
        rows.append({"a run": name, **growth, "last": samples[-1][name]})
    print(table(rows))


if __name__ == "__main__":
    main()
