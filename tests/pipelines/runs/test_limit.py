"""A trial on the first topics: `--limit`, `topics.limit`."""

import json
from collections.abc import Sequence

import pytest

from beamrank.commit.plan import Plan, read_plan
from beamrank.config.load import load_config
from beamrank.errors import ConfigError, PreflightError
from tests.support.processes import beamrank_here, succeed
from tests.support.runs import read_trec
from tests.support.small_collection import SmallCollection, small_cascade


@pytest.fixture(scope="module")
def collection(tmp_path_factory) -> SmallCollection:
    """Ten topics, all judged; the qrels judge one more."""
    made = small_cascade(tmp_path_factory.mktemp("small"))
    with (made.folder / "qrels.txt").open("a") as qrels:
        qrels.write("stranger 0 d1 1\n")
    return made


def _query_ids(plan: Plan) -> Sequence[str]:
    return [topic.query_id for topic in plan.topics]


def test_limit_keeps_the_first_topics_of_the_whole_plan(collection: SmallCollection) -> None:
    whole, trial = collection.plan().plan, collection.plan("topics.limit=3").plan
    # With a topic a shard, the plan shows the order that topics are cut in.
    assert _query_ids(trial) == _query_ids(collection.plan("shards=10").plan)[:3]
    assert trial.limited
    assert trial.digest != whole.digest
    assert (
        collection.plan("topics.limit=10").plan == collection.plan("topics.limit=11").plan == whole
    )


def test_limit_counts_judged_topics_where_only_those_are_run(
    collection: SmallCollection, tmp_path
) -> None:
    judged = _query_ids(collection.plan().plan)[-2:]
    (tmp_path / "qrels.txt").write_text("".join(f"{query_id} 0 d1 1\n" for query_id in judged))
    overrides = ["topics.limit=1", f"qrels={tmp_path / 'qrels.txt'}"]
    assert _query_ids(collection.plan(*overrides, "topics.only_judged=true").plan) == judged[:1]
    with pytest.raises(PreflightError, match=r" 1 topics .*2 .*10"):
        collection.plan(*overrides)


def test_limit_measures_over_the_topics_of_the_trial_alone(
    collection: SmallCollection, tmp_path
) -> None:
    output = tmp_path / "trial"
    done = succeed("run", collection.path, "--limit", "3", "--output", output)
    assert "the first 3 of 10 topics" in done.stderr
    assert "the 3 judged topics among the 3 " in done.stderr
    assert set(read_trec(output / "runs/mono.trec")) == set(_query_ids(read_plan(str(output))))
    # Every given run has its relevant doc at rank 5: over all eleven judged topics the mean would
    # be less.
    assert json.loads((output / "runs/measures.json").read_text())["candidates"] == {
        "RR@10": pytest.approx(0.2)
    }
    verified = succeed("verify", output)
    assert "were not checked" not in verified.stderr


def test_limit_of_zero_is_refused(collection: SmallCollection) -> None:
    for command in ("run", "plan"):
        assert beamrank_here(command, collection.path, "--limit", "0").returncode == 2
    with pytest.raises(ConfigError, match=r"topics\.limit"):
        load_config(str(collection.path), ["topics.limit=0"])
