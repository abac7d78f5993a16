"""Outputs of plans, on a disk and at a store."""

from pathlib import Path

import pytest


@pytest.fixture(params=["local", "memory"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "out") if request.param == "local" else f"memory://{tmp_path.name}/out"
