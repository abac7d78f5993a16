"""Measures how the embedded pair ranks, and writes benchmarks/results/embedded-pair.json.

    python -m benchmarks.embedded_pair --squad squad_v1.1.tar.gz --nfcorpus nfcorpus.zip [--questions 500] [--duo 20]

BM25, mono and duo by `beamrank demo` and `beamrank run`; each stage is compared with BM25, and duo with mono, by the
paired t-test of `beamrank eval --against`. With fewer `--questions` the same ones are chosen on every machine.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from beamrank.fingerprint import hash64
from benchmarks import results
from benchmarks.machine import describe_machine, load_average
from benchmarks.squad import read_squad, write_collection, write_questions
from benchmarks.watched import BEAMRANK, be_quiet, watch

_RESULTS = Path(__file__).resolve().parent / "results" / "embedded-pair.json"
_RUNS = ("bm25", "mono", "duo-sum")
_CANDIDATES = 100

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures each collection that was given; its rows are in the results as soon as they are there."""
    options = _parser().parse_args(arguments)
    command = " ".join(["python -m benchmarks.embedded_pair", *(arguments if arguments is not None else sys.argv[1:])])
    load = load_average()
    be_quiet()
    settings = {"questions": options.questions, "candidates": _CANDIDATES, "duo": options.duo}
    found = results.open_results(options.output, describe_machine(), settings, "the embedded pair")
    for name, measure in _collections(options).items():
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="beamrank-pair-") as folder:
            part = results.Part({"rows": measure(Path(folder))})
        found["parts"][name] = results.part_to_json(part, time.monotonic() - start, command, load)
        found = results.write_results(options.output, found, ("demo", "squad", "nfcorpus"))
        print(name, json.dumps(part.figures["rows"]), file=sys.stderr)


def _collections(options: argparse.Namespace) -> dict[str, Callable[[Path], list[Row]]]:
    chosen: dict[str, Callable[[Path], list[Row]]] = {}
    if options.demo:
        chosen["demo"] = _measure_demo
    if options.squad:
        chosen["squad"] = lambda folder: _measure_squad(folder, options.squad, options.questions, options.duo)
    if options.nfcorpus:
        chosen["nfcorpus"] = lambda folder: _measure_nfcorpus(folder, options.nfcorpus, options.questions, options.duo)
    return chosen


def _measure_demo(folder: Path) -> list[Row]:
    """The demo as it is: duo has mono's best ten there."""
    watch([BEAMRANK, "demo", "--output", folder])
    (collection,) = folder.glob("python*")
    return _compare(collection / "run" / "runs", collection / "collection" / "qrels.txt", ("RR@10", "nDCG@10"))


def _measure_squad(folder: Path, archive: Path, questions: int, duo: int) -> list[Row]:
    squad = read_squad(archive)
    write_collection(squad, folder)
    write_questions(squad.chosen(questions), folder)
    runs = _run(folder, {"path": "corpus.jsonl", "format": "jsonl"}, duo)
    return _compare(runs, folder / "qrels.txt", ("RR@10", "nDCG@10"))


def _measure_nfcorpus(folder: Path, archive: Path, questions: int, duo: int) -> list[Row]:
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    (corpus,) = folder.rglob("corpus.jsonl")
    write_test_topics(corpus.parent, questions, folder / "topics.tsv", folder / "qrels.txt")
    runs = _run(folder, {"path": str(corpus.parent), "format": "beir"}, duo)
    return _compare(runs, folder / "qrels.txt", ("nDCG@10", "RR@10"))


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


def _run(folder: Path, corpus: dict[str, str], duo: int) -> Path:
    """The runs of the cascade over the folder's topics."""
    config = {
        "run_tag": "pair",
        "corpus": corpus,
        "topics": {"path": "topics.tsv", "format": "tsv"},
        "index": {"path": "index"},
        "bm25": {"k1": 0.9, "b": 0.4, "k": _CANDIDATES},
        "mono": {"checkpoint": "embedded:mono", "k": _CANDIDATES},
        "duo": {"checkpoint": "embedded:duo", "k": duo},
        "output": "out",
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    watch([BEAMRANK, "run", path])
    return folder / "out" / "runs"


def _compare(runs: Path, qrels: Path, measures: Sequence[str]) -> list[Row]:
    """Each run's measures, and its p-values against BM25, duo's also against mono."""
    rows: list[Row] = []
    for place, run in enumerate(_RUNS):
        rows.append({"run": run})
        for baseline in _RUNS[:place] or (run,):
            found = _evaluate(runs, qrels, measures, run, baseline)
            rows[-1] |= {"queries": found["queries"], **{name: round(found["measures"][name], 4) for name in measures}}
            if baseline != run:
                values = found["against"]["measures"]
                rows[-1] |= {f"p, {name}, {baseline}": round(values[name]["p_value"], 5) for name in measures}
    return rows


def _evaluate(runs: Path, qrels: Path, measures: Sequence[str], run: str, baseline: str) -> dict[str, Any]:
    command = [BEAMRANK, "eval", runs / f"{run}.trec", "--qrels", qrels, "--measures", " ".join(measures), "--json"]
    command += ["--against", runs / f"{baseline}.trec"] if baseline != run else []
    done = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.embedded_pair",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--squad", type=Path, help="SQuAD 1.1 as HTML pages in a tar.gz")
    parser.add_argument("--nfcorpus", type=Path, help="BEIR's NFCorpus, a zip")
    parser.add_argument("--no-demo", dest="demo", action="store_false", help="leave the demo out")
    parser.add_argument("--questions", type=int, default=500, help="of SQuAD's dev, NFCorpus' test (%(default)s)")
    parser.add_argument("--duo", type=int, default=20, help="how many of mono's best meet in pairs (%(default)s)")
    parser.add_argument("--output", type=Path, default=_RESULTS, help="the results (%(default)s)")
    return parser


if __name__ == "__main__":
    main()
