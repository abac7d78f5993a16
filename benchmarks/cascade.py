"""Measures the cascade and its parts on SQuAD: benchmarks/results/squad.json, docs/internals/performance.md.

    python -m benchmarks.cascade [--questions 500] [--only PART ...] [--output FILE] [--report FILE]

Parts that are measured with the same settings on the same machine are put together in one file.
"""

import argparse
import importlib
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from benchmarks import report, results
from benchmarks.machine import describe_machine, load_average
from benchmarks.watched import be_quiet
from benchmarks.workspace import Settings, Workspace

_ROOT = Path(__file__).resolve().parents[1]
_ARCHIVE = _ROOT.parent / "shared" / "data" / "squad_v1.1.tar.gz"
_RESULTS = _ROOT / "benchmarks" / "results" / "squad.json"
_REPORT = _ROOT / "docs/internals/performance.md"

# The modules, imported when their part is measured: a peer's process, which imports this one, must not hold Beam.
PARTS = {
    "tokenize": "benchmarks.parts.tokenize",
    "retrieve": "benchmarks.parts.retrieve",
    "mono": "benchmarks.parts.score",
    "run": "benchmarks.parts.run",
    "memory": "benchmarks.parts.memory",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the chosen parts, one after the other; each is in the results as soon as it is there."""
    options = _parser().parse_args(arguments)
    if not options.squad.is_file():
        sys.exit(
            f"{options.squad} is not there: give --squad, a tar.gz of SQuAD 1.1 as the pages of its explorer "
            "(train/*.html, dev/*.html)"
        )
    load = load_average()
    be_quiet()
    from pipelines.runners.subprocesses import prepare_environment

    prepare_environment()
    settings = Settings(options.questions, options.pairs, tuple(options.memory_topics), options.rounds)
    folder = nullcontext(str(options.work)) if options.work else tempfile.TemporaryDirectory(prefix="beamrank-bench-")
    with folder as path:
        Path(path).mkdir(parents=True, exist_ok=True)
        workspace = Workspace(Path(path), options.squad, settings)
        found = results.open_results(options.output, describe_machine(), workspace.describe())
        command = shlex.join(["python", "-m", "benchmarks.cascade", *_shown(options)])
        for name in options.only or PARTS:
            print(f"measuring {name}", file=sys.stderr)
            start = time.monotonic()
            part: results.Part = importlib.import_module(PARTS[name]).measure(workspace)
            found["parts"][name] = results.part_to_json(part, time.monotonic() - start, command, load)
            found = results.write_results(options.output, found, PARTS)
            options.report.parent.mkdir(parents=True, exist_ok=True)
            options.report.write_text(report.render(found), encoding="utf-8")
            for target in part.targets:
                verdict = "met" if target.met else "missed"
                print(f"{target.name}: {target.measured:,g} ({target.wanted} {target.limit:,g}: {verdict})")


def _shown(options: argparse.Namespace) -> list[str]:
    """The options that decide figures; where things lie on this machine is nobody's business."""
    memory_topics = [str(topics) for topics in options.memory_topics]
    numbers = [f"--{name}={getattr(options, name)}" for name in ("questions", "pairs", "rounds")]
    return [*numbers, "--memory-topics", *memory_topics, *(f"--only={name}" for name in options.only or ())]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cascade", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--squad", type=Path, default=_ARCHIVE, help="SQuAD 1.1 as HTML pages in a tar.gz")
    parser.add_argument("--questions", type=int, default=500, help="how many dev questions (%(default)s)")
    parser.add_argument("--pairs", type=int, default=1500, help="pairs of the comparison of scoring (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each comparison; medians count (%(default)s)")
    parser.add_argument(
        "--memory-topics", type=int, nargs="+", default=[125, 500, 2000], help="topics of each memory run (%(default)s)"
    )
    parser.add_argument("--only", action="append", choices=list(PARTS), help="measure this part; may be repeated")
    parser.add_argument("--work", type=Path, help="keep what is made here, instead of in a temporary folder")
    parser.add_argument("--output", type=Path, default=_RESULTS, help="the results (%(default)s)")
    parser.add_argument("--report", type=Path, default=_REPORT, help="the results as a page (%(default)s)")
    return parser


if __name__ == "__main__":
    main()
