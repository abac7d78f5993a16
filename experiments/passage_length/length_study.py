"""One row of the length study: a mono trained on four of five folds of MedQuAD, measured on the
other.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
import yaml

from beamrank.evaluation.evaluate import Evaluation
from experiments.passage_length.medquad_training import (
    data_and_dev,
    evaluate_best,
    evaluate_bm25,
    first_ranks,
    train,
)
from models.training.config import TrainConfig, load_train_config

MEASURES = ("P@1", "AP", "RR")
# The recipe of each method.
METHODS = {"BERT[PW]": "nonfactoid-pw", "BERTlets": "nonfactoid", "BERT[CE]": "nonfactoid-ce"}
# The rule of the recipes; the first results had another.
TRUNCATION = "hf"
_NEVER = 1_000_000_000


@dataclass(frozen=True)
class Input:
    """How a passage is read: the tokens of an input, how many inputs it is split into, and how they
    are combined.
    """

    tokens: int
    chunks: int = 1
    pooling: str = "attention"

    @property
    def name(self) -> str:
        """As the paper names it: 256, or 2*128; with `max` in front for max pooling."""
        lengths = str(self.tokens) if self.chunks == 1 else f"{self.chunks}*{self.tokens}"
        return lengths if self.pooling == "attention" else f"{self.pooling} {lengths}"


BASELINE = Input(256)
INPUTS = (
    *(Input(64), Input(128), BASELINE, Input(384)),
    *(Input(128, chunks, pooling) for pooling in ("attention", "max") for chunks in (2, 3)),
)


@dataclass(frozen=True)
class Settings:
    """The settings that decide the figures, beside the row.

    Attributes:
        start: the initial BERT.
        questions: how many questions of MedQuAD; None is all.
        k: candidates of a topic; a relevant passage is put at rank k if BM25 found none.
        negatives: the maximum of triplets per positive.
        steps: steps of a training; None is the three epochs of the paper.
        learning_rate: its peak.
        folds: the number of folds.
    """

    start: str
    questions: int | None
    k: int
    negatives: int
    steps: int | None
    learning_rate: float
    folds: int
    seed: int
    dtype: str


@dataclass(frozen=True)
class Row:
    """A training of the study."""

    method: str
    input: Input
    fold: int

    @property
    def folder(self) -> str:
        """The folder of the training."""
        how = self.input
        return f"{METHODS[self.method]}-{how.pooling}-{how.chunks}x{how.tokens}-fold{self.fold}"

    @classmethod
    def of_result(cls, values: Mapping[str, Any]) -> "Row":
        """The training that a row of results was measured with."""
        return cls(
            values["method"],
            Input(**{each.name: values[each.name] for each in fields(Input)}),
            values["fold"],
        )


def train_config(row: Row, settings: Settings, folder: Path) -> TrainConfig:
    """Writes the configuration of a row beside its data. The fold is measured once, after the last
    step.
    """
    document: dict[str, Any] = {
        "recipe": METHODS[row.method],
        "start": settings.start,
        **data_and_dev(settings.k, settings.folds, row.fold, "RR", _NEVER),
        "sampling": {"mode": "triplets", "ranks": [1, settings.k], "negatives": settings.negatives},
        "input": {"max_length": row.input.tokens},
        "optimizer": {"learning_rate": settings.learning_rate},
        "dtype": settings.dtype,
        "seed": settings.seed,
        "output": row.folder,
    }
    if row.input.chunks > 1:
        document["chunks"] = {"count": row.input.chunks, "pooling": row.input.pooling}
    if settings.steps is not None:
        document["optimizer"]["steps"] = settings.steps
    path = folder / f"{row.folder}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return load_train_config(str(path), "mono")


def measure_row(row: Row, settings: Settings, folder: Path) -> dict[str, Any]:
    """Trains, or resumes the training in the folder, and measures.

    Returns:
        The row with its figures and those of BM25 on the same fold. `ranks` are the ranks of each
        topic's first relevant passage, topics sorted by id; 0 if there is none among the
        candidates.
    """
    config = train_config(row, settings, folder)
    session, progress = train(
        config, "mono", f"python -m experiments.passage_length.study ({row.folder})"
    )
    found = evaluate_best(session, MEASURES)
    return {
        "method": row.method,
        **asdict(row.input),
        "fold": row.fold,
        "topics": len(found.per_query),
        "steps": progress.step,
        "train_seconds": round(progress.seconds, 1),
        "device": torch.cuda.get_device_name()
        if session.processes.device.type == "cuda"
        else "cpu",
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "measures": _rounded(found),
        "ranks": " ".join(map(str, first_ranks(found))),
        "bm25": _rounded(evaluate_bm25(session, MEASURES)),
    }


def _rounded(found: Evaluation) -> dict[str, float]:
    return {name: round(value, 5) for name, value in found.means.items()}
