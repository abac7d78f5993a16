"""Engines over small and real checkpoints, and real texts."""

from collections.abc import Iterator
from itertools import chain

import pytest
import torch
from transformers import BertTokenizer

from beamrank.demo.collection import demo_questions, stdlib_docs
from models.checkpoints.checkpoint import resolve_checkpoint
from models.scoring.engine import ScoringEngine
from tests.support.checkpoints import MINILM, save_minilm
from tests.support.oracle import Oracle

Scorers = tuple[ScoringEngine, Oracle]


def _engine(folder: str, kind: str) -> ScoringEngine:
    return ScoringEngine(resolve_checkpoint(folder, kind), "cpu", "float32", 1, 1024)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """torch computes with one thread, as the engine's backend does for each batch: two share the
    rows of a product.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def mono_engine(mono_checkpoint: str) -> ScoringEngine:
    return _engine(mono_checkpoint, "mono")


@pytest.fixture(scope="session")
def duo_engine(duo_checkpoint: str) -> ScoringEngine:
    return _engine(duo_checkpoint, "duo")


@pytest.fixture(scope="session")
def mono_oracle(mono_checkpoint: str) -> Oracle:
    return Oracle(mono_checkpoint)


@pytest.fixture(scope="session")
def duo_oracle(duo_checkpoint: str) -> Oracle:
    return Oracle(duo_checkpoint)


@pytest.fixture(scope="session")
def minilm_mono(tmp_path_factory: pytest.TempPathFactory) -> Scorers:
    """A real BERT of six layers as ours and as transformers'."""
    folder = save_minilm(tmp_path_factory.mktemp("minilm-mono"), 2, 1)
    return _engine(folder, "mono"), Oracle(folder)


@pytest.fixture(scope="session")
def minilm_duo(tmp_path_factory: pytest.TempPathFactory) -> Scorers:
    folder = save_minilm(tmp_path_factory.mktemp("minilm-duo"), 3, 2)
    return _engine(folder, "duo"), Oracle(folder)


@pytest.fixture(scope="session")
def queries() -> list[list[int]]:
    """Token ids of real questions."""
    tokenizer = BertTokenizer.from_pretrained(MINILM)
    return tokenizer([topic.text for topic in demo_questions()], add_special_tokens=False)[
        "input_ids"
    ]


@pytest.fixture(scope="session")
def text() -> list[int]:
    """Token ids of a long real text: docstrings of the standard library, one after the other."""
    tokenizer = BertTokenizer.from_pretrained(MINILM)
    docs = tokenizer([doc.text for doc in stdlib_docs()[:1500]], add_special_tokens=False)[
        "input_ids"
    ]
    return list(chain.from_iterable(docs))
