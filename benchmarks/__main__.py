"""Measures beamrank beside its peers, and writes benchmarks/results.

    python -m benchmarks [PART] [options] [-- Beam's flags]

Without a PART: the cascade and its parts on SQuAD (tokenize, retrieve, mono, run, memory), into
results/squad.json and results/performance.md. Each of these is also a PART by itself; parts with
the same settings on the same machine are combined in one file. `scale`: how the join grows with the
corpus and the candidates. `topics`: how a job grows with its topics; with `--work` it goes on where
it was ended. `engines`: the time that each runner needs per shard. `attention`: the compiled
attention beside torch's. `report`: seconds and memory of `beamrank report`. `examples`: those of
`beamrank convert msmarco` on a top1000 file. `mining`: those of a training that starts with tens of
millions of pairs.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import report, results
from benchmarks.commands import parser_of, work_folder
from benchmarks.datasets.squad import ARCHIVE
from benchmarks.subprocess_meter import be_quiet
from benchmarks.workspace import Settings, Workspace

_RESULTS = Path(__file__).with_name("results")
_REPORT = _RESULTS / "performance.md"
SQUAD_PARTS = ("tokenize", "retrieve", "mono", "run", "memory")
_MODULES = {"mono": "score"}
# The parts on synthetic passages, with the options that decide their figures.
_SYNTHETIC = {
    "scale": ("k",),
    "topics": (),
    "engines": ("shards", "rounds"),
    "attention": ("rounds",),
    "report": ("queries", "k"),
    "examples": ("queries", "k"),
    "mining": ("mined_pairs",),
    "tables": ("rows", "rounds"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the chosen parts one after the other; each is written as soon as it is measured."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    ours = given[: given.index("--")] if "--" in given else given
    options = _parser().parse_args(ours)
    options.beam_flags = given[len(ours) + 1 :]
    command = results.command_line("benchmarks", given)
    be_quiet()
    from pipelines.runners.workers import prepare_environment

    prepare_environment()
    with work_folder(options.work) as work:
        if options.part in _SYNTHETIC:
            output = options.output or _RESULTS / f"{options.part}.json"
            values = {name: getattr(options, name) for name in _SYNTHETIC[options.part]}
            file = results.Results(output, "synthetic passages", values, command)
            options.measured = file.figures
            _write(
                file,
                importlib.import_module(f"benchmarks.parts.{options.part}").measure(options, work),
                None,
            )
        else:
            workspace = _workspace(options, work)
            output = options.output or _RESULTS / "squad.json"
            file = results.Results(output, "SQuAD 1.1", workspace.describe(), command, SQUAD_PARTS)
            _write(file, _squad_parts(options, workspace), options.report)


def _write(
    file: results.Results, parts: Iterator[tuple[str, results.Part]], page: Path | None
) -> None:
    """Writes each part, the page of all parts if there is one, and prints the targets."""
    start = time.monotonic()
    for name, part in parts:
        found = file.write(name, part, time.monotonic() - start)
        start = time.monotonic()
        if page:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(report.render(found), encoding="utf-8")
        for target in part.targets:
            verdict = "met" if target.met else "missed"
            print(
                f"{target.name}: {target.measured:,g} ({target.wanted} {target.limit:,g}: "
                f"{verdict})"
            )


def _workspace(options: argparse.Namespace, work: Path) -> Workspace:
    if not options.squad.is_file():
        sys.exit(
            f"{options.squad} does not exist: give --squad, a tar.gz of SQuAD 1.1 as the pages of "
            "its explorer (train/*.html, dev/*.html)"
        )
    settings = Settings(
        options.questions, options.pairs, tuple(options.memory_topics), options.rounds
    )
    return Workspace(work, options.squad, settings)


def _squad_parts(
    options: argparse.Namespace, workspace: Workspace
) -> Iterator[tuple[str, results.Part]]:
    """Yields the parts. Their modules are imported late: a peer's process imports this one, and
    must not hold Beam.
    """
    for name in SQUAD_PARTS if options.part == "all" else [options.part]:
        print(f"measuring {name}", file=sys.stderr)
        yield (
            name,
            importlib.import_module(f"benchmarks.parts.{_MODULES.get(name, name)}").measure(
                workspace
            ),
        )


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("benchmarks", __doc__)
    add = parser.add_argument
    parts = ["all", *SQUAD_PARTS, *_SYNTHETIC]
    add(
        "part",
        nargs="?",
        default="all",
        choices=parts,
        metavar="PART",
        help=f"one of {', '.join(parts)}",
    )
    add("--work", type=Path, help="keep intermediate files here, instead of in a temporary folder")
    add("--output", type=Path, help="the results (a file in benchmarks/results)")
    add(
        "--rounds",
        type=int,
        default=3,
        help="rounds of each comparison; medians count (%(default)s)",
    )
    add(
        "--k",
        type=int,
        default=1000,
        help="of scale, report and examples: candidates of a topic (%(default)s)",
    )
    add = parser.add_argument_group("SQuAD").add_argument
    add("--squad", type=Path, default=ARCHIVE, help="SQuAD 1.1 as HTML pages in a tar.gz")
    add("--questions", type=int, default=500, help="how many dev questions (%(default)s)")
    add("--pairs", type=int, default=1500, help="pairs of the comparison of scoring (%(default)s)")
    add(
        "--memory-topics",
        type=int,
        nargs="+",
        default=[125, 500, 2000],
        help="topics of memory's runs (%(default)s)",
    )
    add("--report", type=Path, default=_REPORT, help="the results as a page (%(default)s)")
    add = parser.add_argument_group("scale").add_argument
    add("--passages", type=float, nargs="+", default=[1, 2, 4, 8], help="millions (%(default)s)")
    add(
        "--topics",
        type=int,
        nargs="+",
        help="of scale (500 1000 2000 4000 8000), of topics (10000 100000 1000000)",
    )
    add(
        "--planned", type=int, default=0, help="of topics: also a plan of so many, such as 10000000"
    )
    add("--runner", default="local", help="as for beamrank run (%(default)s)")
    add = parser.add_argument_group("engines").add_argument
    add("--runners", nargs="+", default=["local", "prism", "flink", "spark"], help="(%(default)s)")
    add("--shards", type=int, nargs=2, default=[4, 64], help="few and many (%(default)s)")
    add = parser.add_argument_group("tables").add_argument
    add(
        "--rows",
        type=float,
        default=1,
        help="millions of docs and of judgments; runs have ten times as many (%(default)s)",
    )
    add = parser.add_argument_group("report, examples").add_argument
    add("--queries", type=int, default=6980, help="how many topics (%(default)s)")
    add(
        "--mined-pairs",
        type=float,
        nargs="+",
        default=[3, 30],
        help="of mining: millions (%(default)s)",
    )
    add(
        "--duo-k",
        type=int,
        nargs="+",
        default=[10, 50],
        help="docs that duo compared (%(default)s)",
    )
    add(
        "--conversion",
        nargs="+",
        default=[],
        help="of examples: `to TFRecord`, `TFRecord to Parquet` (both)",
    )
    return parser


if __name__ == "__main__":
    main()
