"""The warnings about stages: rows that are beyond a threshold, and rows at it."""

from dataclasses import replace
from typing import Any

import pytest

from beamrank.evaluation.significance import Comparison
from beamrank.report.curves import Gain
from beamrank.report.stage_rows import StageRow
from beamrank.report.warnings import CHECKS, find_warnings

_MONO = StageRow("mono", "mono", "bm25", topics=200, reordered=200, judged=100, first_docs=1000)
_LOSS = Comparison(0.4, 0.5, -0.1, -0.2, 0.0, 0.049, 1, 2, 3)


def _warnings(**changes: Any) -> list[tuple[str, float, float]]:
    found = find_warnings([replace(_MONO, **changes)])
    assert all(each.stage == "mono" and each.text for each in found)
    return [(each.warning, each.value, each.threshold) for each in found]


@pytest.mark.parametrize(
    ("warning", "beyond", "value", "at"),
    [
        ("unchanged", {"reordered": 1}, 0.005, {"reordered": 2}),
        ("below", {"than_before": _LOSS}, 0.049, {"than_before": replace(_LOSS, p_value=0.05)}),
        ("one score", {"one_score": 101}, 0.505, {"one_score": 100}),
        ("reversed", {"reversed": 61}, 0.51, {"reversed": 60}),
        ("cut", {"cut_docs": 101}, 0.101, {"cut_docs": 100}),
        ("deep", {"gain": Gain(100, 40, 0.2, 0.1, 0.3)}, 0.1, {"gain": Gain(100, 40, 1, 0.0, 2)}),
    ],
)
def test_warning_is_given_beyond_its_threshold_only(
    warning: str, beyond: dict[str, Any], value: float, at: dict[str, Any]
) -> None:
    assert _warnings(**beyond) == [(warning, value, CHECKS[warning].threshold)]
    assert _warnings(**at) == []


def test_stage_that_is_better_or_equal_gets_no_warning() -> None:
    gain = replace(_LOSS, difference=0.1, low=0.0, high=0.2, p_value=0.001)
    assert _warnings(than_before=gain) == []
    assert _warnings(than_before=replace(_LOSS, difference=0.0, p_value=None)) == []


def test_reverse_of_few_topics_gets_no_warning() -> None:
    """Three of three can be due to chance."""
    assert _warnings(judged=3, reversed=3) == []
    assert [name for name, *_ in _warnings(judged=5, reversed=5)] == ["reversed"]


def test_what_is_unknown_gets_no_warning() -> None:
    assert find_warnings([StageRow("mono", "mono", "bm25"), StageRow("retrieve", "bm25")]) == []


def test_first_stage_changes_no_order() -> None:
    assert _warnings(before=None, reordered=0) == []


@pytest.mark.parametrize(
    ("has_checkpoint", "advice"), [(True, ". Use a larger"), (False, ". Remove")]
)
def test_checkpoint_is_advised_to_a_stage_that_has_one(has_checkpoint: bool, advice: str) -> None:
    row = replace(_MONO, than_before=_LOSS, has_checkpoint=has_checkpoint)
    ((*_, text),) = find_warnings([row])
    assert advice in text
    assert ("multilingual" in text) is has_checkpoint
    assert "RR" not in text
    ((*_, named),) = find_warnings([replace(row, measure="RR@10")])
    assert "RR@10 0.4000 after 0.5000, difference -0.1000 (-0.2000 to +0.0000), p = 0.049" in named
