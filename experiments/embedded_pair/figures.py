r"""Measures how cascades re-rank five collections (`measured`).

    python -m experiments.embedded_pair.figures --squad squad_v1.1.tar.gz \
        --nfcorpus nfcorpus.zip --medquad medquad.tar.gz \
        "mono=[mono: embedded:mono]" "minilm=[dense: MINILM]" \
        "duo=[mono: embedded:mono, duo: {checkpoint: embedded:duo, k: 10}]"

BM25's best 100 are re-ranked. With `--first FOLDER` the first stage is a dense run in place of
BM25's: 100 docs of the whole corpus by that bi-encoder. A cascade has its nDCG@10 on each
collection, and the mean over them, with its difference from the first cascade and a 95 % bootstrap
interval, for which topics are drawn within each collection.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import yaml
from numpy.typing import NDArray

from beamrank.formats.run_writer import run_lines
from benchmarks import results
from benchmarks.commands import parser_of
from benchmarks.subprocess_meter import be_quiet
from experiments.embedded_pair.bi_encoder import BiEncoder
from experiments.embedded_pair.measured import (
    BM25,
    CANDIDATES,
    MEASURE,
    Measured,
    Stages,
    read_collections,
)

_RESULTS = Path(__file__).resolve().parents[2] / "benchmarks/results/embedded-pair.json"
_NAMES = ("questions", "keywords", "medical", "long", "docstrings")
# The first is for choosing a weight of `combine`, so it measures no model.
_OTHERS = ("dev-keywords", "articles")
_DRAWS, _SEED = 10_000, 0

Values: TypeAlias = Mapping[str, NDArray[np.float64]]
"""nDCG@10 of each topic of a collection, by the name of a run."""

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures each collection; its figures are in the results as soon as they are complete."""
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(given)
    be_quiet()
    settings = {"candidates": CANDIDATES, "topics": options.topics, "first": options.first}
    command = results.command_line("experiments.embedded_pair.figures", given)
    order = (*_NAMES, *_OTHERS, "mean")
    file = results.Results(options.output, "the embedded pair", settings, command, order)
    measured: list[Values] = []
    archives = (options.squad, options.nfcorpus, options.medquad, options.cacm)
    for name, (collection, length) in read_collections(*archives, options.collections).items():
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="beamrank-pair-") as folder:
            written = Measured.write(Path(folder), collection, options.topics, length)
            measured.append(_values(written, options))
        means = {run: round(float(values.mean()), 4) for run, values in measured[-1].items()}
        file.write(name, results.Part({MEASURE: means}), time.monotonic() - start)
        print(name, means, flush=True)
    start = time.monotonic()
    rows = compare_means(measured)
    file.write("mean", results.Part({"rows": rows}), time.monotonic() - start)
    print(*rows, sep="\n")


def compare_means(measured: Sequence[Values]) -> list[Row]:
    """Each run's mean over the collections, and its difference from the second run, which is the
    first cascade's, with the ends of a 95 % interval.
    """
    rng = np.random.default_rng(_SEED)
    baseline = list(measured[0])[1]
    rows = []
    for run in measured[0]:
        differences = [values[run] - values[baseline] for values in measured]
        draws = np.mean([_resampled(values, rng) for values in differences], axis=0)
        figures = {
            MEASURE: np.mean([values[run].mean() for values in measured]),
            "difference": np.mean([values.mean() for values in differences]),
            "low": np.quantile(draws, 0.025),
            "high": np.quantile(draws, 0.975),
        }
        rows.append({"run": run, **{key: round(float(f), 4) for key, f in figures.items()}})
    return rows


def _resampled(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """float64[draws], means of topics that are drawn with replacement."""
    drawn = values[rng.integers(len(values), size=(_DRAWS, len(values)))]
    means: NDArray[np.float64] = drawn.mean(axis=1)
    return means


def _values(written: Measured, options: argparse.Namespace) -> Values:
    """The values of the first stage's run, and of the last run of each cascade."""
    first = _dense_run(written, options.first) if options.first else BM25
    values: dict[str, NDArray[np.float64]] = {}
    for name, _, text in (given.partition("=") for given in options.cascades):
        cascade = yaml.safe_load(text)
        runs = written.run(first, cascade)
        (last,) = (path for stage in cascade[-1] for path in runs.glob(f"{stage}*.trec"))
        if not values:
            first_run = "candidates" if options.first else "bm25"
            values["first"] = written.values(runs / f"{first_run}.trec")
        values[name] = written.values(last)
    return values


def _dense_run(written: Measured, folder: str) -> Stages:
    """Writes the run of a bi-encoder over the whole corpus."""
    encoder, path = BiEncoder(folder), written.folder / "dense.trec"
    docs = encoder.docs([text for _, text in written.collection.passages])
    topics = written.topics()
    cosines = encoder.queries([text for _, text in topics]) @ docs.T
    doc_ids = [doc_id for doc_id, _ in written.collection.passages]
    with path.open("w", encoding="utf-8") as file:
        for (query_id, _), scores in zip(topics, cosines, strict=True):
            best = np.argsort(-scores, kind="stable")[:CANDIDATES]
            ranking = [(doc_ids[place], float(scores[place])) for place in best]
            file.writelines(f"{line}\n" for line in run_lines(query_id, ranking, "dense"))
    return {"candidates": {"run": path.name, "k": CANDIDATES}}


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("experiments.embedded_pair.figures", __doc__)
    parser.add_argument(
        "cascades", nargs="+", help="NAME=CASCADE, the YAML of a configuration's `cascade`"
    )
    parser.add_argument("--squad", type=Path, required=True, help="SQuAD 1.1's HTML, a tar.gz")
    parser.add_argument("--nfcorpus", type=Path, required=True, help="BEIR's NFCorpus, a zip")
    parser.add_argument("--medquad", type=Path, required=True, help="MedQuAD's XML, a tar.gz")
    parser.add_argument(
        "--cacm",
        type=Path,
        default=Path("cacm"),
        help="for articles: a folder with cacm.tar.gz, topics.cacm.txt and qrels.cacm.txt "
        "(%(default)s)",
    )
    parser.add_argument("--first", help="a bi-encoder for the first stage, a folder")
    parser.add_argument("--topics", type=int, help="of each collection (all)")
    parser.add_argument(
        "--collections",
        nargs="+",
        choices=(*_NAMES, *_OTHERS),
        default=_NAMES,
        help="(the first five)",
    )
    parser.add_argument(
        "--output", type=Path, default=_RESULTS, help="(benchmarks/results/embedded-pair.json)"
    )
    return parser


if __name__ == "__main__":
    main()
