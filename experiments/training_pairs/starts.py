"""The initial models of the study: a BERT, or a small one that is made here, and the same after
more pre-training.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.datasets.squad import read_squad
from experiments.passage_length.medquad_training import MAX_QUERY_LENGTH, train
from models.training.config import load_train_config

COMMAND = "python -m experiments.training_pairs.study"
BATCH = 32
# The smallest of Turc et al. 2019.
_SMALL = {
    "model_type": "bert",
    "num_hidden_layers": 2,
    "hidden_size": 128,
    "num_attention_heads": 2,
    "intermediate_size": 512,
    "max_position_embeddings": 512,
}


@dataclass(frozen=True)
class Settings:
    """The settings that decide the figures.

    Attributes:
        start: the initial BERT of all; None is a small one that is made here.
        questions: how many questions of MedQuAD; None is all. One in `folds` is measured, not
            trained on.
        folds: see `questions`.
        k: candidates of a topic; a relevant passage is put at rank k if BM25 found none.
        pairs: training pairs, alternately with a relevant passage and another one.
        every_pairs: how often to measure.
        general_steps: steps of the small BERT's pre-training on SQuAD's paragraphs.
        pretraining: steps of target corpus pre-training, and of its control; 0 is none.
        pretraining_rate: the learning rate of all pre-training.
        max_length: tokens of an input.
        learning_rate: the learning rate of the fine-tuning.
    """

    start: str | None
    questions: int | None
    folds: int
    k: int
    pairs: int
    every_pairs: int
    general_steps: int
    pretraining: int
    pretraining_rate: float
    max_length: int
    learning_rate: float
    seed: int
    dtype: str


def make_starts(
    settings: Settings, folder: Path, general: Path | None, vocabulary: Path
) -> dict[str, str]:
    """The initial model of each training, by the training's name.

    Args:
        settings: the settings of the study.
        folder: the folder with MedQuAD's corpus.jsonl, where the models are written.
        general: SQuAD's HTML pages in a tar.gz, if a small BERT is made.
        vocabulary: the vocab.txt of that BERT.
    """
    starts: dict[str, str] = {}
    if general is None:
        assert settings.start is not None
        starts["plain"] = settings.start
    else:
        paragraphs = folder / "squad" / "corpus.jsonl"
        if not paragraphs.exists():
            read_squad(general).write_corpus(paragraphs.parent)
        small, steps = _write_small(folder / "small", vocabulary), settings.general_steps
        starts["plain"] = _pretrain(
            settings, small, paragraphs, folder / "made", steps, random_weights=True
        )
        if settings.pretraining:
            further = folder / "made-further"
            starts["general"] = _pretrain(
                settings, starts["plain"], paragraphs, further, settings.pretraining
            )
    if settings.pretraining:
        corpus, pretrained = folder / "corpus.jsonl", folder / "pretrained"
        starts["tcp"] = _pretrain(
            settings, starts["plain"], corpus, pretrained, settings.pretraining
        )
    return starts


def _write_small(folder: Path, vocabulary: Path) -> str:
    """Writes the configuration and the vocabulary of a small BERT; returns their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(vocabulary, folder / "vocab.txt")
    tokens = len(vocabulary.read_text(encoding="utf-8").splitlines())
    (folder / "config.json").write_text(json.dumps(_SMALL | {"vocab_size": tokens}))
    return str(folder)


def _pretrain(
    settings: Settings, start: str, corpus: Path, output: Path, steps: int, **keys: Any
) -> str:
    """Pre-trains a BERT on a corpus, or resumes; returns the folder of the model."""
    document = {
        "recipe": "tcp",
        "start": start,
        "data": {"corpus": {"path": str(corpus), "format": "jsonl"}},
        "input": {"max_query_length": MAX_QUERY_LENGTH, "max_length": settings.max_length},
        "optimizer": {
            "steps": steps,
            "batch_size": BATCH,
            "learning_rate": settings.pretraining_rate,
            "warmup_share": 0.1,
        },
        "seed": settings.seed,
        "dtype": settings.dtype,
        "output": str(output),
    }
    path = output.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(document | keys))
    train(load_train_config(str(path), "tcp"), "tcp", COMMAND)
    return str(output)
