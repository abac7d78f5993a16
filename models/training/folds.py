"""Cross-validation: each fold's topics are ranked by a model that did not see them, and all of them are measured."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from beamrank.evaluation.evaluate import Evaluation, evaluate
from beamrank.evaluation.tables import COUNT, MEAN, Cell, Column, Table
from beamrank.formats.qrels import Judgments, Qrels
from beamrank.formats.run_writer import write_run
from beamrank.formats.runs import read_run
from beamrank.ranking.rankings import Ranking, Rankings, doc_orders, rank_candidates
from beamrank.storage import files as storage
from models.training.config import Kind, TrainConfig, load_train_config
from models.training.session import Session

HELD_OUT = "held-out.trec"
POOLED, GIVEN = "pooled.trec", "given.trec"
# A model that its own fold chose among several would be flattered: the fold is measured once, after the last step.
_ONCE = "dev.every_steps=1000000000"
_MEASURES = ("P@1", "AP", "RR")


@dataclass(frozen=True)
class Fold:
    """The topics of a fold, ranked by the model that did not see them, and as they were given."""

    reranked: Rankings
    given: Rankings
    qrels: Qrels

    def evaluate(self, measures: Sequence[str]) -> list[Evaluation]:
        """The measures of both rankings."""
        return [evaluate(doc_orders(rankings), self.qrels, measures) for rankings in (self.reranked, self.given)]


def fold_configs(path: str, kind: Kind, overrides: Sequence[str], output: str | None, count: int) -> list[TrainConfig]:
    """The configuration of each fold's training, which writes to fold-N in the configured output."""

    def load(held_out: int, output: str | None) -> TrainConfig:
        folds = (f"folds.count={count}", f"folds.held_out={held_out}")
        return load_train_config(path, kind, [*overrides, *folds, _ONCE], output)

    place = load(0, output).output
    return [load(number, storage.join(place, f"fold-{number}")) for number in range(count)]


def rank_held_out(session: Session) -> Fold:
    """Ranks the held-out topics of a finished training, unless a call did before, and writes their run beside it."""
    dev = session.dev
    assert dev is not None
    run = storage.join(session.config.output, HELD_OUT)
    if not storage.exists(run):
        rankings = dev.reranked(session.config.output, session.processes.device, torch.get_num_threads())
        write_run(run, rankings, "held-out")
    found = read_run(run)
    reranked = {
        query_id: Ranking(tuple(doc_ids), found.scores[query_id].astype(np.float64), len(doc_ids))
        for query_id, doc_ids in found.order.items()
    }
    return Fold(reranked, rank_candidates(dev.candidates), dev.qrels)


def pool(folds: Sequence[Fold]) -> Fold:
    """All folds as one, topics sorted by id."""
    relevance = {query_id: docs for fold in folds for query_id, docs in fold.qrels.relevance.items()}
    reranked = {query_id: ranking for fold in folds for query_id, ranking in fold.reranked.items()}
    given = {query_id: ranking for fold in folds for query_id, ranking in fold.given.items()}
    return Fold(
        dict(sorted(reranked.items())),
        dict(sorted(given.items())),
        Qrels(Judgments.of(relevance), folds[0].qrels.notes),
    )


def write_pooled(folds: Sequence[Fold], output: str, measure: str) -> Table:
    """Writes the runs of all folds together, reranked and as given; measures each fold and all topics together."""
    pooled = pool(folds)
    write_run(storage.join(output, POOLED), pooled.reranked, "pooled")
    write_run(storage.join(output, GIVEN), pooled.given, "given")
    measures = list(dict.fromkeys([measure, *_MEASURES]))
    rows: list[list[Cell]] = []
    for name, fold in [*((f"fold {number}", fold) for number, fold in enumerate(folds)), ("all", pooled)]:
        for kind, found in zip(("reranked", "given"), fold.evaluate(measures), strict=True):
            rows.append([f"{name}, {kind}", len(found.per_query), *found.means.values()])
    return Table([Column("topics"), Column("count", COUNT), *(Column(name, MEAN) for name in measures)], rows)
