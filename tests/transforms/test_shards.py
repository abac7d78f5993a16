"""Tasks are run once, one at a time in a process, and not at all where a receipt is there."""

import threading
import time
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to

from beamrank.stages.receipts import Receipt, StageFolder
from beamrank.stages.tasks import ShardTask
from beamrank.storage import files as storage
from transforms.shards import RunShards

_running: list[int] = []
_most: list[int] = []


class SlowStage:
    """Writes a shard's number, slowly, and keeps count of how many do so at once."""

    def run(self, task: ShardTask) -> Receipt:
        _running.append(threading.get_ident())
        _most.append(len(_running))
        time.sleep(0.02)
        _running.pop()
        table = pa.table({"shard": [task.shard]})
        return task.commit(table, seconds=0, counts={})


def _tasks(folder: Path, shards: int) -> list[ShardTask]:
    return [ShardTask(StageFolder(str(folder)), shard, f"digest{shard}") for shard in range(shards)]


def _run(folder: Path, shards: int, *flags: str) -> None:
    options = PipelineOptions(["--runner=FnApiRunner", *flags])
    with beam.Pipeline(options=options) as pipeline:
        done = pipeline | beam.Create(_tasks(folder, shards)) | RunShards(SlowStage())
        assert_that(done, equal_to(list(range(shards))))


@pytest.mark.parametrize(
    "flags", [(), ("--direct_running_mode=multi_threading", "--direct_num_workers=4")], ids=["in_memory", "4 threads"]
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
