"""A join whose needed docs are in several files, which the launcher or a job writes: no byte of a
run differs.
"""

import math
import shutil
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beamrank.errors import BeamrankError
from beamrank.join.doc_hashes import RANGE_BYTES, NeededList
from pipelines.launcher import Launcher
from pipelines.passes import Job, Passes
from tests.support.runs import assert_same_bytes, undisturbed_run
from tests.support.small_collection import SmallCollection, small_cascade
from tests.support.tiers import slow_but
from transforms.scatter import ListNeededDocs


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> SmallCollection:
    return small_cascade(tmp_path_factory.mktemp("collection"))


@pytest.fixture
def lists(collection, monkeypatch) -> dict[str, int]:
    """The names and sizes of the files of needed docs of a run, of which there are three at
    least.
    """
    shutil.rmtree(collection.output, ignore_errors=True)
    found: dict[str, int] = {}
    list_needed = Passes._list_needed

    def noted(self: Passes, *arguments: Any) -> Generator[Job, None, NeededList]:
        needed = yield from list_needed(self, *arguments)
        found.update({Path(url).name: Path(url).stat().st_size for url in needed.urls})
        return needed

    monkeypatch.setattr(Passes, "_list_needed", noted)
    monkeypatch.setattr("pipelines.passes.count_ranges", lambda _: 3)
    return found


@pytest.mark.parametrize("jobs", slow_but(1, [2, 1]))
def test_list_in_three_files_gives_the_same_bytes_from_the_launcher_and_from_jobs(
    collection, lists, monkeypatch, jobs
) -> None:
    expected = undisturbed_run(collection.path)
    lists.clear()
    collection.run()
    assert_same_bytes(collection.output, expected)
    by_launcher = dict(lists)
    assert len(by_launcher) == 3
    shutil.rmtree(collection.output)
    monkeypatch.setattr("pipelines.launcher.IN_MEMORY", frozenset())
    monkeypatch.setattr(
        "pipelines.launcher.shuffle_room", lambda *_: RANGE_BYTES * 2 if jobs == 2 else math.inf
    )
    made: list[range] = []
    expand = ListNeededDocs.expand

    def noted(self: ListNeededDocs, tasks: Any) -> Any:
        made.append(self.part.chosen)
        return expand(self, tasks)

    monkeypatch.setattr(ListNeededDocs, "expand", noted)
    collection.run(launcher=Launcher)
    assert made == ([range(2), range(2, 3)] if jobs == 2 else [range(3)])
    assert lists == by_launcher
    assert_same_bytes(collection.output, expected)
    # A sealed stage has no list.
    assert not list(collection.output.glob("tokenize-*/needed-*"))


def test_job_that_leaves_a_range_without_its_file_is_an_error(
    collection, lists, monkeypatch
) -> None:
    monkeypatch.setattr("pipelines.launcher.IN_MEMORY", frozenset())
    expand = ListNeededDocs.expand

    def without_the_last(self: ListNeededDocs, tasks: Any) -> Any:
        self.part = replace(self.part, chosen=range(2))
        return expand(self, tasks)

    monkeypatch.setattr(ListNeededDocs, "expand", without_the_last)
    with pytest.raises(BeamrankError, match=r"1 of 3 files .*tokenize-"):
        collection.run(launcher=Launcher)
    assert not lists
    assert not list(collection.output.glob("tokenize-*/receipts/*"))
