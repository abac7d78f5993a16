r"""Measures how the embedded pair ranks, and writes benchmarks/results/embedded-pair.json.

    python -m experiments.embedded_pair.figures --squad squad_v1.1.tar.gz --nfcorpus nfcorpus.zip \
        [--questions 500] [--duo 20]

BM25, mono and duo by `beamrank demo` and `beamrank run`; each stage is compared with BM25, and duo with mono, by the
paired t-test of `beamrank eval --against`. With fewer `--questions` the same ones are chosen on every machine.
`experiments.embedded_pair.teacher_figures` measures the teacher.
"""

from collections.abc import Sequence

from benchmarks.datasets.pair_collections import CANDIDATES, Collection, Row, compare, make_parser, measure_collections
from benchmarks.results import command_line
from benchmarks.watched import BEAMRANK, watch

_RUNS = ("bm25", "mono", "duo-sum")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures each collection that was given."""
    parser = make_parser("experiments.embedded_pair.figures", __doc__, "embedded-pair.json")
    parser.add_argument("--duo", type=int, default=20, help="how many of mono's best meet in pairs (%(default)s)")
    options = parser.parse_args(arguments)
    command = command_line("experiments.embedded_pair.figures", arguments)
    measure_collections(options, command, "the embedded pair", {}, lambda each: _rerank(each, options.duo))


def _rerank(collection: Collection, duo: int) -> list[Row]:
    """The demo is run as it is: duo has mono's best ten there."""
    if collection.is_demo:
        watch([BEAMRANK, "demo", "--output", collection.folder])
        runs = collection.folder / "run" / "runs"
    else:
        mono = {"checkpoint": "embedded:mono", "k": CANDIDATES}
        runs = collection.run({"mono": mono, "duo": {"checkpoint": "embedded:duo", "k": duo}})
    return compare(runs, _RUNS, collection.qrels, collection.measures)


if __name__ == "__main__":
    main()
