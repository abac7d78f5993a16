"""The way from the command to the model is short: our calls, in all threads, at the moment when a model is run."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from models.scoring.backends.torch import TorchBackend
from pipelines.cli import app
from tests.support.small_collection import small_cascade

_ROOT = Path(__file__).parents[3]
_OURS = {"beamrank", "models", "transforms", "pipelines"}
_MOST_CALLS = 15
_MOST_FILES = 9


def _ours(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    """The file and the name of each of our functions on a stack, the innermost first."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_ROOT) and path.relative_to(_ROOT).parts[0] in _OURS:
            yield str(path.relative_to(_ROOT)), frame.f_code.co_qualname
        frame = frame.f_back


@pytest.mark.parametrize("runner", ["local", "embed"])
def test_few_calls_in_few_files_lead_from_the_command_to_the_model(runner, tmp_path, monkeypatch):
    ways: list[list[tuple[str, str]]] = []
    forward = TorchBackend.forward

    def traced(backend, batch):
        if not ways:
            ways.append([call for frame in sys._current_frames().values() for call in _ours(frame)])
        return forward(backend, batch)

    monkeypatch.setattr(TorchBackend, "forward", traced)
    collection = small_cascade(tmp_path)
    app(["run", str(collection.path), "--runner", runner], standalone_mode=False)
    # The command line itself is before the command; `traced` stands where the backend's own call does.
    (way,) = ([call for call in each if call[0] not in ("pipelines/cli.py", "pipelines/main.py")] for each in ways)
    way.append(("models/scoring/backends/torch.py", "TorchBackend.forward"))
    assert ("pipelines/commands/run.py", "run") in way
    assert any(name == "ScoringEngine.score" for _, name in way)
    assert len(way) <= _MOST_CALLS, way
    assert len({file for file, _ in way}) <= _MOST_FILES, way
