"""The rows of a run that are a shard's, against a plain loop."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamrank.formats.run_order import RunLayout, Ties
from beamrank.join.run_shards import ROUTED, in_place_order, order_shard, routed

_KEYS = st.tuples(st.sampled_from(["q1", "q2", "q3", "q4"]), st.sampled_from("abcdefgh"))
_ROWS = st.dictionaries(
    _KEYS, st.tuples(st.integers(1, 5), st.none() | st.integers(-2, 2)), max_size=25
)
_TOPICS = ["q1", "q3"]


@pytest.mark.parametrize("columns", ["listed", "rank", "score", "rank score"])
@given(rows=_ROWS, by_doc=st.booleans(), depth=st.integers(1, 9), unit_rows=st.integers(1, 6))
def test_rows_are_ordered_as_by_a_loop(columns, rows, by_doc, depth, unit_rows) -> None:
    has_scores, has_ranks = columns != "rank", columns != "score"
    expected, tied, disagree = [], 0, 0
    for query_id in sorted({query_id for query_id, _ in rows}):
        own = [(doc_id, *values) for (each, doc_id), values in rows.items() if each == query_id]
        if columns == "listed":
            own = [
                (doc_id, at, -at if score is None else score)
                for at, (doc_id, _, score) in enumerate(own, 1)
            ]
        own = [(doc_id, rank, (score or 0) if has_scores else -rank) for doc_id, rank, score in own]
        by_rank = has_ranks and not (by_doc and has_scores)
        own.sort(key=lambda row: row[1] if by_rank else row[0], reverse=not by_rank)
        own.sort(key=lambda row: -row[2])
        tied += sum(one[2] == other[2] for one, other in pairwise(own))
        disagree += has_scores * has_ranks * sum(one[1] >= other[1] for one, other in pairwise(own))
        expected += [
            (query_id, row[0], at, row[2])
            for at, row in enumerate(own[:depth], 1)
            if query_id in _TOPICS
        ]
    foreign = [
        (place, query_id) for place, (query_id, _) in enumerate(rows) if query_id not in _TOPICS
    ]
    counts = {
        "without_ranks": 0 if has_ranks else len(rows),
        "tied_scores" if has_scores else "tied_ranks": tied,
        "rank_disagreements": disagree,
        "foreign_queries": len({query_id for _, query_id in foreign}),
    }
    # Only of a listed candidate can the score be missing.
    given_rows = [
        (*key, rank, score if columns == "listed" else score or 0)
        for key, (rank, score) in rows.items()
    ]
    columns_of = [*map(list, zip(*given_rows, strict=True))] or [[]] * 4
    table = pa.table([*columns_of, range(len(rows))], schema=ROUTED.remove(5)).combine_chunks()
    units = [table.slice(start, unit_rows).to_batches() for start in range(0, len(rows), unit_rows)]
    batches = [
        routed(each, unit)
        for unit, found in enumerate(units)
        for batch in found
        for each in (batch, batch[:0])
    ]
    names = () if columns == "listed" else columns.split()
    layout = RunLayout("", "" if names else "top1000", tuple((name, "") for name in names))
    ties: Ties = "doc_id" if by_doc else "rank"
    found = order_shard(
        in_place_order(batches[::-1]), _TOPICS, depth, layout, ties, lambda *_: ("", "")
    )
    assert list(zip(*found.candidates.to_pydict().values(), strict=True)) == expected
    assert found.counts == {name: count for name, count in counts.items() if count}
    first = foreign[0] if foreign else None
    assert found.foreign == (first and first[1])
