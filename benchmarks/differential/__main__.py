"""Random inputs through beamrank and through other libraries or plain loops: every difference is an
error.

    python -m benchmarks.differential [SUBJECT ...] --seed S --count N

`evaluation`: run files and qrels, against pytrec_eval and ir_measures, to the last bit of each
topic. `ranking`: aggregations, pooling, rankings, segments, truncation and layouts, against loops
over one number at a time. `families`: checkpoints of random sizes, against transformers. `bm25`:
hits of random collections, against bare pyserini. `reuse`: a run after another one, against the
same run into an empty folder.

Case i of N has the seed S + i. A case that differs is printed with the command that repeats it, and
the exit code is 1.
"""

import argparse
import importlib
import math
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from benchmarks.commands import parser_of
from benchmarks.results import Part, Results, command_line
from benchmarks.subprocess_meter import be_quiet

# From a seed and an empty folder to the number of values that were compared; AssertionError where
# one differs.
Check: TypeAlias = Callable[[int, Path], int]

SUBJECTS = ("evaluation", "ranking", "families", "bm25", "reuse")
_REPORTED_SECONDS = 60
_RESULTS = Path(__file__).resolve().parents[1] / "results" / "differential.json"


def check_of(subject: str) -> Check:
    """The check of a subject."""
    check: Check = importlib.import_module(f"benchmarks.differential.{subject}").check
    return check


def campaign(subject: str, seed: int, count: int, seconds: float = math.inf) -> Iterator[Part]:
    """Runs the cases of a subject, and prints those that differ; yields what was found about every
    so many seconds.
    """
    check, compared, failed = check_of(subject), 0, list[int]()
    shown = time.monotonic()
    for case in range(seed, seed + count):
        with tempfile.TemporaryDirectory(prefix="beamrank-differential-") as folder:
            try:
                compared += check(case, Path(folder))
            except Exception:
                failed.append(case)
                print(
                    f"{traceback.format_exc()}python -m benchmarks.differential {subject} --seed "
                    f"{case} --count 1\n"
                )
        if time.monotonic() - shown > seconds or case == seed + count - 1:
            shown, done = time.monotonic(), case - seed + 1
            yield Part(
                {
                    "seed": seed,
                    "cases": done,
                    "values_compared": compared,
                    "cases_that_differ": list(failed),
                }
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the chosen subjects, and writes what was found every minute; 1 if a case differs."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given)
    be_quiet()
    command, differ = command_line("benchmarks.differential", given), 0
    for subject in options.subjects or SUBJECTS:
        start, failed = time.monotonic(), list[int]()
        for part in campaign(subject, options.seed, options.count, _REPORTED_SECONDS):
            # Another campaign may have written its part meanwhile.
            file = Results(options.output, "differential", {}, command, SUBJECTS)
            file.write(subject, part, time.monotonic() - start)
            print(f"{subject}: {part.figures}")
            failed = part.figures["cases_that_differ"]
        differ += len(failed)
    return int(differ > 0)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("benchmarks.differential", __doc__)
    add = parser.add_argument
    add("subjects", nargs="*", metavar="SUBJECT", help="by default all")
    add("--seed", type=int, default=0, help="of the first case (%(default)s)")
    add("--count", type=int, default=100, help="cases of each subject (%(default)s)")
    add("--output", type=Path, default=_RESULTS, help="the results (%(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
