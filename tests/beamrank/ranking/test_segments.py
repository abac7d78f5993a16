import numpy as np
import pyarrow as pa
import pytest

from beamrank.commit.schemas import MONO
from beamrank.config.run import RunConfig
from beamrank.config.stages import MonoConfig
from beamrank.ranking.input_layout import SegmentRule, cut_segments
from beamrank.ranking.rankings import pool_segments

SCORED = [
    ("r", "x", 1, 2, -4.0),
    ("q", "a", 0, 1, -9.0),
    ("r", "x", 0, 2, -3.0),
    ("q", "b", 0, 2, 5.0),
    ("q", "a", 2, 1, 0.0),
    ("q", "a", 1, 1, 6.0),
]


def _mono(rows: list[tuple[str, str, int, int, float]]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(MONO.names, row, strict=True)) for row in rows], schema=MONO
    )


def test_cut_segments_by_hand():
    found = cut_segments(np.array([0, 4, 5, 11, 30]), SegmentRule(4, 3, 3))
    assert found.docs.tolist() == [0, 1, 2, 2, 3, 3, 3, 4, 4, 4]
    assert found.numbers.tolist() == [0, 0, 0, 1, 0, 1, 2, 0, 1, 2]
    assert found.starts.tolist() == [0, 0, 0, 3, 0, 3, 6, 0, 3, 6]
    assert found.lengths.tolist() == [0, 4, 4, 2, 4, 4, 4, 4, 4, 4]


def test_whole_doc_is_one_segment():
    found = cut_segments(np.array([7, 0]), None)
    assert [each.tolist() for each in found] == [[0, 1], [0, 0], [0, 0], [7, 0]]


@pytest.mark.parametrize(
    ("pooling", "scores"),
    [("max", [6.0, 5.0, -3.0]), ("first", [-9.0, 5.0, -3.0]), ("mean", [-1.0, 5.0, -3.5])],
)
def test_pool_segments_by_hand(pooling, scores):
    found = pool_segments(_mono(SCORED), pooling)
    assert found.schema == MONO
    assert found.select(["query_id", "doc_id", "segment", "rank"]).to_pylist() == [
        {"query_id": "q", "doc_id": "a", "segment": 0, "rank": 1},
        {"query_id": "q", "doc_id": "b", "segment": 0, "rank": 2},
        {"query_id": "r", "doc_id": "x", "segment": 0, "rank": 2},
    ]
    assert found["score"].to_pylist() == scores
    assert pool_segments(found, pooling).equals(found)
    assert pool_segments(MONO.empty_table(), pooling).num_rows == 0


def _config(**segments: object) -> RunConfig:
    return RunConfig.model_validate(
        {
            "corpus": {"path": "c", "format": "tsv"},
            "topics": {"path": "t", "format": "tsv"},
            "candidates": {"run": "r"},
            "mono": {"checkpoint": "embedded:mono", "segments": segments},
            "output": "o",
        }
    )


def test_segments_decide_how_many_tokens_are_stored():
    def tokens(**segments: object) -> int:
        mono: MonoConfig = _config(**segments).cascade[1].section
        assert mono.segments is not None
        return mono.segments.doc_tokens

    assert tokens(length_tokens=225, stride_tokens=200, limit=3) == 625
    assert tokens(length_tokens=225, limit=3) == 675
    assert tokens(length_tokens=225, limit=3, pooling="first") == 225


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ({"length_tokens": 447}, "446 "),
        ({"length_tokens": 100, "stride_tokens": 101}, "stride_tokens 101 "),
        ({"length_tokens": 100, "pooling": "sum"}, "'max', 'first' or 'mean'"),
        ({"length_tokens": 100, "limit": 0}, "limit: "),
    ],
)
def test_segments_that_skip_text_are_refused(segments, message):
    with pytest.raises(ValueError, match=message):
        _config(**segments)
    assert _config(length_tokens=446).cascade[1].section.segments
