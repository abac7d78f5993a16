"""Two real checkpoints and real texts."""

from itertools import chain

import pytest
from transformers import BertTokenizer

from beamrank.demo.collection import demo_topics, stdlib_docs
from models.checkpoints import resolve_checkpoint
from models.engine import ScoringEngine
from tests.models.bert import MINILM, Oracle, save_minilm


@pytest.fixture(scope="session")
def mono_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_minilm(tmp_path_factory.mktemp("mono"), 2, 1)


@pytest.fixture(scope="session")
def duo_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_minilm(tmp_path_factory.mktemp("duo"), 3, 2)


@pytest.fixture(scope="session")
def mono_engine(mono_folder: str) -> ScoringEngine:
    return ScoringEngine(resolve_checkpoint(mono_folder, "mono"), "cpu", "float32", 1, 1024)


@pytest.fixture(scope="session")
def duo_engine(duo_folder: str) -> ScoringEngine:
    return ScoringEngine(resolve_checkpoint(duo_folder, "duo"), "cpu", "float32", 1, 1024)


@pytest.fixture(scope="session")
def mono_oracle(mono_folder: str) -> Oracle:
    return Oracle(mono_folder)


@pytest.fixture(scope="session")
def duo_oracle(duo_folder: str) -> Oracle:
    return Oracle(duo_folder)


@pytest.fixture(scope="session")
def queries() -> list[list[int]]:
    """Token ids of real questions."""
    tokenizer = BertTokenizer.from_pretrained(MINILM)
    return tokenizer([topic.text for topic in demo_topics()], add_special_tokens=False)["input_ids"]


@pytest.fixture(scope="session")
def text() -> list[int]:
    """Token ids of a long real text: docstrings of the standard library, one after the other."""
    tokenizer = BertTokenizer.from_pretrained(MINILM)
    docs = tokenizer([doc.text for doc in stdlib_docs()[:1500]], add_special_tokens=False)["input_ids"]
    return list(chain.from_iterable(docs))
