"""The steps of a training, told before the first one."""

import pytest

from beamrank.errors import ConfigError
from models.training.session import plan_training
from tests.models.training.test_session import config as config
from tests.support.training import make_session, save_start, write_train_config


def test_plan_of_a_training_changes_nothing(config):
    plan = plan_training(make_session(config, "duo", ["optimizer.batch_size=8"], dry_run=True))
    assert (plan["groups"], plan["inputs_per_group"], plan["steps"]) == (10, 2, 40)
    assert plan["epochs"] == pytest.approx(40 * 4 / 10)
    assert plan["seconds"] > 0
    assert plan["parameters"] > 10_000
    assert not (config.parent / "out").exists()


def test_schedule_turns_epochs_into_steps(tmp_path):
    optimizer = {"epochs": 3, "batch_size": 4, "warmup_share": 0.2}
    config = write_train_config(tmp_path, save_start(tmp_path / "start"), optimizer=optimizer)
    schedule = make_session(config, "mono").schedule
    assert (schedule.steps, schedule.groups_per_step, schedule.warmup_steps) == (15, 2, 3)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.batch_size=3", "must be a multiple of 2: 2 inputs a group, 1 processes, 1 micro-batches"),
        ("optimizer.warmup_steps=40", "the learning rate would never reach its peak"),
    ],
)
def test_schedule_refuses_impossible_steps(override, message, config):
    with pytest.raises(ConfigError, match=message):
        make_session(config, "mono", [override])


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (
            {"epochs": 1, "batch_size": 200},
            "a step takes 100 groups, and there are 10: the training makes 10.0 passes over them, not 1",
        ),
        ({"epochs": 2, "batch_size": 20}, None),
        (
            {"epochs": 0.1, "batch_size": 8},
            "a step takes 4 groups, and there are 10: the training makes 0.4 passes over them, not 0.1",
        ),
        (
            {"steps": 5, "batch_size": 40},
            "a step takes 20 groups, and there are 10: the training makes 10.0 passes over them",
        ),
    ],
)
def test_passes_of_large_steps_are_said(keys, line, tmp_path):
    config = write_train_config(tmp_path, save_start(tmp_path / "start"), optimizer=keys)
    found = [each for each in make_session(config, "mono").lines() if "passes" in each]
    assert found == ([] if line is None else [f"{line}; lower optimizer.batch_size"])
