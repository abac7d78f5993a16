"""The campaign: `python -m benchmarks.fuzz --seconds 600` gives every target the same time, and
adds to a table.

Each target runs in a process of its own, forked from one that has imported all; a later start draws
other inputs. An input that was read is a seed of later ones. What fails is kept in a folder, with
its traceback, once for each place. `python -m benchmarks.fuzz.guided` lets Atheris choose.
"""

import fnmatch
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from beamrank.storage import digested
from benchmarks.commands import parser_of
from benchmarks.fuzz.inputs import mutate
from benchmarks.fuzz.seeds import ROOT
from benchmarks.fuzz.targets import TARGETS, Target
from benchmarks.fuzz.watch import Prepared, attempt, prepare

_POOL = 200
_LARGEST_BYTES = 1 << 16
_SLACK_SECONDS = 120
_OURS = ("beamrank/", "models/", "contrib/", "pipelines/", "transforms/")


@dataclass
class Counts:
    """What became of the inputs of a target: the errors by the place that raised them."""

    inputs: int = 0
    read: int = 0
    seconds: float = 0.0
    slowest_ms: float = 0.0
    found: dict[str, int] = field(default_factory=dict)

    def add(self, more: "Counts") -> None:
        """Adds the counts of a later start."""
        self.inputs += more.inputs
        self.read += more.read
        self.seconds = round(self.seconds + more.seconds, 1)
        self.slowest_ms = round(max(self.slowest_ms, more.slowest_ms), 1)
        self.found = dict(Counter(self.found) + Counter(more.found))


class Session:
    """Inputs of one target, tried one by one."""

    def __init__(self, prepared: Prepared, kept: Path) -> None:
        self.prepared, self.counts, self.pool = prepared, Counts(), list(prepared.seeds)
        self._kept = kept

    def try_one(self, content: bytes, rng: random.Random) -> None:
        """Tries an input, and keeps it where it fails."""
        start, is_read, counts = time.process_time(), False, self.counts
        try:
            is_read = attempt(self.prepared, content)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._keep(content, error)
        took = time.process_time() - start
        counts.inputs += 1
        counts.read += is_read
        counts.seconds += took
        counts.slowest_ms = max(counts.slowest_ms, 1000 * took)
        if is_read and len(content) < _LARGEST_BYTES:
            at = rng.randrange(_POOL)
            self.pool[at : at + 1] = [content]

    def draw(self, rng: random.Random) -> bytes:
        """A new input."""
        return mutate(rng.choice(self.pool), self.prepared.target.codec, rng.randrange)

    def _keep(self, content: bytes, error: BaseException) -> None:
        place = f"{type(error).__name__} {place_of(error)}"
        if place not in self.counts.found:
            name = f"{self.prepared.target.name} {place}".replace("/", "-").replace(" ", "_")
            self._kept.joinpath(f"{name}.input").write_bytes(content)
            trace = "".join(traceback.format_exception(error))
            self._kept.joinpath(f"{name}.txt").write_text(trace, "utf-8", "backslashreplace")
        self.counts.found[place] = self.counts.found.get(place, 0) + 1


def place_of(error: BaseException) -> str:
    """The last place of ours in a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    names = [os.path.relpath(frame.filename, ROOT) for frame in frames]
    ours = [at for at, name in enumerate(names) if name.startswith(_OURS)]
    at = (ours or [-1])[-1]
    return f"{names[at]}:{frames[at].lineno}"


def run_target(target: Target, seed: str, seconds: float, work: Path, kept: Path) -> Counts:
    """Tries changed inputs of a target for some seconds, after its seeds, which must be read."""
    prepared = prepare(target, work / "files")
    for content in prepared.seeds:
        assert attempt(prepared, content), f"a seed of {target.name} is refused"
    session, rng, end = Session(prepared, kept), random.Random(seed), time.process_time() + seconds
    while time.process_time() < end:
        session.try_one(session.draw(rng), rng)
    return session.counts


def forked(target: Target, run: Callable[[Path], Counts], seconds: float, kept: Path) -> Counts:
    """The counts of a function in a process of its own; its end by a signal is a finding."""
    in_memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="beamrank-fuzz-", dir=in_memory) as folder:
        work = Path(folder)

        def count() -> None:
            most = int(seconds + _SLACK_SECONDS)
            resource.setrlimit(resource.RLIMIT_CPU, (most, most))
            (work / "counts").write_text(json.dumps(asdict(run(work))))

        process = multiprocessing.get_context("fork").Process(target=count)
        process.start()
        process.join()
        if process.exitcode == 0:
            return Counts(**json.loads((work / "counts").read_text()))
        what = f"ended with {process.exitcode}"
        shutil.copytree(work, kept / f"{target.name} {what}".replace(" ", "_"), dirs_exist_ok=True)
        return Counts(found={what: 1})


_OPTIONS = {
    "--seconds": (600.0, "of the processor, in sum"),
    "--targets": ("*", "a pattern of names"),
    "--seed": ("0", "of the inputs"),
    "--results": (Path, "JSON to which the counts are added"),
    "--kept": (Path("build/fuzz"), "the folder of inputs that fail"),
}


def main(arguments: Sequence[str]) -> int:
    """Runs the campaign; returns 1 where something was found."""
    options = parser_of("benchmarks.fuzz", __doc__, _OPTIONS).parse_args(arguments)
    options.kept.mkdir(parents=True, exist_ok=True)
    chosen = [target for target in TARGETS if fnmatch.fnmatch(target.name, options.targets)]
    # A file that was just written would be waited for.
    digested._TICK_NANOSECONDS = 0
    seconds, errors = options.seconds / len(chosen), 0
    for target in chosen:
        results: Path | None = options.results
        table = json.loads(results.read_text()) if results and results.exists() else {}
        counts = Counts(**table.get(target.name, {}))
        seed = f"{options.seed} {target.name} {counts.inputs}"
        run = partial(run_target, target, seed, seconds, kept=options.kept)
        new = forked(target, run, seconds, options.kept)
        counts.add(new)
        print(
            f"{target.name}: {new.inputs:,} inputs, {new.read:,} read, slowest "
            f"{new.slowest_ms:.0f} ms",
            *new.found.items(),
            flush=True,
        )
        errors += len(new.found)
        if results:
            table[target.name] = asdict(counts)
            results.write_text(json.dumps(table, indent=1) + "\n")
    return int(errors > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
