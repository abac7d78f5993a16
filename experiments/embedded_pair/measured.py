"""The collections that the embedded pair is measured on, and runs over them."""

import json
import subprocess
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from beamrank.demo.collection import write_collection as write_demo_collection
from benchmarks.datasets.nfcorpus import read_nfcorpus
from benchmarks.datasets.squad import read_squad
from benchmarks.subprocess_meter import BEAMRANK, run_metered

CANDIDATES = 100

Row = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """A corpus, with topics.tsv and qrels.txt in a folder that also takes the runs.

    Attributes:
        folder: the folder.
        corpus: the corpus, as in a configuration.
        measures: the measures, the collection's own first.
        is_demo: whether it is the collection of `beamrank demo`.
    """

    folder: Path
    corpus: dict[str, str]
    measures: tuple[str, ...] = ("RR@10", "nDCG@10")
    is_demo: bool = False

    def run(self, stages: dict[str, Any]) -> Path:
        """Runs BM25 and the given stages after it; returns the folder of the runs."""
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
        run_metered([BEAMRANK, "run", path])
        return self.folder / "out" / "runs"

    def compare(self, runs: Path, names: Sequence[str]) -> list[Row]:
        """Each run's measures, and its p-values against the runs named before it."""
        rows: list[Row] = []
        for place, run in enumerate(names):
            found = self._evaluate(runs, run, names[:place])
            rows.append({"run": run, "queries": found["queries"]})
            rows[-1] |= {name: round(found["measures"][name], 4) for name in self.measures}
            for baseline, compared in zip(names[:place], found.get("against", []), strict=True):
                values = {name: compared["measures"][name]["p_value"] for name in self.measures}
                rows[-1] |= {
                    f"p, {name}, {baseline}": each and round(each, 5)
                    for name, each in values.items()
                }
        return rows

    def _evaluate(self, runs: Path, run: str, baselines: Sequence[str]) -> dict[str, Any]:
        command = [
            BEAMRANK,
            "eval",
            runs / f"{run}.trec",
            "--qrels",
            self.folder / "qrels.txt",
            "--json",
        ]
        command += ["--measures", " ".join(self.measures)]
        for baseline in baselines:
            command += ["--against", runs / f"{baseline}.trec"]
        done = subprocess.run(
            [str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def write_demo(folder: Path) -> Measured:
    """The collection of `beamrank demo`."""
    write_demo_collection(str(folder))
    return Measured(folder, {"path": str(folder / "corpus.jsonl"), "format": "jsonl"}, is_demo=True)


def write_squad(folder: Path, archive: Path, questions: int) -> Measured:
    """Questions of SQuAD's dev split over all paragraphs."""
    squad = read_squad(archive)
    squad.write_corpus(folder)
    squad.write_topics(folder, squad.chosen(questions))
    return Measured(folder, {"path": str(folder / "corpus.jsonl"), "format": "jsonl"})


def write_nfcorpus(folder: Path, archive: Path, questions: int) -> Measured:
    """Queries of NFCorpus' test split, all of them where it has fewer than `questions`."""
    found = read_nfcorpus(archive, "test")
    found.write_topics(folder, found.chosen(min(questions, len(found.topics))))
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    (corpus,) = folder.rglob("corpus.jsonl")
    return Measured(folder, {"path": str(corpus.parent), "format": "beir"}, ("nDCG@10", "RR@10"))
