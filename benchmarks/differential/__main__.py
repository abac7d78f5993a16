"""Random inputs through beamrank and through other libraries or plain loops: every difference is an
error.

    python -m benchmarks.differential [SUBJECT ...] --seed S --count N

`evaluation`: run files and qrels, against pytrec_eval and ir_measures, to the last bit of each
topic. `ranking`: aggregations, pooling, rankings, truncation and layouts, against loops
over one number at a time. `families`: checkpoints of random sizes, against transformers. `bm25`:
hits of random collections, against bare pyserini. `reuse`: a run after another one, against the
same run into an empty folder.

Case i of N has the seed S + i. A case that differs is printed with the command that repeats it, and
the exit code is 1.
"""

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
_OPTIONS = {
    "--seed": (0, "of the first case"),
    "--count": (100, "cases of each subject"),
    "--output": (_RESULTS, "the results"),
}


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
    for done in range(1, count + 1):
        case = seed + done - 1
        with tempfile.TemporaryDirectory(prefix="beamrank-differential-") as folder:
            try:
                compared += check(case, Path(folder))
            except Exception:
                failed.append(case)
                command = f"python -m benchmarks.differential {subject} --seed {case} --count 1"
                print(f"{traceback.format_exc()}{command}\n")
        if time.monotonic() - shown > seconds or done == count:
            shown = time.monotonic()
            figures = {"seed": seed, "cases": done, "values_compared": compared}
            yield Part({**figures, "cases_that_differ": list(failed)})


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the chosen subjects, and writes what was found every minute; 1 if a case differs."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = parser_of("benchmarks.differential", __doc__, _OPTIONS)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help="by default all")
    options = parser.parse_args(given)
    be_quiet()
    command, differ = command_line("benchmarks.differential", given), False
    for subject in options.subjects or SUBJECTS:
        start = time.monotonic()
        for part in campaign(subject, options.seed, options.count, _REPORTED_SECONDS):
            # Another campaign may have written its part meanwhile.
            file = Results(options.output, "differential", {}, command, SUBJECTS)
            file.write(subject, part, time.monotonic() - start)
            print(f"{subject}: {part.figures}")
        differ |= bool(part.figures["cases_that_differ"])
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
