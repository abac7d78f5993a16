r"""A measure against inferences: mono to a fixed depth beside one that `--deepen` spends
(docs/guide/resume.md).

    python -m experiments.deepening.study --cacm FOLDER --nfcorpus nfcorpus.zip \
        --squad squad_v1.1.tar.gz

One run of each collection scores all candidates. Its stored scores give every fixed depth, and what
the stages of `--deepen` decide for as many inferences. Results are written to --output.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import beamrank
from beamrank.evaluation.evaluate import Evaluator
from beamrank.formats.qrels import Qrels, read_qrels
from beamrank.ranking.rankings import Ranking
from benchmarks.commands import parser_of, work_folder
from benchmarks.datasets.cacm import read_cacm
from benchmarks.datasets.collection import Collection
from benchmarks.datasets.nfcorpus import read_nfcorpus
from benchmarks.datasets.squad import read_squad
from benchmarks.machine import measured_on
from benchmarks.results import command_line
from benchmarks.subprocess_meter import be_quiet
from contrib.deepen.stages import GAPS, Cut, gap
from pipelines.commands.arguments import open_runs

_OUTPUT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "deepening.json"
MEASURES = ("nDCG@10", "RR@10")

# The candidates of each query in the order before, and the score of each.
Scored = dict[str, tuple[Sequence[str], np.ndarray]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Scores the chosen collections, and writes a row for each depth."""
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(given)
    be_quiet()
    found: dict[str, Any] = {}
    with work_folder(options.work) as work:
        for name, write in _writers(options).items():
            folder = work / name
            topics = write(folder)
            output = beamrank.run(
                _config(folder, topics, options.k), output=folder / "out", quiet=False
            ).output
            scored = _scored(output)
            qrels = read_qrels(str(folder / "qrels.txt"))
            found[name] = {"topics": len(scored), "rows": list(rows(scored, qrels, options.depths))}
            print(json.dumps(found[name], indent=1), file=sys.stderr)
    shown = {"k": options.k, "command": command_line("experiments.deepening.study", given)}
    results = {
        "benchmark": "depth under a budget",
        "machine": measured_on(),
        **shown,
        "collections": found,
    }
    options.output.write_text(
        json.dumps(results | {"date": time.strftime("%Y-%m-%d")}, indent=1) + "\n"
    )


def rows(scored: Scored, qrels: Qrels, depths: Sequence[int]) -> Iterator[dict[str, Any]]:
    """The measures of each fixed depth, and of as many inferences that are spent by `--deepen`."""
    for depth in depths:
        fixed = _means(scored, qrels, dict.fromkeys(scored, depth))
        deepened = _means(scored, qrels, deepened_depths(scored, depth))
        yield {"depth": depth, "fixed": fixed, "deepened": deepened}


def deepened_depths(scored: Scored, depth: int) -> dict[str, int]:
    """How deep each topic is scored where all of them together get as many inferences as at a fixed
    depth.
    """
    first = max(1, depth // 2)
    gaps = [
        {"query_id": query_id, "gap": gap(scores[:first]), "scored": min(first, len(scores))}
        | {"left": max(0, len(scores) - first)}
        for query_id, (_, scores) in scored.items()
    ]
    table = pa.Table.from_pylist(gaps, GAPS)
    docs = sum(min(depth, len(scores)) - min(first, len(scores)) for _, scores in scored.values())
    cut = Cut.of(table, docs)
    return {
        row["query_id"]: first + cut.docs_of(row["gap"], row["query_id"], row["left"])
        for row in table.to_pylist()
    }


def _means(scored: Scored, qrels: Qrels, depths: Mapping[str, int]) -> dict[str, float]:
    evaluator = Evaluator(qrels, MEASURES)
    for query_id, (doc_ids, scores) in scored.items():
        head = np.argsort(-scores[: depths[query_id]], kind="stable")
        evaluator.add(
            [(query_id, [*(doc_ids[place] for place in head), *doc_ids[depths[query_id] :]])]
        )
    return {name: round(value, 4) for name, value in evaluator.evaluation().means.items()}


def _scored(output: str) -> Scored:
    """What the mono of a run scored."""
    found: Scored = {}
    for parts in open_runs(output).shards():
        before, after = parts.before("mono"), parts.rankings("mono")
        assert before is not None
        found |= {query_id: _in_order(before[query_id], after[query_id]) for query_id in before}
    return found


def _in_order(before: Ranking, after: Ranking) -> tuple[Sequence[str], np.ndarray]:
    score_of = dict(after)
    doc_ids = before.doc_ids[: after.scored]
    return doc_ids, np.array([score_of[doc_id] for doc_id in doc_ids])


def _config(folder: Path, topics: Mapping[str, Any], k: int) -> dict[str, Any]:
    return {
        "run_tag": "deep",
        "corpus": {"path": str(folder / "corpus.jsonl"), "format": "jsonl"},
        "topics": {"path": str(folder / "topics.tsv"), "format": "tsv", **topics},
        "qrels": str(folder / "qrels.txt"),
        "index": {"path": str(folder / "index")},
        "bm25": {"k": k},
        "mono": {"checkpoint": "embedded:mono", "k": k},
        "input": {"max_length": 128},
        "measures": list(MEASURES),
        "output": str(folder / "out"),
    }


def _writers(options: argparse.Namespace) -> dict[str, Callable[[Path], Mapping[str, Any]]]:
    """What writes each chosen collection to a folder, and says what its topics need beside."""

    def written(collection: Collection, folder: Path) -> Mapping[str, Any]:
        collection.write_corpus(folder)
        collection.write_topics(
            folder, collection.chosen(min(options.topics, len(collection.topics)))
        )
        return {}

    def cacm(folder: Path) -> Mapping[str, Any]:
        Collection(tuple(read_cacm(options.cacm / "cacm.tar.gz")), (), {}).write_corpus(folder)
        (folder / "qrels.txt").write_bytes((options.cacm / "qrels.cacm.txt").read_bytes())
        return {
            "path": str(options.cacm / "topics.cacm.txt"),
            "format": "trec",
            "only_judged": True,
        }

    chosen: dict[str, Callable[[Path], Mapping[str, Any]]] = {"CACM": cacm} if options.cacm else {}
    if options.nfcorpus:
        chosen["NFCorpus"] = lambda folder: written(read_nfcorpus(options.nfcorpus, "test"), folder)
    if options.squad:
        chosen["SQuAD"] = lambda folder: written(read_squad(options.squad), folder)
    return chosen


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("experiments.deepening.study", __doc__)
    parser.add_argument(
        "--cacm", type=Path, help="a folder with cacm.tar.gz, topics.cacm.txt and qrels.cacm.txt"
    )
    parser.add_argument("--nfcorpus", type=Path, help="BEIR's NFCorpus, a zip")
    parser.add_argument("--squad", type=Path, help="SQuAD 1.1 as HTML pages in a tar.gz")
    parser.add_argument(
        "--topics", type=int, default=300, help="at most, of a collection but CACM (%(default)s)"
    )
    parser.add_argument("--k", type=int, default=200, help="candidates of a topic (%(default)s)")
    parser.add_argument(
        "--depths",
        type=int,
        nargs="+",
        default=[10, 20, 30, 50, 75, 100, 150],
        help="(%(default)s)",
    )
    parser.add_argument("--work", type=Path, help="keeps the runs; an interrupted study resumes")
    parser.add_argument("--output", type=Path, default=_OUTPUT, help="(%(default)s)")
    return parser


if __name__ == "__main__":
    main()
