"""Measures beamrank beside its peers, and writes benchmarks/results.

    python -m benchmarks [PART] [options] [-- Beam's flags]

Without a PART: the cascade and its parts on SQuAD (tokenize, retrieve, mono, run, memory), into
results/squad.json and results/performance.md. Each of these is also a PART by itself; parts with
the same settings on the same machine are combined in one file. `scale`: how the join grows with the
corpus and the candidates. `topics`: how a job grows with its topics. `engines`: the time that each
runner needs per shard. `report`: seconds and memory of `beamrank report`. `examples`: the same of
`beamrank convert msmarco` on a top1000 file. `mining`: the same of a training that starts with tens
of millions of pairs. `tables`: the readers of docs, runs and qrels. `prefix`: a language model
with the prompt before the docs computed once and for each.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report, results
from benchmarks.commands import parser_of, work_folder
from benchmarks.datasets.squad import ARCHIVE
from benchmarks.subprocess_meter import be_quiet
from benchmarks.workspace import Settings, Workspace

_RESULTS = Path(__file__).with_name("results")
SQUAD_PARTS = ("tokenize", "retrieve", "mono", "run", "memory")
_MODULES = {"mono": "score"}
# The parts on synthetic passages, with the options that decide their figures.
_SYNTHETIC = {
    "scale": ("k",),
    "topics": (),
    "engines": ("shards", "rounds"),
    "report": ("queries", "k"),
    "examples": ("queries", "k"),
    "mining": ("mined_pairs",),
    "tables": ("rows", "rounds"),
    "prefix": ("rounds",),
}


_OPTIONS = {
    "--work": (Path, "keep intermediate files here, instead of in a temporary folder"),
    "--output": (Path, "the results (a file in benchmarks/results)"),
    "--rounds": (3, "rounds of each comparison; medians count"),
    "--squad": (ARCHIVE, "SQuAD 1.1 as HTML pages in a tar.gz"),
    "--questions": (500, "how many dev questions"),
    "--pairs": (1500, "pairs of the comparison of scoring"),
    "--memory-topics": ([125, 500, 2000], "topics of memory's runs"),
    "--report": (_RESULTS / "performance.md", "the results as a page"),
    "--k": (1000, "of scale, report and examples: candidates of a topic"),
    "--passages": ([1.0, 2.0, 4.0, 8.0], "of scale: millions"),
    "--topics": ([int], "of scale (500 1000 2000 4000 8000), of topics (10000 100000 1000000)"),
    "--planned": (0, "of topics: also a plan of so many, such as 10000000"),
    "--runner": ("local", "of scale and topics: as for beamrank run"),
    "--runners": (["local", "prism", "flink", "spark"], "of engines"),
    "--shards": ([4, 64], "of engines: few and many"),
    "--rows": (1.0, "of tables: millions of docs and of judgments; runs have ten times as many"),
    "--queries": (6980, "of report and examples: how many topics"),
    "--mined-pairs": ([3.0, 30.0], "of mining: millions"),
    "--duo-k": ([10, 50], "of report: docs that duo compared"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the chosen parts one after the other; each is written as soon as it is measured."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    ours = given[: given.index("--")] if "--" in given else given
    parser, parts = parser_of("benchmarks", __doc__, _OPTIONS), ["all", *SQUAD_PARTS, *_SYNTHETIC]
    shown = f"one of {', '.join(parts)}"
    parser.add_argument("part", nargs="?", default="all", choices=parts, metavar="PART", help=shown)
    options = parser.parse_args(ours)
    options.beam_flags = given[len(ours) + 1 :]
    be_quiet()
    from pipelines.runners.workers import prepare_environment

    prepare_environment()
    with work_folder(options.work) as work:
        _measure(options, work, results.command_line("benchmarks", given))


def _measure(options: argparse.Namespace, work: Path, command: str) -> None:
    name: str = options.part
    if name in _SYNTHETIC:
        output = options.output or _RESULTS / f"{name}.json"
        values = {option: getattr(options, option) for option in _SYNTHETIC[name]}
        file = results.Results(output, "synthetic passages", values, command)
        options.measured = file.figures
        _write(file, _module(name).measure(options, work), None)
        return
    if not options.squad.is_file():
        sys.exit(
            f"{options.squad} does not exist: give --squad, a tar.gz of SQuAD 1.1 as the pages of "
            "its explorer (train/*.html, dev/*.html)"
        )
    settings = Settings(options.questions, options.pairs, options.memory_topics, options.rounds)
    workspace = Workspace(work, options.squad, settings)
    output = options.output or _RESULTS / "squad.json"
    file = results.Results(output, "SQuAD 1.1", workspace.describe(), command, SQUAD_PARTS)
    chosen = SQUAD_PARTS if name == "all" else [name]
    _write(file, ((part, _module(part).measure(workspace)) for part in chosen), options.report)


def _module(part: str) -> Any:
    """Imported late: a peer's process imports this module, and must not hold Beam."""
    print(f"measuring {part}", file=sys.stderr)
    return importlib.import_module(f"benchmarks.parts.{_MODULES.get(part, part)}")


def _write(
    file: results.Results, parts: Iterable[tuple[str, results.Part]], page: Path | None
) -> None:
    """Writes each part, the page of all parts if there is one, and prints the targets."""
    start = time.monotonic()
    for name, part in parts:
        document = file.write(name, part, time.monotonic() - start)
        start = time.monotonic()
        if page:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(report.render(document), encoding="utf-8")
        for target in part.targets:
            verdict = "met" if target.met else "missed"
            wanted = f"{target.wanted} {target.limit:,g}: {verdict}"
            print(f"{target.name}: {target.measured:,g} ({wanted})")


if __name__ == "__main__":
    main()
