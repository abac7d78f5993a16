"""The docs and topics from which stages estimate their cost."""

import json
import random
from pathlib import Path

import pytest

from beamrank.config.run import load_config
from beamrank.formats.topics import read_topics
from models.checkpoints.checkpoint import resolve_checkpoint
from models.stages import planning
from models.stages.core import first_stage_of
from models.stages.planning import Sample
from tests.support.small_collection import SmallCollection

_SHORT, _LONG = 300, 20


@pytest.fixture
def collection(tmp_path: Path) -> SmallCollection:
    """Short docs, and after them some long ones, of which some are candidates."""
    drawn = random.Random(5)
    letters = "bcdfghjklm"
    docs = {f"short{number}": drawn.choice(letters) * 3 for number in range(_SHORT)}
    docs |= {f"long{number}": "xyz " * drawn.randrange(10, 14) for number in range(_LONG)}
    candidates = {f"q{number}": ["long1", "long2"] for number in range(40)}
    topics = dict.fromkeys(candidates, "xyz")
    return SmallCollection(tmp_path, docs, topics).given_run(candidates, k=10).with_models(mono_k=10)


def _sample(collection: SmallCollection) -> Sample:
    config = load_config(str(collection.path))
    checkpoints = {kind: resolve_checkpoint(str(collection.folder / kind), kind) for kind in ("mono", "duo")}
    return Sample(config, list(read_topics(config.topics)), checkpoints, 512, first_stage_of(config).trial)


def test_sample_of_a_given_run_holds_its_docs(collection: SmallCollection) -> None:
    found = _sample(collection)
    assert [doc.doc_id for doc in found.docs] == ["long1", "long2"]
    assert (found.is_random, found.corpus_docs) == (False, _SHORT + _LONG)
    assert found.doc_lengths.min() >= 30


@pytest.mark.jvm
def test_sample_of_an_index_holds_docs_that_topics_find(collection: SmallCollection) -> None:
    collection.with_index(10).plan()
    found = _sample(collection)
    assert not found.is_random
    assert {doc.doc_id[:4] for doc in found.docs} == {"long"}


@pytest.mark.jvm
def test_sample_without_an_index_is_random_and_spread_over_topics_and_docs(
    collection: SmallCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_TOKENIZED_DOCS", 16)
    found = _sample(collection.with_index(10))
    assert found.is_random
    assert [doc.doc_id for doc in found.docs][-2:] == ["short280", "long0"]
    assert list(found._shared_out(2))[:3] == ["q0", "q1", "q3"]
    assert len(found._shared_out(2)) == 24


def test_docs_of_a_corpus_are_counted_from_its_bytes(
    collection: SmallCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_READ_DOCS", 100)
    lines = [json.dumps({"id": f"d{number}", "contents": "text " * 100}) for number in range(1000)]
    collection.write("corpus.jsonl", lines)
    assert _sample(collection).corpus_docs == pytest.approx(1000, rel=0.1)


def test_seconds_of_an_inference_are_measured(collection: SmallCollection) -> None:
    found = _sample(collection)
    assert found.seconds_per_input("mono", "mono", 4) > 0
    assert found.seconds_per_input("duo", "duo", 3) > 0
