"""Calls for answers that cost money: when a process stops to make them, and what is kept."""

from pathlib import Path

import pytest

from beamrank.commit.asked import KeptAnswers
from beamrank.errors import LeftOpenError
from models.stages import calls
from models.stages.compute import ShardInputs


def _fail():
    raise LeftOpenError("no answer")


def _inputs(output: Path, shard_digest: str = "aa", **fields) -> ShardInputs:
    kept = KeptAnswers(str(output), "0123456789abcdef", shard_digest)
    return ShardInputs(0, lambda _: pytest.fail("a part is read"), kept=kept, **fields)


@pytest.fixture(autouse=True)
def _forget():
    calls.start()
    yield
    calls.start()


def test_process_stops_after_twenty_calls_in_a_row_without_answer():
    made = []

    def fail():
        made.append(1)
        return _fail()

    def try_calls(count):
        for _ in range(count):
            with pytest.raises(LeftOpenError):
                calls.make(fail)

    try_calls(calls.MOST_FAILED - 1)
    assert calls.make(lambda: {"one": 1}) == {"one": 1}
    made.clear()
    try_calls(calls.MOST_FAILED + 5)
    assert len(made) == calls.MOST_FAILED == 20
    calls.start()
    assert calls.make(lambda: {"one": 1}) == {"one": 1}


def test_answer_is_kept_before_it_is_used(tmp_path):
    inputs = _inputs(tmp_path)
    assert inputs.ask(b"key", lambda: {"grade": 1}) == {"grade": 1}
    for other in (_inputs(tmp_path), _inputs(tmp_path, "bb")):
        assert other.ask(b"key", _fail) == {"grade": 1}
        assert other.counts == {"kept": 1}
    with pytest.raises(LeftOpenError):
        _inputs(tmp_path).ask(b"other", _fail)
    assert inputs.counts == {"requests": 1, "repeated": 0}


def test_first_of_two_attempts_side_by_side_decides(tmp_path):
    first, second = _inputs(tmp_path), _inputs(tmp_path)

    def call():
        # Meanwhile the other attempt has its answer.
        assert first.ask(b"key", lambda: {"grade": 1}) == {"grade": 1}
        return {"grade": 2}

    assert second.ask(b"key", call) == {"grade": 1}
    assert second.counts == {"requests": 1, "repeated": 1}
    assert first.counts == {"requests": 1, "repeated": 0}


def test_answer_that_is_not_valid_counts_for_its_shard_alone(tmp_path):
    def is_valid(answer):
        return answer["grade"] > 0

    def ask(shard, grade):
        return _inputs(tmp_path, shard).ask(b"key", lambda: {"grade": grade}, is_valid)["grade"]

    calls_made = [("aa", -1), ("aa", 1), ("bb", 2), ("bb", 3), ("cc", -4), ("cc", 5)]
    assert [ask(*call) for call in calls_made] == [-1, -1, 2, 2, -4, -4]
    with pytest.raises(LeftOpenError):
        _inputs(tmp_path, "dd").ask(b"key", _fail, is_valid)
    assert _inputs(tmp_path, "cc").ask(b"key", _fail, is_valid) == {"grade": -4}


def test_answers_of_earlier_parts_come_first(tmp_path):
    earlier = [{b"a": {"grade": 1}}, {b"a": {"grade": 2}, b"b": {"grade": 3}}]
    inputs = _inputs(tmp_path, earlier=earlier)
    assert [inputs.ask(key, _fail)["grade"] for key in (b"b", b"a", b"b")] == [3, 1, 3]
    assert inputs.counts == {"reused": 3}


def test_damaged_answer_is_asked_again(tmp_path):
    _inputs(tmp_path).ask(b"key", lambda: {"grade": 1})
    (path,) = (tmp_path / "asked").iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    assert _inputs(tmp_path).ask(b"key", lambda: {"grade": 2}) == {"grade": 2}
    assert _inputs(tmp_path).ask(b"key", _fail) == {"grade": 2}
