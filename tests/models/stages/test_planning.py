"""Stages of a plan."""

import pytest

from beamrank.errors import PreflightError
from models.stages.core import open_stages, stage_class
from tests.support.models.stages import a_stage


def test_stages_of_a_plan_read_back_with_those_before_them():
    stages = [a_stage(step) for step in ("retrieve", "tokenize", "mono", "duo")]
    opened = open_stages([stage.record() for stage in stages])
    assert opened == stages
    assert [stage.name for stage in opened[3].chain] == ["retrieve", "mono"]


def test_stage_that_no_package_has_is_named():
    with pytest.raises(PreflightError, match="kind 'colbert'"):
        stage_class("colbert")
