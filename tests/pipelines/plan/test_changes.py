"""What differs between two plans, and which stages are redone for it."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from beamrank.commit import plan as plans
from beamrank.commit.listing import CURRENT
from beamrank.commit.plan import EngineVersionError, Plan
from beamrank.commit.shards import cut_shards
from beamrank.errors import BeamrankError
from beamrank.records import Topic
from pipelines.plan.changes import Change, plan_changes
from pipelines.shares import check_share
from tests.support.models.stages import a_stage
from tests.support.outputs import finished_output

_TOPICS = [Topic(f"q{number}", f"text {number}") for number in range(6)]
_CONFIG: dict[str, Any] = {
    "index": {"path": "index"},
    "corpus": {"path": "corpus.tsv"},
    "cascade": [
        {kind: {"name": kind, "checkpoint": f"embedded:{kind}"}} for kind in ("mono", "duo")
    ],
}
_AFTER_BM25 = ("tokenize", "mono", "duo")
_ALL = ("retrieve", *_AFTER_BM25)


def _plan(changes: dict[str, dict[str, Any]] | None = None, **config: Any) -> Plan:
    """A plan with other settings of some stages."""
    stages = tuple(a_stage(step, **(changes or {}).get(step, {})).record() for step in _ALL)
    return Plan("tag", "out", cut_shards(_TOPICS, 3), stages, {**_CONFIG, **config})


def test_changes_of_the_same_plan_are_none() -> None:
    assert (
        plan_changes(_plan(), dataclasses.replace(_plan(), run_tag="other", output="elsewhere"))
        == []
    )


def test_changes_ignore_measures() -> None:
    assert plan_changes(_plan(measures=["AP"]), _plan(measures=["RR"])) == []


@pytest.mark.parametrize(
    ("changes", "words", "stages"),
    [
        ({"tokenize": {"k": 50}, "mono": {"k": 50}}, "mono.k 100 -> 50", _AFTER_BM25),
        ({"duo": {"k": 5}}, "duo.k 10 -> 5", ("duo",)),
        ({"duo": {"opponents": 3}}, "duo.opponents none -> 3", ("duo",)),
        ({"retrieve": {"b": 0.8}}, "bm25.b 0.4 -> 0.8", _ALL),
        ({"retrieve": {"k": 10}}, "bm25.k 1000 -> 10", _ALL),
        (
            {kind: {"dtype": "bfloat16"} for kind in ("mono", "duo")},
            "dtype float32 -> bfloat16",
            ("mono", "duo"),
        ),
        (
            {kind: {"max_length": 64} for kind in ("mono", "duo")},
            "input.max_length 512 -> 64",
            ("mono", "duo"),
        ),
        ({"tokenize": {"on_missing_doc": "drop"}}, "on_missing_doc error -> drop", _AFTER_BM25),
        (
            {"tokenize": {"corpus_digest": "c2"}},
            "corpus.path: the content of corpus.tsv changed",
            _AFTER_BM25,
        ),
        (
            {"mono": {"checkpoint_digest": "m2"}},
            "mono.checkpoint: the content of embedded:mono changed",
            ("mono", "duo"),
        ),
    ],
)
def test_changes_name_the_key_and_its_stages(changes, words, stages):
    (change,) = plan_changes(_plan(), _plan(changes))
    assert str(change) == words
    assert change.stages == stages


def test_changes_name_a_checkpoint_as_configured() -> None:
    after = _plan(
        {"duo": {"checkpoint_digest": "d2"}}, cascade=[{"duo": {"checkpoint": "org/duo@1"}}]
    )
    assert plan_changes(_plan(), after) == [
        Change("duo.checkpoint", "embedded:duo", "org/duo@1", ("duo",))
    ]


def test_changes_name_a_tokenizer_once() -> None:
    """Duo gets tokens of its own; mono's are as they were."""
    plan = _plan()
    tokens = a_stage("tokenize", tokenizer_digest="t2", model="duo")
    duo = a_stage("duo", checkpoint_digest="d2", tokens=tokens.name)
    stages = (*plan.stages[:2], tokens.record(), plan.stages[2], duo.record())
    after = dataclasses.replace(
        plan, stages=stages, config={**plan.config, "cascade": [{"duo": {"checkpoint": "x"}}]}
    )
    assert plan_changes(plan, after) == [
        Change("duo.checkpoint", "embedded:duo", "x", ("tokenize", "duo"))
    ]


def test_changes_name_a_new_stage() -> None:
    plan = _plan()
    without = dataclasses.replace(plan, stages=plan.stages[:1])
    assert plan_changes(plan, without) == []
    assert plan_changes(without, plan) == [
        Change("mono", None, "embedded:mono", _AFTER_BM25),
        Change("duo", None, "embedded:duo", ("duo",)),
    ]


def test_changes_of_topics_and_shards() -> None:
    plan = _plan()
    other = [Topic("q0", "another text"), *_TOPICS[2:], Topic("new", "text")]
    (change,) = plan_changes(plan, dataclasses.replace(plan, shards=cut_shards(other, 3)))
    assert str(change) == "topics 6 -> 6 (1 new, 1 gone, 1 with another text)"
    assert change.stages == _ALL
    (change,) = plan_changes(plan, dataclasses.replace(plan, shards=cut_shards(_TOPICS, 2)))
    assert (str(change), change.stages) == ("shards 3 -> 2", _ALL)


def _share(folder: Path, **changes: Any) -> Plan:
    return dataclasses.replace(_plan(), **{"output": str(folder), "written": "w", **changes})


_FOUND = [
    ({"tokenize": {"corpus_digest": "c2"}}, "corpus.path: the content of corpus.tsv changed"),
    ({"retrieve": {"index_digest": "i2"}}, "index.path: the content of index changed"),
    ({"mono": {"dtype": "bfloat16"}}, "dtype float32 -> bfloat16"),
    ({"mono": {"kernel": "compiled"}}, "kernel torch -> compiled"),
]


@pytest.mark.parametrize(("changes", "words"), _FOUND)
def test_share_that_finds_something_else_names_it(tmp_path, changes, words) -> None:
    current, found = _share(tmp_path), _share(tmp_path, stages=_plan(changes).stages)
    check_share(found)
    current.publish()
    check_share(current)
    with pytest.raises(BeamrankError, match=re.escape(words)) as raised:
        check_share(found)
    assert raised.value.exit_code == 1
    found.publish()
    check_share(found)


def test_share_of_another_version_of_the_engine_names_it(tmp_path, monkeypatch) -> None:
    _share(tmp_path).publish()
    later = plans.ENGINE_VERSION + 1
    with monkeypatch.context() as patch:
        patch.setattr(plans, "ENGINE_VERSION", later)
        found = _share(tmp_path, engine_version=later)
        with pytest.raises(BeamrankError, match=f"engine_version {later - 1} -> {later}"):
            check_share(found)
        found.publish()
    with pytest.raises(EngineVersionError):
        check_share(_share(tmp_path))


def test_share_that_the_user_wrote_otherwise_is_another_run(tmp_path) -> None:
    _share(tmp_path).publish()
    stages = _plan({"tokenize": {"corpus_digest": "c2"}}).stages
    check_share(_share(tmp_path, stages=stages, written="other"))
    (tmp_path / CURRENT).write_text("{")
    check_share(_share(tmp_path, stages=stages))


def test_share_after_a_finished_run_is_another_run(tmp_path) -> None:
    finished = finished_output(str(tmp_path))
    check_share(_share(tmp_path, written=finished.written))
