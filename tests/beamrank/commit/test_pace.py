"""How long the rest takes, by what was finished so far."""

import pytest

from beamrank.commit.pace import Pace


def test_pace_is_the_mean_of_finished_work() -> None:
    pace = Pace(start=100.0, last=140.0, done=4)
    assert pace.seconds_left(6, now=140.0) == 60.0
    assert pace.seconds_left(0, now=500.0) == 0.0


def test_pace_counts_down_after_the_last_shard() -> None:
    pace = Pace(start=100.0, last=140.0, done=4)
    assert pace.seconds_left(6, now=147.0) == 53.0
    assert pace.seconds_left(6, now=900.0) == 10.0


def test_pace_combines_concurrent_workers() -> None:
    """Three workers finish a shard of 30 seconds each at about the same moment, twice."""
    finished = [(30.0, 30.0), (31.0, 31.0), (32.0, 30.0), (60.0, 30.0), (61.0, 30.0), (62.0, 30.0)]
    pace = Pace.of_last_stretch(finished, pause_seconds=60.0)
    assert pace == Pace(0.0, 62.0, 6)


def test_pace_ignores_a_pause() -> None:
    """Interrupted after two shards, and taken up again an hour later."""
    finished = [(10.0, 10.0), (20.0, 10.0), (3610.0, 10.0), (3620.0, 10.0), (3630.0, 10.0)]
    assert Pace.of_last_stretch(finished, pause_seconds=60.0) == Pace(3600.0, 3630.0, 3)


@pytest.mark.parametrize("finished", [[], ()])
def test_pace_is_unknown_before_the_first_shard(finished: list[tuple[float, float]]) -> None:
    assert Pace.of_last_stretch(finished, pause_seconds=60.0) is None
