"""The docs that a first stage leaves out of its candidates, and what it counts."""

from dataclasses import replace
from pathlib import Path

import pytest

from beamrank.commit.receipts import StageFolder
from beamrank.commit.schemas import candidates_table
from beamrank.commit.shards import ShardTask
from beamrank.errors import DataError
from beamrank.formats.excluded import read_excluded
from beamrank.records import Topic
from beamrank.section import SELF
from models.stages.given_run import GivenRun

_TOPICS = tuple(Topic(query_id, "x") for query_id in ("q1", "q2", "q3", "q4", "q5"))


def _commit(
    stage: GivenRun, folder: Path
) -> tuple[list[tuple[str, str, int, float]], dict[str, int]]:
    """The rows and the counts of a shard with these candidates."""
    candidates = candidates_table(
        ["q1", "q2", "q3", "q4"],
        [["a", "b"], ["a"], ["a", "b"], ["a", "b"]],
        [[3, 2], [3], [3, 2], [3, 2]],
    )
    task = ShardTask(StageFolder(str(folder)), 0, "a" * 64, _TOPICS)
    receipt = stage.computed(_TOPICS, candidates).commit(task, 0.0)
    return [tuple(row.values()) for row in task.folder.read_part(receipt).to_pylist()], dict(
        receipt.counts
    )


def test_first_stage_counts_topics_without_candidates(tmp_path: Path):
    rows, counts = _commit(GivenRun(run_digest="r", k=2, url="run"), tmp_path / "retrieve")
    assert len(rows) == 7
    assert counts == {"topics": 5, "topics_without_candidates": 1, "candidates": 7}


def _excluding(folder: Path, text: str | None) -> GivenRun:
    path = SELF
    if text is not None:
        path = str(folder / "pairs.txt")
        Path(path).write_text(text)
    return GivenRun(
        run_digest="r", k=1, url="run", exclude=read_excluded(path).digest, excluded=path
    )


def test_first_stage_leaves_docs_out_before_k_is_counted(tmp_path: Path):
    stage = _excluding(tmp_path, "q1 a\nq1 a\nq2 a\nq3 b\nq9 a\n")
    rows, counts = _commit(stage, tmp_path / "retrieve")
    assert rows == [("q1", "b", 1, 2.0), ("q3", "a", 1, 3.0), ("q4", "a", 1, 3.0)]
    # `b` of q3 would not have been among the first.
    assert counts == {"topics": 5, "topics_without_candidates": 2, "candidates": 3, "excluded": 2}
    assert [replace(stage, k=k).to_retrieve(_TOPICS) for k in (3, 2**31 - 1)] == [4, 2**31 - 1]


def test_first_stage_counts_topics_that_are_docs(tmp_path: Path):
    topics = (Topic("a", "x"), Topic("b", "x"))
    candidates = candidates_table(["a", "b"], [["a", "b"], ["a", "c"]], [[3, 2], [3, 2]])
    plain = GivenRun(run_digest="r", k=2, url="run")
    assert plain.computed(topics, candidates).counts["own_docs"] == 1
    alone = replace(_excluding(tmp_path, None), k=2)
    counts = alone.computed(topics, candidates).counts
    assert (counts["excluded"], counts["candidates"]) == (1, 3)
    assert "own_docs" not in counts


def test_exclusion_is_in_the_digest_of_a_first_stage(tmp_path: Path):
    plain = GivenRun(run_digest="r", k=2, url="run")
    assert plain.keys["exclude"] is None
    assert _excluding(tmp_path, None).keys["exclude"] == SELF
    assert GivenRun.of_record(plain.record()) == plain


def test_first_stage_refuses_excluded_docs_that_changed(tmp_path: Path):
    stage = _excluding(tmp_path, "q1 a\n")
    (tmp_path / "pairs.txt").write_text("q1 b\n")
    with pytest.raises(DataError, match=r"pairs\.txt changed"):
        _commit(stage, tmp_path / "retrieve")
