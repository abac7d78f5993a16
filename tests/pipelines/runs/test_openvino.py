"""A run whose models OpenVINO computes."""

import json

import numpy as np

from tests.support.small_collection import small_cascade


def test_run_with_openvino_scores_as_with_torch(tmp_path):
    collection = small_cascade(tmp_path)
    torch_run = collection.run(output=tmp_path / "torch")
    run = collection.run("backend=openvino", output=tmp_path / "openvino")
    for stage, column in (("mono", "score"), ("duo", "scores")):
        found, wanted = (np.array([row[column] for row in each.rows(stage)]) for each in (run, torch_run))
        assert found.size == 60
        np.testing.assert_allclose(found, wanted, atol=1e-4, equal_nan=True)
    plan = json.loads(next((tmp_path / "openvino").glob("plan-*.json")).read_text())
    assert plan["config"]["backend"] == "openvino"
    assert {path.name for path in (tmp_path / "torch").glob("plan-*")} != {
        path.name for path in (tmp_path / "openvino").glob("plan-*")
    }
