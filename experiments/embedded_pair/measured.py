"""The five collections that the embedded pair is measured on, and runs over them.

| name | topics | passages |
|---|---|---|
| questions | of SQuAD's dev split | all 20,963 paragraphs |
| keywords | NFCorpus' test queries | 3,633 abstracts |
| medical | MedQuAD's questions, of the fifth of its files that no training reads | whole answers |
| long | of SQuAD's dev split; some are others than above | three paragraphs at a time |
| docstrings | the 89 questions of `beamrank demo` | docstrings of Python |
| dev-keywords, not one of the five | NFCorpus' dev queries | its abstracts |
| articles, not one of the five | CACM's judged topics; nothing was trained on them | its records |
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import yaml
from numpy.typing import NDArray

from beamrank.demo.collection import demo_qrels, demo_questions, stdlib_docs
from beamrank.evaluation.evaluate import evaluate_run_files
from beamrank.formats.qrels import read_qrels
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.records import Doc, Topic
from benchmarks.datasets.archives import tar_texts
from benchmarks.datasets.cacm import read_cacm
from benchmarks.datasets.collection import Collection
from benchmarks.datasets.medquad import is_measured, read_medquad, read_pairs
from benchmarks.datasets.nfcorpus import read_nfcorpus
from benchmarks.datasets.squad import read_squad
from benchmarks.subprocess_meter import BEAMRANK, run_metered

MEASURE = "nDCG@10"
CANDIDATES = 100
_PARAGRAPHS = 3
_TSV, _JSONL, _TREC = "tsv", "jsonl", "trec"

Stages: TypeAlias = Mapping[str, Any]
"""Sections of a configuration."""


@dataclass(frozen=True)
class Measured:
    """A collection with its topics and qrels in a folder, which also takes the runs.

    Attributes:
        folder: the folder.
        collection: what is in it.
        max_length: tokens of an input of mono and duo.
    """

    folder: Path
    collection: Collection
    max_length: int

    @classmethod
    def write(
        cls, folder: Path, collection: Collection, topics: int | None, length: int
    ) -> "Measured":
        """Writes the corpus, and some of its topics with their judgments."""
        collection.write_corpus(folder)
        count = len(collection.topics)
        chosen = collection.chosen(count if topics is None else min(topics, count))
        collection.write_topics(folder, chosen)
        return cls(folder, collection, length)

    def run(self, first: Stages, cascade: Sequence[Stages]) -> Path:
        """Runs a first stage and the stages after it; returns the folder of the runs."""
        config = {
            "run_tag": "pair",
            "corpus": {"path": "corpus.jsonl", "format": _JSONL},
            "topics": {"path": "topics.tsv", "format": _TSV},
            **first,
            "input": {"max_length": self.max_length},
            "cascade": list(cascade),
            "output": "out",
        }
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        run_metered([BEAMRANK, "run", path])
        return self.folder / "out" / "runs"

    def topics(self) -> list[Topic]:
        """The topics in the folder."""
        return _topics(self.folder / "topics.tsv", _TSV)

    def values(self, run: Path) -> NDArray[np.float64]:
        """nDCG@10 of each topic, topics sorted by query_id."""
        (one,) = evaluate_run_files([str(run)], str(self.folder / "qrels.txt"), [MEASURE])
        return np.array([value for _, _, value in sorted(one.evaluation.rows())])


BM25: Stages = {
    "index": {"path": "index"},
    "bm25": {"k1": 0.9, "b": 0.4, "k": CANDIDATES},
}


def read_long(archive: Path) -> Collection:
    """SQuAD's dev questions with three paragraphs of an article as a passage. Their ids are others,
    so that a choice of some has others than one of `read_squad`.
    """
    squad, joined = read_squad(archive), dict[str, list[str]]()
    longer: dict[str, str] = {}
    for doc_id, text in squad.passages:
        article, _, place = doc_id.rpartition("-")
        longer[doc_id] = f"{article}-{int(place) // _PARAGRAPHS:03d}"
        joined.setdefault(longer[doc_id], []).append(text)
    return Collection(
        tuple(Doc(doc_id, " ".join(texts)) for doc_id, texts in joined.items()),
        tuple(Topic(f"long-{query_id}", text) for query_id, text in squad.topics),
        {
            f"long-{query_id}": {longer[doc_id]: level for doc_id, level in levels.items()}
            for query_id, levels in squad.qrels.items()
        },
    )


def read_medical(archive: Path) -> Collection:
    """MedQuAD's answers, and the questions that only the measured files ask."""
    medquad = read_medquad(archive)
    asked: dict[bool, set[str]] = {True: set(), False: set()}
    for name, text in tar_texts(archive, ".xml").items():
        asked[is_measured(name)].update(question for question, _ in read_pairs(text))
    kept = tuple(topic for topic in medquad.topics if topic.text in asked[True] - asked[False])
    return Collection(medquad.passages, kept, medquad.qrels)


def read_dev(archive: Path) -> Collection:
    """NFCorpus' dev queries that are not queries of its test split under another id."""
    dev, test = (read_nfcorpus(archive, split) for split in ("dev", "test"))
    measured = {topic.text for topic in test.topics}
    topics = tuple(topic for topic in dev.topics if topic.text not in measured)
    return Collection(dev.passages, topics, dev.qrels)


def read_docstrings() -> Collection:
    """The collection of `beamrank demo`."""
    qrels: dict[str, dict[str, int]] = {}
    for query_id, doc_id in demo_qrels():
        qrels.setdefault(query_id, {})[doc_id] = 1
    topics = (Topic(question.query_id, question.text) for question in demo_questions())
    return Collection(tuple(stdlib_docs()), tuple(topics), qrels)


def read_articles(folder: Path) -> Collection:
    """CACM's records and judged topics. Some of its judgments have ids without leading zeros."""
    judgments = read_qrels(str(folder / "qrels.cacm.txt")).relevance
    qrels = {
        query_id: {f"CACM-{doc_id[5:]:0>4}": level for doc_id, level in levels.items()}
        for query_id, levels in judgments.items()
    }
    topics = _topics(folder / "topics.cacm.txt", _TREC)
    judged = tuple(topic for topic in topics if topic.query_id in qrels)
    return Collection(tuple(read_cacm(folder / "cacm.tar.gz")), judged, qrels)


def read_collections(
    squad: Path, nfcorpus: Path, medquad: Path, cacm: Path, names: Sequence[str]
) -> dict[str, tuple[Collection, int]]:
    """The chosen collections, each with the tokens of an input."""
    readers: dict[str, tuple[Callable[[], Collection], int]] = {
        "questions": (lambda: read_squad(squad), 256),
        "keywords": (lambda: read_nfcorpus(nfcorpus, "test"), 384),
        "medical": (lambda: read_medical(medquad), 384),
        "long": (lambda: read_long(squad), 512),
        "docstrings": (read_docstrings, 112),
        "dev-keywords": (lambda: read_dev(nfcorpus), 384),
        "articles": (lambda: read_articles(cacm), 512),
    }
    return {name: (readers[name][0](), readers[name][1]) for name in names}


def _topics(path: Path, layout: str) -> list[Topic]:
    return list(read_topics(TopicsConfig(path=str(path), format=layout)))
