"""What differs between two plans, and which stages are done again for it."""

import dataclasses
from typing import Any

import pytest

from beamrank.records import Topic
from beamrank.stages.plan import Plan, StageSpec, cut_shards
from beamrank.stages.plan_changes import Change, plan_changes

_TOPICS = [Topic(f"q{number}", f"text {number}") for number in range(6)]
_CONFIG: dict[str, Any] = {
    "index": {"path": "index"},
    "corpus": {"path": "corpus.tsv"},
    "mono": {"checkpoint": "embedded:mono"},
    "duo": {"checkpoint": "embedded:duo"},
}
_SCORED = {"truncation": "original", "max_length": 512, "dtype": "float32", "device": "cpu", "token_budget": 1024}
_AFTER_BM25: Any = ("tokenize", "mono", "duo")
_ALL = ("retrieve", *_AFTER_BM25)


def _tokenize(tokenizer: str, kind: str) -> StageSpec:
    keys = {"corpus": "c", "tokenizer": tokenizer, "max_doc_tokens": 512, "k": 100, "on_missing_doc": "error"}
    places = {"checkpoint": f"embedded:{kind}", "kind": kind}
    return StageSpec(f"tokenize-{tokenizer}", "tokenize", keys, ("retrieve",), places)


def _plan(**config: Any) -> Plan:
    stages = (
        StageSpec("retrieve", "retrieve", {"index": "i", "k1": 0.9, "b": 0.4, "k": 1000}, (), {"index": "index"}),
        _tokenize("t1", "mono"),
        StageSpec(
            "mono", "mono", {**_SCORED, "checkpoint": "m", "k": 100}, ("tokenize-t1",), {"checkpoint": "embedded:mono"}
        ),
        StageSpec(
            "duo",
            "duo",
            {**_SCORED, "checkpoint": "d", "k": 10},
            ("tokenize-t1", "mono"),
            {"checkpoint": "embedded:duo"},
        ),
    )
    return Plan("tag", "out", cut_shards(_TOPICS, 3), stages, {**_CONFIG, **config})


def _changed(plan: Plan, changes: dict[str, dict[str, Any]], **config: Any) -> Plan:
    """The plan with other keys of some kinds of stages."""
    stages = [dataclasses.replace(stage, keys={**stage.keys, **changes.get(stage.kind, {})}) for stage in plan.stages]
    return dataclasses.replace(plan, stages=tuple(stages), config={**plan.config, **config})


def test_the_same_plan_has_no_changes() -> None:
    assert plan_changes(_plan(), dataclasses.replace(_plan(), run_tag="other", output="elsewhere")) == []


def test_a_measure_is_no_change() -> None:
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
        ({kind: {"max_length": 64} for kind in ("mono", "duo")}, "input.max_length 512 -> 64", ("mono", "duo")),
        ({"tokenize": {"on_missing_doc": "drop"}}, "on_missing_doc error -> drop", _AFTER_BM25),
        ({"tokenize": {"corpus": "c2"}}, "corpus.path: the content of corpus.tsv changed", _AFTER_BM25),
        ({"mono": {"checkpoint": "m2"}}, "mono.checkpoint: the content of embedded:mono changed", ("mono", "duo")),
    ],
)
def test_a_changed_key_is_named_with_what_is_done_again(
    changes: dict[str, dict[str, Any]], words: str, stages: tuple[str, ...]
) -> None:
    (change,) = plan_changes(_plan(), _changed(_plan(), changes))
    assert str(change) == words
    assert change.stages == stages


def test_another_checkpoint_is_named_as_the_configuration_names_it() -> None:
    after = _changed(_plan(), {"duo": {"checkpoint": "d2"}}, duo={"checkpoint": "org/duo@1"})
    assert plan_changes(_plan(), after) == [Change("duo.checkpoint", "embedded:duo", "org/duo@1", ("duo",))]


def test_a_checkpoint_with_another_tokenizer_is_one_change() -> None:
    """Duo gets tokens of its own; mono's are as they were."""
    plan = _plan()
    *others, mono, duo = plan.stages
    duo = dataclasses.replace(duo, keys={**duo.keys, "checkpoint": "d2"}, inputs=("tokenize-t2", "mono"))
    after = dataclasses.replace(
        plan, stages=(*others, _tokenize("t2", "duo"), mono, duo), config={**plan.config, "duo": {"checkpoint": "x"}}
    )
    assert plan_changes(plan, after) == [Change("duo.checkpoint", "embedded:duo", "x", ("tokenize", "duo"))]


def test_a_new_stage_is_a_change_and_one_that_is_left_out_is_none() -> None:
    plan = _plan()
    without = dataclasses.replace(plan, stages=plan.stages[:1])
    assert plan_changes(plan, without) == []
    assert plan_changes(without, plan) == [
        Change("mono", None, "embedded:mono", _AFTER_BM25),
        Change("duo", None, "embedded:duo", ("duo",)),
    ]


def test_topics_and_shards() -> None:
    plan = _plan()
    other = [Topic("q0", "another text"), *_TOPICS[2:], Topic("new", "text")]
    (change,) = plan_changes(plan, dataclasses.replace(plan, shards=cut_shards(other, 3)))
    assert str(change) == "topics 6 -> 6 (1 new, 1 gone, 1 with another text)"
    assert change.stages == _ALL
    (change,) = plan_changes(plan, dataclasses.replace(plan, shards=cut_shards(_TOPICS, 2)))
    assert (str(change), change.stages) == ("shards 3 -> 2", _ALL)
