r"""Measures how the embedded pair ranks, or how the bi-encoder does that it was made of.

    python -m experiments.embedded_pair.figures --squad squad_v1.1.tar.gz --nfcorpus nfcorpus.zip \
        [--questions 500] [--duo 20] [--bi-encoder FOLDER]

BM25's best 100 are re-ranked. Without --bi-encoder: by mono, and mono's best by duo, with `beamrank
demo` and `beamrank run`, into benchmarks/results/embedded-pair.json. With it: by the bi-encoder's
cosine (`cosine`), and by the cosine plus .04 of BM25's score (`teacher`), into
embedded-teacher.json. Runs are compared by the paired t-test of `beamrank eval --against`. The same
--questions are chosen on every machine.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.run_order import Run
from beamrank.formats.run_writer import run_lines
from beamrank.formats.runs import read_run
from beamrank.formats.topics import TopicsConfig, read_topics
from benchmarks import results
from benchmarks.commands import parser_of
from benchmarks.subprocess_meter import BEAMRANK, be_quiet, run_metered
from experiments.embedded_pair.bi_encoder import embed_texts
from experiments.embedded_pair.measured import (
    CANDIDATES,
    Measured,
    Row,
    write_demo,
    write_nfcorpus,
    write_squad,
)

_RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
_BM25_SHARE = 0.04
_SHARES = {"cosine": 0.0, "teacher": _BM25_SHARE}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures each chosen collection; its rows are in the results as soon as they are complete."""
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(given)
    be_quiet()
    name, benchmark = "embedded-pair.json", "the embedded pair"
    settings: Row = {"candidates": CANDIDATES}
    if options.bi_encoder:
        name, benchmark = "embedded-teacher.json", "the embedded pair's teacher"
        settings |= {"teacher": f"cosine + {_BM25_SHARE} BM25"}
    output = options.output or _RESULTS / name
    command = results.command_line("experiments.embedded_pair.figures", given)
    file = results.Results(output, benchmark, settings, command, ("demo", "squad", "nfcorpus"))
    for collection, write in _writers(options).items():
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="beamrank-pair-") as folder:
            written = write(Path(folder))
            rows = (
                rank_by_cosine(written, options.bi_encoder)
                if options.bi_encoder
                else _rerank(written, options.duo)
            )
        file.write(collection, results.Part({"rows": rows}), time.monotonic() - start)
        print(collection, rows, file=sys.stderr)


def _rerank(collection: Measured, duo: int) -> list[Row]:
    """The demo runs with its own configuration, where duo has mono's best ten."""
    if collection.is_demo:
        run_metered([BEAMRANK, "demo", "--output", collection.folder])
        runs = collection.folder / "run" / "runs"
    else:
        mono = {"checkpoint": "embedded:mono", "k": CANDIDATES}
        runs = collection.run({"mono": mono, "duo": {"checkpoint": "embedded:duo", "k": duo}})
    return collection.compare(runs, ("bm25", "mono", "duo-sum"))


def rank_by_cosine(collection: Measured, bi_encoder: str) -> list[Row]:
    """Writes BM25's run and the bi-encoder's two beside it, and measures them."""
    runs = collection.run({})
    bm25 = read_run(str(runs / "bm25.trec"))
    cosines = _cosines(bi_encoder, collection, bm25)
    for name, share in _SHARES.items():
        with (runs / f"{name}.trec").open("w", encoding="utf-8") as file:
            for query_id, doc_ids in bm25.order.items():
                scores = cosines[query_id] + share * bm25.scores[query_id]
                ranking = [
                    (doc_ids[place], float(scores[place]))
                    for place in np.argsort(-scores, kind="stable")
                ]
                file.writelines(f"{line}\n" for line in run_lines(query_id, ranking, name))
    return collection.compare(runs, ("bm25", *_SHARES))


def _cosines(bi_encoder: str, collection: Measured, run: Run) -> dict[str, NDArray[np.float32]]:
    """The cosine of each query and its docs, float32[docs], in the run's order."""
    topics = dict(
        read_topics(TopicsConfig(path=str(collection.folder / "topics.tsv"), format="tsv"))
    )
    wanted = {doc_id for doc_ids in run.order.values() for doc_id in doc_ids}
    texts = {
        doc_id: text
        for unit in list_units(CorpusConfig.model_validate(collection.corpus))
        for batch in read_unit(unit)
        for doc_id, text in zip(batch.doc_ids, batch.texts, strict=True)
        if doc_id in wanted
    }
    docs = dict(zip(texts, embed_texts(bi_encoder, list(texts.values())), strict=True))
    queries = dict(zip(topics, embed_texts(bi_encoder, list(topics.values())), strict=True))
    return {
        query_id: np.stack([docs[doc_id] for doc_id in doc_ids]) @ queries[query_id]
        for query_id, doc_ids in run.order.items()
    }


def _writers(options: argparse.Namespace) -> dict[str, Callable[[Path], Measured]]:
    """What writes each chosen collection to a folder, by name."""
    chosen: dict[str, Callable[[Path], Measured]] = {"demo": write_demo} if options.demo else {}
    if options.squad:
        chosen["squad"] = lambda folder: write_squad(folder, options.squad, options.questions)
    if options.nfcorpus:
        chosen["nfcorpus"] = lambda folder: write_nfcorpus(
            folder, options.nfcorpus, options.questions
        )
    return chosen


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("experiments.embedded_pair.figures", __doc__)
    parser.add_argument("--squad", type=Path, help="SQuAD 1.1 as HTML pages in a tar.gz")
    parser.add_argument("--nfcorpus", type=Path, help="BEIR's NFCorpus, a zip")
    parser.add_argument("--no-demo", dest="demo", action="store_false", help="leave the demo out")
    parser.add_argument(
        "--questions", type=int, default=500, help="of SQuAD's dev, NFCorpus' test (%(default)s)"
    )
    parser.add_argument(
        "--duo", type=int, default=20, help="how many of mono's best duo compares (%(default)s)"
    )
    parser.add_argument(
        "--bi-encoder", help="measure this bi-encoder, a folder, instead of the pair"
    )
    parser.add_argument("--output", type=Path, help="the results (in benchmarks/results)")
    return parser


if __name__ == "__main__":
    main()
