"""Trainings on MedQuAD: the collection with BM25's run in a folder, and trainings on it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from beamrank.evaluation.evaluate import Evaluation
from beamrank.formats.corpora import CorpusConfig
from beamrank.formats.qrels import read_qrels
from beamrank.formats.run_writer import write_run
from beamrank.formats.runs import read_run
from beamrank.ranking.rankings import rank_candidates
from beamrank.storage import files as storage
from benchmarks.datasets.medquad import read_medquad
from contrib.papers.commands import with_relevant
from experiments.progress import StderrProgress
from models.training.config import Kind, TrainConfig
from models.training.session import Session, join_processes
from models.training.states import TrainState
from models.training.trainer import train as fit

# A topic of MedQuAD has some 10 wordpieces; with the default, 64, an input of 64 tokens has no room
# for a passage.
MAX_QUERY_LENGTH = 34
ARCHIVE = Path(__file__).resolve().parents[3] / "shared" / "data" / "medquad.tar.gz"


def start_name(start: str) -> str:
    """A start as the results name it: a folder by its last name."""
    return storage.name(start) if Path(start).is_dir() else start


def prepare(archive: Path, questions: int | None, k: int, folder: Path) -> None:
    """Writes corpus, topics, qrels and BM25's run to a folder, if it does not have them yet.

    A second run has a relevant passage at rank k of each topic for which BM25 found none.

    Args:
        archive: MedQuAD's XML files in a tar.gz.
        questions: how many questions; None is all.
        k: candidates of a topic.
        folder: the folder.
    """
    run, with_added = folder / "bm25.trec", folder / "with-relevant.trec"
    if not run.exists():
        _search(archive, questions, k, folder, run)
    if not with_added.exists():
        judged = read_qrels(str(folder / "qrels.txt"))
        write_run(
            str(with_added), with_relevant(read_run(str(run)), judged.relevance, k), "with-relevant"
        )


def _search(archive: Path, questions: int | None, k: int, folder: Path, run: Path) -> None:
    collection = read_medquad(archive)
    topics = collection.chosen(questions)
    collection.write_corpus(folder)
    collection.write_topics(folder, topics)
    from beamrank.machine import usable_cores
    from models.lucene.bm25 import Bm25Searcher
    from models.lucene.build import build_index

    threads = usable_cores()
    build_index(
        CorpusConfig(path=str(folder / "corpus.jsonl"), format="jsonl"),
        str(folder / "index"),
        threads,
    )
    with Bm25Searcher(str(folder / "index"), 0.9, 0.4, threads) as searcher:
        candidates = searcher.search(topics, k)
    lines = (
        f"{query_id} Q0 {doc_id} {rank} {k - rank} bm25\n"
        for query_id, ranking in rank_candidates(candidates).items()
        for rank, (doc_id, _) in enumerate(ranking, 1)
    )
    storage.replace(str(run), "".join(lines).encode())


def data_and_dev(
    k: int, folds: int, held_out: int, measure: str, every_steps: int
) -> dict[str, Any]:
    """The sections `data`, `folds` and `dev` of a configuration in the folder.

    Args:
        k: candidates of a topic.
        folds: the number of folds.
        held_out: the fold to measure.
        measure: the measure.
        every_steps: how often to measure.
    """
    topics = {"path": "topics.tsv", "format": "tsv"}
    return {
        "data": {
            "corpus": {"path": "corpus.jsonl", "format": "jsonl"},
            "topics": topics,
            "qrels": "qrels.txt",
            "run": "bm25.trec",
        },
        "folds": {"count": folds, "held_out": held_out},
        "dev": {
            "topics": topics,
            "qrels": "qrels.txt",
            "run": "with-relevant.trec",
            "k": k,
            "measure": measure,
            "every_steps": every_steps,
        },
    }


def train(config: TrainConfig, kind: Kind, command: str) -> tuple[Session, TrainState]:
    """Trains, or resumes the training in the configuration's output; the model card names the
    command.
    """
    session = Session(config, kind, join_processes(config.device))
    return session, fit(session, lambda: False, StderrProgress(), command)


def evaluate_best(session: Session, measures: Sequence[str]) -> Evaluation:
    """The measures of the dev run, re-ranked by the best model."""
    assert session.dev is not None
    reranked = session.dev.reranked(
        session.config.output, session.processes.device.type, torch.get_num_threads()
    )
    return session.dev.evaluate(reranked, measures)


def evaluate_bm25(session: Session, measures: Sequence[str]) -> Evaluation:
    """The measures of the dev run as given."""
    assert session.dev is not None
    return session.dev.evaluate(rank_candidates(session.dev.candidates), measures)


def first_ranks(found: Evaluation) -> list[int]:
    """The rank of each topic's first relevant passage, topics sorted by id; 0 if there is none."""
    values = (found.per_query[query_id]["RR"] for query_id in sorted(found.per_query))
    return [round(1 / value) if value else 0 for value in values]
