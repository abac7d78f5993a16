"""The collections that the embedded pair is measured on: what is searched, asked and judged, and runs over it."""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from beamrank.demo.collection import write_collection as write_demo_collection
from beamrank.digests import hash64
from benchmarks import results
from benchmarks.datasets.squad import read_squad, write_collection, write_questions
from benchmarks.machine import describe_machine, load_average
from benchmarks.watched import BEAMRANK, be_quiet, watch

CANDIDATES = 100
_RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
_NAMES = ("demo", "squad", "nfcorpus")

Row = dict[str, Any]


@dataclass(frozen=True)
class Collection:
    """A corpus, with topics.tsv and qrels.txt in the folder.

    Attributes:
        folder: where its files lie, and runs go.
        corpus: its part of the configuration.
        measures: what is measured, the first being the collection's own.
        is_demo: it is that of `beamrank demo`.
    """

    folder: Path
    corpus: dict[str, str]
    measures: tuple[str, ...] = ("RR@10", "nDCG@10")
    is_demo: bool = False

    @property
    def qrels(self) -> Path:
        """The judgments."""
        return self.folder / "qrels.txt"

    def run(self, stages: dict[str, Any]) -> Path:
        """The folder with the runs of BM25 and of some stages after it."""
        config = {
            "run_tag": "pair",
            "corpus": self.corpus,
            "topics": {"path": "topics.tsv", "format": "tsv"},
            "index": {"path": "index"},
            "bm25": {"k1": 0.9, "b": 0.4, "k": CANDIDATES},
            **stages,
            "output": "out",
        }
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        watch([BEAMRANK, "run", path])
        return self.folder / "out" / "runs"


def measure_collections(
    options: argparse.Namespace, command: str, benchmark: str, settings: Row, rows_of: Callable[[Collection], list[Row]]
) -> None:
    """Measures each collection that was asked for; its rows are in the results as soon as they are there.

    Args:
        options: those of `make_parser`.
        command: what makes the results again.
        benchmark: its name in the results.
        settings: what decides the figures, beside the candidates.
        rows_of: measures a collection.
    """
    load = load_average()
    be_quiet()
    found = results.open_results(options.output, describe_machine(), {"candidates": CANDIDATES, **settings}, benchmark)
    for name, write in _chosen(options).items():
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="beamrank-pair-") as folder:
            rows = rows_of(write(Path(folder)))
        part = results.Part({"rows": rows})
        found["parts"][name] = results.part_to_json(part, time.monotonic() - start, command, load)
        found = results.write_results(options.output, found, _NAMES)
        print(name, rows, file=sys.stderr)


def make_parser(module: str, description: str | None, output: str) -> argparse.ArgumentParser:
    """The options that choose collections, and where the results go."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--squad", type=Path, help="SQuAD 1.1 as HTML pages in a tar.gz")
    parser.add_argument("--nfcorpus", type=Path, help="BEIR's NFCorpus, a zip")
    parser.add_argument("--no-demo", dest="demo", action="store_false", help="leave the demo out")
    parser.add_argument("--questions", type=int, default=500, help="of SQuAD's dev, NFCorpus' test (%(default)s)")
    parser.add_argument("--output", type=Path, default=_RESULTS / output, help="the results (%(default)s)")
    return parser


def _chosen(options: argparse.Namespace) -> dict[str, Callable[[Path], Collection]]:
    """For each collection that was asked for, by name, what writes it to a folder."""
    chosen: dict[str, Callable[[Path], Collection]] = {}
    if options.demo:
        chosen["demo"] = _write_demo
    if options.squad:
        chosen["squad"] = lambda folder: _write_squad(folder, options.squad, options.questions)
    if options.nfcorpus:
        chosen["nfcorpus"] = lambda folder: _write_nfcorpus(folder, options.nfcorpus, options.questions)
    return chosen


def _write_demo(folder: Path) -> Collection:
    write_demo_collection(str(folder))
    return Collection(folder, {"path": str(folder / "corpus.jsonl"), "format": "jsonl"}, is_demo=True)


def _write_squad(folder: Path, archive: Path, questions: int) -> Collection:
    squad = read_squad(archive)
    write_collection(squad, folder)
    write_questions(squad.chosen(questions), folder)
    return Collection(folder, {"path": str(folder / "corpus.jsonl"), "format": "jsonl"})


def _write_nfcorpus(folder: Path, archive: Path, questions: int) -> Collection:
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    (corpus,) = folder.rglob("corpus.jsonl")
    write_test_topics(corpus.parent, questions, folder / "topics.tsv", folder / "qrels.txt")
    return Collection(folder, {"path": str(corpus.parent), "format": "beir"}, ("nDCG@10", "RR@10"))


def write_test_topics(collection: Path, questions: int, topics: Path, qrels: Path) -> None:
    """Writes some test queries of a BEIR folder, and their judgments."""
    judged = [line.split("\t") for line in (collection / "qrels" / "test.tsv").read_text().splitlines()[1:]]
    chosen = set(sorted({query_id for query_id, _, _ in judged}, key=hash64)[:questions])
    queries = [json.loads(line) for line in (collection / "queries.jsonl").read_text().splitlines()]
    topics.write_text(
        "".join(f"{query['_id']}\t{' '.join(query['text'].split())}\n" for query in queries if query["_id"] in chosen)
    )
    qrels.write_text(
        "".join(f"{query_id} 0 {doc_id} {grade}\n" for query_id, doc_id, grade in judged if query_id in chosen)
    )


def compare(runs: Path, names: Sequence[str], qrels: Path, measures: Sequence[str]) -> list[Row]:
    """Each run's measures, and its p-values against those named before it."""
    rows: list[Row] = []
    for place, run in enumerate(names):
        found = _evaluate(runs, qrels, measures, run, names[:place])
        rows.append({"run": run, "queries": found["queries"]})
        rows[-1] |= {name: round(found["measures"][name], 4) for name in measures}
        for baseline, compared in zip(names[:place], found.get("against", []), strict=True):
            values = compared["measures"]
            rows[-1] |= {f"p, {name}, {baseline}": round(values[name]["p_value"], 5) for name in measures}
    return rows


def _evaluate(runs: Path, qrels: Path, measures: Sequence[str], run: str, baselines: Sequence[str]) -> dict[str, Any]:
    command = [BEAMRANK, "eval", runs / f"{run}.trec", "--qrels", qrels, "--measures", " ".join(measures), "--json"]
    for baseline in baselines:
        command += ["--against", runs / f"{baseline}.trec"]
    done = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
