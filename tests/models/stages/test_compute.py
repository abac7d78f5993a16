"""What a stage computes of a shard, and from what."""

from collections.abc import Iterator

import pytest

from models.scoring.answers import Answers
from models.stages.compute import ShardInputs


def test_earlier_parts_are_read_only_while_a_key_has_no_answer() -> None:
    def earlier() -> Iterator[Answers]:
        yield {b"a": 1.0}
        yield {b"a": 2.0, b"b": 3.0, b"c": 4.0}
        pytest.fail("all keys have answers, and another part is read")

    inputs = ShardInputs(0, lambda _: pytest.fail("a part is read"), earlier=earlier())
    assert inputs.find([b"a", b"b"]) == {b"a": 1.0, b"b": 3.0}
