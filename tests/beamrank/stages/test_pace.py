"""How long the rest takes, by what was finished so far."""

import pytest

from beamrank.stages.pace import Pace


def test_the_rest_takes_as_long_for_each_as_what_is_done() -> None:
    pace = Pace(start=100.0, last=140.0, done=4)
    assert pace.seconds_left(6, now=140.0) == 60.0
    assert pace.seconds_left(0, now=500.0) == 0.0


def test_time_since_the_last_one_counts_down_but_not_to_nothing() -> None:
    pace = Pace(start=100.0, last=140.0, done=4)
    assert pace.seconds_left(6, now=147.0) == 53.0
    assert pace.seconds_left(6, now=900.0) == 10.0


def test_workers_side_by_side_are_one_pace() -> None:
    """Three workers finish a shard of 30 seconds each at about the same moment, twice."""
    finished = [(30.0, 30.0), (31.0, 31.0), (32.0, 30.0), (60.0, 30.0), (61.0, 30.0), (62.0, 30.0)]
    pace = Pace.of_last_stretch(finished, pause_seconds=60.0)
    assert pace == Pace(0.0, 62.0, 6)


def test_a_pause_is_no_work() -> None:
    """Interrupted after two shards, and taken up again an hour later."""
    finished = [(10.0, 10.0), (20.0, 10.0), (3610.0, 10.0), (3620.0, 10.0), (3630.0, 10.0)]
    assert Pace.of_last_stretch(finished, pause_seconds=60.0) == Pace(3600.0, 3630.0, 3)


@pytest.mark.parametrize("finished", [[], ()])
def test_nothing_finished_has_no_pace(finished: list[tuple[float, float]]) -> None:
    assert Pace.of_last_stretch(finished, pause_seconds=60.0) is None
