"""One row of the length study: a mono trained on four folds of MedQuAD in five, measured on the one held out."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from beamrank import storage
from beamrank.config import CorpusConfig
from beamrank.evaluation import Evaluation
from beamrank.merge import bm25_ranking
from benchmarks.medquad import read_medquad, write_collection
from models.engine import resolve_device
from models.training.config import TrainConfig, load_train_config
from models.training.dev import DevSet
from models.training.processes import Processes
from models.training.session import Session
from models.training.trainer import Listener

MEASURES = ("P@1", "AP", "RR")
METHODS: dict[str, dict[str, Any]] = {
    "BERT[PW]": {"objective": "pointwise", "labels": 2},
    "BERTlets": {"objective": "bertlets", "labels": 1},
    "BERT[CE]": {"objective": "bert_ce", "labels": 1},
}
# Tokens of an input, and how many inputs a passage is read as.
INPUTS = ((64, 1), (128, 1), (256, 1), (384, 1), (128, 2), (128, 3))
# A topic of MedQuAD has some 10 wordpieces; with BERT's 64 an input of 64 tokens would have no room for a passage.
_MAX_QUERY_LENGTH = 34
_NEVER = 1_000_000_000


@dataclass(frozen=True)
class Settings:
    """What decides the figures, apart from the row.

    Attributes:
        start: the BERT that every training begins with.
        questions: how many of MedQuAD's; None is all.
        k: candidates of a topic; a relevant passage is at rank k where BM25 missed them all.
        negatives: triplets of a positive at most.
        steps: of a training; None is the three epochs of the paper.
        folds: how many the topics are cut into.
    """

    start: str
    questions: int | None
    k: int
    negatives: int
    steps: int | None
    folds: int
    seed: int
    dtype: str


@dataclass(frozen=True)
class Row:
    """A training of the study."""

    method: str
    tokens: int
    chunks: int
    fold: int

    @property
    def input(self) -> str:
        """What a passage is read as, in the paper's words."""
        return input_name(self.tokens, self.chunks)

    @property
    def folder(self) -> str:
        """The name of the training's folder."""
        return f"{METHODS[self.method]['objective']}-{self.chunks}x{self.tokens}-fold{self.fold}"


def input_name(tokens: int, chunks: int) -> str:
    """256, or 2*128."""
    return str(tokens) if chunks == 1 else f"{chunks}*{tokens}"


def prepare(archive: Path, settings: Settings, folder: Path) -> None:
    """Writes corpus, topics, qrels and BM25's run, where the folder does not have them yet."""
    run = folder / "bm25.trec"
    if run.exists():
        return
    collection = read_medquad(archive)
    topics = collection.chosen(settings.questions)
    write_collection(collection, topics, folder)
    from models.bm25 import Bm25Searcher
    from models.index import build_index
    from pipelines.planning import usable_cores

    threads = usable_cores()
    build_index(CorpusConfig(path=str(folder / "corpus.jsonl"), format="jsonl"), str(folder / "index"), threads)
    with Bm25Searcher(str(folder / "index"), 0.9, 0.4, threads) as searcher:
        candidates = searcher.search(topics, settings.k)
    lines = (
        f"{query_id} Q0 {doc_id} {rank} {settings.k - rank} bm25\n"
        for query_id, ranking in bm25_ranking(candidates).items()
        for rank, (doc_id, _) in enumerate(ranking, 1)
    )
    storage.replace(str(run), "".join(lines).encode())


def train_config(row: Row, settings: Settings, folder: Path) -> TrainConfig:
    """The configuration of a row, written beside its data. The fold is measured once, after the last step."""
    topics = {"path": "topics.tsv", "format": "tsv"}
    document: dict[str, Any] = {
        "recipe": "nonfactoid",
        "start": settings.start,
        "data": {
            "corpus": {"path": "corpus.jsonl", "format": "jsonl"},
            "topics": topics,
            "qrels": "qrels.txt",
            "run": "bm25.trec",
        },
        **METHODS[row.method],
        "sampling": {"mode": "triplets", "ranks": [1, settings.k], "negatives": settings.negatives},
        "input": {"max_query_length": _MAX_QUERY_LENGTH, "max_length": row.tokens},
        "folds": {"count": settings.folds, "held_out": row.fold},
        "dev": {
            "topics": topics,
            "qrels": "qrels.txt",
            "run": "bm25.trec",
            "k": settings.k,
            "add_relevant": True,
            "measure": "RR",
            "every_steps": _NEVER,
        },
        "dtype": settings.dtype,
        "seed": settings.seed,
        "output": row.folder,
    }
    if row.chunks > 1:
        document["chunks"] = {"count": row.chunks}
    if settings.steps is not None:
        document["optimizer"] = {"steps": settings.steps}
    path = folder / f"{row.folder}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return load_train_config(str(path), "mono")


def measure_row(row: Row, settings: Settings, folder: Path, listener: Listener) -> dict[str, Any]:
    """Trains, or goes on with what the folder holds, and measures.

    Returns:
        The row with its figures and those of BM25 on the same fold. `ranks` are those of each topic's first relevant
        passage, topics sorted by id; 0 where there is none among the candidates.
    """
    config = train_config(row, settings, folder)
    device = resolve_device(config.device)
    session = Session(config, "mono", Processes(device=device))
    progress = session.before
    if not progress.finished:
        progress = session.train(lambda: False, listener, f"python -m benchmarks.passage_length ({row.folder})")
    assert session.dev is not None
    reranked = session.dev.reranked(config.output, device, torch.get_num_threads())
    found = session.dev.evaluate(reranked, MEASURES)
    return {
        **asdict(row),
        "topics": len(found.per_query),
        "steps": progress.step,
        "train_seconds": round(progress.seconds, 1),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "measures": _rounded(found),
        "ranks": " ".join(map(str, _first_ranks(found))),
        "bm25": _rounded(_first_stage(session.dev)),
    }


def _first_stage(dev: DevSet) -> Evaluation:
    return dev.evaluate(bm25_ranking(dev.candidates), MEASURES)


def _rounded(found: Evaluation) -> dict[str, float]:
    return {name: round(value, 5) for name, value in found.means.items()}


def _first_ranks(found: Evaluation) -> list[int]:
    values = (found.per_query[query_id]["RR"] for query_id in sorted(found.per_query))
    return [round(1 / value) if value else 0 for value in values]
