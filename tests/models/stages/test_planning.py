"""The docs and topics from which stages estimate their cost; stages of a plan."""

import json
import random
from pathlib import Path

import pytest

from beamrank.config.run import load_config
from beamrank.errors import PreflightError
from beamrank.formats.topics import read_topics
from beamrank.records import Topic
from models.stages import planning
from models.stages.core import open_stages, stage_class
from models.stages.planning import Sample, shared_out
from pipelines.plan.make_plan import planned
from tests.support.models.stages import a_stage
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
    return (
        SmallCollection(tmp_path, docs, topics).given_run(candidates, k=10).with_models(mono_k=10)
    )


def _sample(collection: SmallCollection) -> Sample:
    config = load_config(str(collection.path))
    return Sample.of(
        config, list(read_topics(config.topics)), open_stages(planned(config)[0].stages)
    )


def test_sample_of_a_given_run_holds_its_docs(collection: SmallCollection) -> None:
    found = _sample(collection)
    assert (found.is_random, found.corpus_docs) == (False, _SHORT + _LONG)
    assert len(found.doc_lengths) == 2
    assert found.doc_lengths.min() >= 30
    assert set(found.seconds_per_input) == {"mono", "duo"}
    assert min(found.seconds_per_input.values()) > 0


@pytest.mark.jvm
def test_sample_of_an_index_holds_docs_that_topics_find(collection: SmallCollection) -> None:
    collection.with_index(10).plan()
    found = _sample(collection)
    assert not found.is_random
    assert found.seconds_a_topic > 0
    assert found.doc_lengths.min() >= 30


@pytest.mark.jvm
def test_sample_without_an_index_is_random_and_spread_over_the_docs(
    collection: SmallCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_TOKENIZED_DOCS", 16)
    found = _sample(collection.with_index(10))
    assert found.is_random
    assert [length >= 30 for length in found.doc_lengths] == [False] * 15 + [True]


def test_docs_are_spread_over_topics() -> None:
    topics = [Topic(f"q{number}", "x") for number in range(3)]
    assert shared_out(topics, list("abcdefgh"), 1) == {"q0": ["a"], "q1": ["c"], "q2": ["e"]}
    assert shared_out(topics, list("abcd"), 2) == {
        "q0": ["a", "b"],
        "q1": ["c", "d"],
        "q2": ["a", "b"],
    }


def test_docs_of_a_corpus_are_counted_from_its_bytes(
    collection: SmallCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_READ_DOCS", 100)
    lines = [json.dumps({"id": f"d{number}", "contents": "text " * 100}) for number in range(1000)]
    collection.write("corpus.jsonl", lines)
    assert _sample(collection).corpus_docs == pytest.approx(1000, rel=0.1)


def test_stages_of_a_plan_read_back_with_those_before_them():
    stages = [a_stage(step) for step in ("retrieve", "tokenize", "mono", "duo")]
    opened = open_stages([stage.record() for stage in stages])
    assert opened == stages
    assert [stage.name for stage in opened[3].chain] == ["retrieve", "mono"]


def test_stage_that_no_package_has_is_named():
    with pytest.raises(PreflightError, match="kind 'colbert'"):
        stage_class("colbert")
