"""A trial on the first topics: `--limit`, `topics.limit`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from beamrank.config.run import load_config
from beamrank.errors import ConfigError, PreflightError
from beamrank.stages.plan import Plan, read_plan
from pipelines.cli import app
from pipelines.console.progress import ConsoleProgress
from pipelines.planning.make_plan import make_plan
from tests.support.collections import small_cascade


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten topics, of which every one is judged; the qrels judge one more."""
    path = small_cascade(tmp_path_factory.mktemp("small")).path
    with (path.parent / "qrels.txt").open("a") as qrels:
        qrels.write("stranger 0 d1 1\n")
    return path


def _plan(config: Path, *overrides: str) -> Plan:
    return make_plan(load_config(str(config), overrides), ConsoleProgress(quiet=True))


def _query_ids(plan: Plan) -> Sequence[str]:
    return [topic.query_id for topic in plan.topics]


def _invoke(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_limit_keeps_the_first_topics_of_the_whole_plan(config: Path) -> None:
    whole, trial = _plan(config), _plan(config, "topics.limit=3")
    assert _query_ids(trial) == _query_ids(whole)[:3]
    assert trial.limited
    assert trial.digest != whole.digest


@pytest.mark.parametrize("limit", [10, 11])
def test_a_limit_that_leaves_nothing_out_makes_the_same_plan(config: Path, limit: int) -> None:
    assert _plan(config, f"topics.limit={limit}") == _plan(config)


def test_a_limit_counts_judged_topics_where_only_those_are_run(config: Path, tmp_path: Path) -> None:
    judged = _query_ids(_plan(config))[-2:]
    (tmp_path / "qrels.txt").write_text("".join(f"{query_id} 0 d1 1\n" for query_id in judged))
    overrides = ["topics.limit=1", f"qrels={tmp_path / 'qrels.txt'}"]
    assert _query_ids(_plan(config, *overrides, "topics.only_judged=true")) == judged[:1]
    with pytest.raises(PreflightError, match=r"none of the first 1 topics .* though 2 of all 10 are"):
        _plan(config, *overrides)


def test_a_trial_is_measured_over_its_own_topics_alone(config: Path, tmp_path: Path) -> None:
    output = tmp_path / "trial"
    done = _invoke("run", config, "--limit", "3", "--output", output)
    assert done.exit_code == 0, done.output
    assert "a trial: the first 3 of 10 topics are run (topics.limit)" in done.stderr
    assert "means over the 3 judged topics among the 3 that were run (topics.limit)" in done.stderr
    ran = {line.split()[0] for line in (output / "runs/mono.trec").read_text().splitlines()}
    assert ran == set(_query_ids(read_plan(str(output)))) == set(_query_ids(_plan(config, "topics.limit=3")))
    # Every given run has its relevant doc at rank 5: over all eleven judged topics the mean would be less.
    assert json.loads((output / "runs/measures.json").read_text())["candidates"] == {"RR@10": pytest.approx(0.2)}
    verified = _invoke("verify", output)
    assert verified.exit_code == 0, verified.output
    assert "were not checked" not in verified.stderr


def test_a_limit_of_nothing_is_a_wrong_flag(config: Path) -> None:
    for command in ("run", "plan"):
        assert _invoke(command, config, "--limit", "0").exit_code == 2
    with pytest.raises(ConfigError, match=r"topics\.limit"):
        load_config(str(config), ["topics.limit=0"])
