"""The way from the command to the model is short: our calls, in all threads, at the moment when a
model is run.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from models.scoring.backends.torch import TorchBackend
from pipelines.cli import app
from tests.support.small_collection import small_cascade
from tests.support.tiers import slow_but

_ROOT = Path(__file__).parents[3]
_OURS = {"beamrank", "models", "transforms", "pipelines"}
# The command, the job, the shard, the batch: a function of each thread on the way.
_THREADS = {"run", "_run", "ScoringEngine.score", "ScoringEngine._score_batch"}
# Its stage computes, and the attempt, which may start again, commits.
_MOST_CALLS = 17
_MOST_FILES = 10


def _ours(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    """The file and the name of each of our functions on a stack, the innermost first."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_ROOT) and path.relative_to(_ROOT).parts[0] in _OURS:
            yield str(path.relative_to(_ROOT)), frame.f_code.co_qualname
        frame = frame.f_back


def _way(stack: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The calls of a thread that is on the way, but for those that wait for the job's thread."""
    names = [name for _, name in stack]
    if _THREADS.isdisjoint(names):
        return []
    return stack[names.index("run_watched") :] if "run_watched" in names else stack


@pytest.mark.parametrize("runner", slow_but(1, ["local", "embed"]))
def test_few_calls_in_few_files_lead_from_the_command_to_the_model(runner, tmp_path, monkeypatch):
    ways: list[list[tuple[str, str]]] = []
    forward = TorchBackend.forward

    def traced(backend, batch):
        if not ways:
            stacks = [list(_ours(frame)) for frame in sys._current_frames().values()]
            ways.append(
                [
                    call
                    for stack in stacks
                    if any(name in _THREADS for _, name in stack)
                    for call in _way(stack)
                ]
            )
        return forward(backend, batch)

    monkeypatch.setattr(TorchBackend, "forward", traced)
    collection = small_cascade(tmp_path)
    app(["run", str(collection.path), "--runner", runner], standalone_mode=False)
    # The command line itself is before the command; `traced` stands where the backend's own call
    # does.
    (way,) = (
        [call for call in each if call[0] not in ("pipelines/cli.py", "pipelines/main.py")]
        for each in ways
    )
    # Two batches can be in progress at once, each in a thread of its own.
    way = list(dict.fromkeys(way))
    way.append(("models/scoring/backends/torch.py", "TorchBackend.forward"))
    assert {name for _, name in way} >= _THREADS
    assert len(way) <= _MOST_CALLS, way
    assert len({file for file, _ in way}) <= _MOST_FILES, way
