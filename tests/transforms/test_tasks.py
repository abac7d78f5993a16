"""The tasks of a job travel in files, and are read from them one by one."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from beamrank.commit.listing import TASKS, list_folder, tasks_prefix
from beamrank.commit.plan import Plan
from beamrank.commit.shards import (
    InputPart,
    ReusablePart,
    ShardTask,
    cut_rows,
    cut_shards,
    write_shards,
)
from beamrank.commit.stage import StageRecord
from beamrank.errors import DataError
from beamrank.formats.topic_table import TopicTable
from beamrank.records import Topic
from beamrank.storage import files as storage
from beamrank.storage.digested import DigestedFile
from tests.support.changed_files import flip_bit
from tests.support.outputs import make_plan, retrieve_record, seal_stage
from transforms.shards import TaskFile

_TOKENIZE = "tokenize-0a1b2c3d"


@pytest.fixture(params=["local", "memory"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "local" else f"memory://{tmp_path.name}/tasks"


def _plan(output: str, shards: int) -> Plan:
    topics = [Topic(f"q{number}", f"text {number}") for number in range(2 * shards)]
    plan = Plan("tag", output, cut_shards(topics, shards), (retrieve_record(),), {})
    plan.publish()
    return plan


def _write(plan: Plan, tasks: list[ShardTask]) -> TaskFile:
    return TaskFile.write(plan, tasks[0].folder.url, tasks_prefix(("a",)), tasks)


def test_tasks_are_read_as_they_were_written(output):
    plan = make_plan(output)
    plan.publish()
    manifest = seal_stage(plan, "retrieve")
    tasks = plan.tasks(plan.stage(_TOKENIZE), [manifest])
    part = tasks[1].inputs[0]
    scored = StageRecord("mono", "mono", "mono", (), keys={"k": 3, "dtype": "float32"})
    other = InputPart(plan.folder("other"), part.receipt)
    reusable = ReusablePart(part, other, scored, "abc")
    tasks[1] = replace(tasks[1], reusable=(reusable,))
    file = _write(plan, tasks)
    assert [file.read(task.shard) for task in tasks] == tasks
    assert list(file.read(2).topics) == list(plan.shards[2].topics)
    (entry,) = (each for each in list_folder(tasks[0].folder.url) if each.kind is TASKS)
    assert storage.join(tasks[0].folder.url, entry.path) == file.url


def test_tasks_have_the_instructions_of_their_topics(tmp_path):
    table = pa.table(
        {"query_id": ["q1", "q2"], "text": ["a", "b"], "instruction": ["Find", "Rank"]}
    )
    plan = Plan("tag", str(tmp_path), cut_shards(TopicTable(table), 2), (retrieve_record(),), {})
    plan.publish()
    file = _write(plan, tasks := plan.tasks(plan.stages[0], []))
    assert [file.read(task.shard) for task in tasks] == tasks
    (tmp_path / "damaged").mkdir()
    other = write_shards(
        cut_shards(TopicTable.of([("q1", "a"), ("q2", "b")]), 2), str(tmp_path / "damaged")
    )
    with pytest.raises(DataError, match=rf"{other} .*shard 0"):
        replace(file, topics_url=str(tmp_path / "damaged" / other)).read(0)


def test_tasks_of_rows_have_no_topics(output):
    plan = Plan(
        "tag",
        output,
        cut_rows([(DigestedFile("a.parquet", "v", "1" * 64), 5)], 2),
        (retrieve_record(),),
        {},
    )
    file = _write(plan, tasks := plan.tasks(plan.stages[0], []))
    assert [file.read(task.shard) for task in tasks] == tasks
    assert file.topics_url == ""


def test_open_shards_are_found_by_their_numbers(tmp_path):
    plan = _plan(str(tmp_path), 1000)
    done = [*range(5), 500, 999]
    tasks = [task for task in plan.tasks(plan.stages[0], []) if task.shard not in done]
    file = _write(plan, tasks[::-1])
    ranges = file.ranges()
    assert len(ranges) == 256
    assert [shard for each in ranges for shard in file.shards(each)] == [
        task.shard for task in tasks
    ]
    for task in (tasks[0], tasks[500], tasks[-1]):
        assert file.read(task.shard) == task
    few = _write(plan, tasks[:3])
    assert few.ranges() == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("pattern", ["topics-*", "retrieve/tasks-*"])
def test_damaged_or_missing_file_is_an_error_of_its_name(tmp_path, pattern):
    for name, damage in (("flip", partial(flip_bit, position=30)), ("unlink", Path.unlink)):
        folder = tmp_path / name
        plan = _plan(str(folder), 3)
        file = _write(plan, plan.tasks(plan.stages[0], []))
        (path,) = folder.glob(pattern)
        damage(path)
        with pytest.raises(DataError, match=path.name):
            list(map(file.read, range(3)))
