"""A run whose models OpenVINO computes."""

import importlib.util
import json

import numpy as np
import pytest

from tests.support.processes import refused
from tests.support.small_collection import small_cascade


@pytest.mark.slow
def test_run_with_openvino_scores_as_with_torch(tmp_path):
    collection = small_cascade(tmp_path)
    torch_run = collection.run(output=tmp_path / "torch")
    run = collection.run("backend=openvino", output=tmp_path / "openvino")
    for stage, column, size in (("mono", "score", 60), ("duo", "scores", 90)):
        found, wanted = (np.array([row[column] for row in each.rows(stage)]) for each in (run, torch_run))
        assert found.size == size
        np.testing.assert_allclose(found, wanted, atol=1e-4, equal_nan=True)
    plan = json.loads(next((tmp_path / "openvino").glob("plan-*.json")).read_text())
    assert plan["config"]["backend"] == "openvino"
    assert {path.name for path in (tmp_path / "torch").glob("plan-*")} != {
        path.name for path in (tmp_path / "openvino").glob("plan-*")
    }


def test_command_without_openvino_names_what_to_install(tmp_path, monkeypatch):
    config = small_cascade(tmp_path).path
    find = importlib.util.find_spec
    monkeypatch.setattr("contrib.openvino.backend.find_spec", lambda name: None if name == "openvino" else find(name))
    command = ("run", config, "--set", "backend=openvino", "--output", tmp_path / "out")
    assert "pip install 'beamrank[openvino]'" in refused(*command, code=3)
    assert list((tmp_path / "out").glob("plan-*")) == []
