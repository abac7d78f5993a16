"""Tasks are run once, one at a time in a process, and not at all where a receipt is there."""

import threading
import time
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineResult
from apache_beam.testing.util import assert_that, equal_to

from beamrank.commit.plan import Plan
from beamrank.commit.receipts import StageFolder
from beamrank.commit.shards import ShardTask, cut_rows
from beamrank.storage import files as storage
from models.stages.compute import Computed, ShardInputs
from transforms.shards import RunShards, SpreadTasks, TaskFile

_running: list[int] = []
_most: list[int] = []


class SlowStage:
    """Writes a shard's number, slowly, and keeps count of how many do so at once."""

    inputs = ()
    shards_at_a_time = 1
    asks = False

    def compute(self, inputs: ShardInputs) -> Computed:
        _running.append(threading.get_ident())
        _most.append(len(_running))
        time.sleep(0.02)
        _running.pop()
        return Computed(pa.table({"shard": [inputs.shard]}), {})


class OverlappedStage:
    """A model takes one shard at a time, and is done with one only when another was read
    meanwhile.
    """

    inputs = ()
    asks = False
    shards_at_a_time = 3

    def __init__(self, shards: int, broken: int | None = None) -> None:
        self._shards, self._broken = shards, broken

    def compute(self, inputs: ShardInputs) -> Computed:
        with _changed:
            _read.append(inputs.shard)
            _changed.notify_all()
        with _model:
            if inputs.shard == self._broken:
                raise ValueError("this shard fails")
            with _changed:
                last = len(_scored) + 1 == self._shards
                _overlapped.append(
                    last or _changed.wait_for(lambda: len(_read) > len(_scored) + 1, timeout=30)
                )
                _scored.append(inputs.shard)
        return Computed(pa.table({"shard": [inputs.shard]}), {"inferences": 1})


_model, _changed = threading.Lock(), threading.Condition()
_read: list[int] = []
_scored: list[int] = []
_overlapped: list[bool] = []


def _tasks(folder: Path, shards: int) -> list[ShardTask]:
    return [ShardTask(StageFolder(str(folder)), shard, f"digest{shard}") for shard in range(shards)]


def _task_file(folder: Path, shards: int) -> TaskFile:
    plan = Plan("test", str(folder), cut_rows([], 1), (), {})
    return TaskFile.write(plan, str(folder), "tasks-", _tasks(folder, shards))


def _run(folder: Path, shards: int, *flags: str) -> None:
    options = PipelineOptions(["--runner=FnApiRunner", *flags])
    with beam.Pipeline(options=options) as pipeline:
        file = _task_file(folder, shards)
        done = pipeline | SpreadTasks(file) | RunShards(SlowStage(), file)
        assert_that(done, equal_to(list(range(shards))))


@pytest.mark.parametrize(
    "flags",
    [(), ("--direct_running_mode=multi_threading", "--direct_num_workers=4")],
    ids=["in_memory", "4 threads"],
)
def test_tasks_leave_receipts_and_run_one_at_a_time(tmp_path: Path, flags: tuple[str, ...]) -> None:
    _most.clear()
    _run(tmp_path, 12, *flags)
    assert len(_most) == 12
    assert set(_most) == {1}
    receipts = StageFolder(str(tmp_path)).receipts(task.digest for task in _tasks(tmp_path, 12))
    assert sorted(receipts) == list(range(12))


def test_tasks_with_receipts_are_not_run_again(tmp_path: Path) -> None:
    _run(tmp_path, 3)
    _most.clear()
    _run(tmp_path, 5)
    assert len(_most) == 2
    receipt = StageFolder(str(tmp_path)).receipt(1, "digest1")
    assert receipt is not None
    storage.remove(StageFolder(str(tmp_path)).part_url(receipt))
    _run(tmp_path, 5)
    assert len(_most) == 3


def _run_overlapped(folder: Path, shards: int, broken: int | None = None) -> PipelineResult:
    for each in (_read, _scored, _overlapped):
        each.clear()
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
    file = _task_file(folder, shards)
    done = pipeline | SpreadTasks(file) | RunShards(OverlappedStage(shards, broken), file)
    assert_that(done, equal_to(list(range(shards))))
    return pipeline.run()


def test_shard_is_read_while_another_is_scored(tmp_path: Path) -> None:
    result = _run_overlapped(tmp_path, 7)
    assert _overlapped == [True] * 7
    assert sorted(_scored) == list(range(7))
    counters = {
        each.key.metric.name: each.committed for each in result.metrics().query()["counters"]
    }
    assert (counters["shards"], counters["num_inferences"]) == (7, 7)
    assert (
        len(StageFolder(str(tmp_path)).receipts(task.digest for task in _tasks(tmp_path, 7))) == 7
    )


def test_failed_shard_ends_a_bundle_when_no_other_is_running(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="this shard fails"):
        _run_overlapped(tmp_path, 3, broken=1)
    receipts = StageFolder(str(tmp_path)).receipts(task.digest for task in _tasks(tmp_path, 3))
    assert sorted(receipts) == sorted(_scored)
    assert 1 not in receipts
