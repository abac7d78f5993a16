"""The docs and topics that an estimate is made from."""

import json
import random
from pathlib import Path

import pytest

from beamrank.config.run import load_config
from beamrank.formats.topics import read_topics
from models.checkpoints.checkpoint import resolve_checkpoint
from models.stages import sample
from models.stages.sample import Sample
from tests.support.small_collection import SmallCollection

_SHORT, _LONG = 300, 20


@pytest.fixture
def collection(tmp_path: Path) -> SmallCollection:
    """Short docs about nothing that is asked, and after them some long ones that are."""
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
    return Sample(config, list(read_topics(config.topics)), checkpoints, 512)


def test_sample_weighs_docs_that_topics_would_find(collection: SmallCollection) -> None:
    found = _sample(collection)
    assert len(found.docs) == found.corpus_docs == _SHORT + _LONG
    assert found.doc_lengths.min() >= 30


def test_sample_is_spread_over_topics_and_docs(collection: SmallCollection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "_KEPT_DOCS", 16)
    found = _sample(collection)
    assert [topic.query_id for topic in found.topics][:3] == ["q0", "q1", "q3"]
    assert len(found.topics) == 24
    assert [doc.doc_id for doc in found.docs][-2:] == ["short280", "long0"]


def test_docs_of_a_corpus_are_counted_from_its_bytes(
    collection: SmallCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample, "_READ_DOCS", 100)
    lines = [json.dumps({"id": f"d{number}", "contents": "text " * 100}) for number in range(1000)]
    collection.write("corpus.jsonl", lines)
    assert _sample(collection).corpus_docs == pytest.approx(1000, rel=0.1)


def test_seconds_of_an_inference_are_measured(collection: SmallCollection) -> None:
    found = _sample(collection)
    assert found.seconds_per_input("mono", "mono", 4) > 0
    assert found.seconds_per_input("duo", "duo", 3, best=True) > 0
