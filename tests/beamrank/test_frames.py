"""Frames of pandas, polars and Arrow mean what dictionaries do; what cannot be used is named by
column and row.
"""

from collections.abc import Callable
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beamrank
from beamrank.errors import DataError
from beamrank.formats.checks import checked_queries
from beamrank.formats.runs import read_run
from beamrank.frames import columns_of, qrels_of_frame, run_like, run_of_frame, texts_of
from tests.support.refusals import refuses

Columns = dict[str, list[Any]]


def duckdb_relation(columns: Columns) -> duckdb.DuckDBPyRelation:
    return duckdb.from_arrow(pa.table(columns))


LIBRARIES: tuple[Callable[[Columns], Any], ...] = (
    pa.table,
    pd.DataFrame,
    pl.DataFrame,
    duckdb_relation,
)
RUN: Columns = {"qid": ["q1", "q2", "q1"], "docno": ["a", "a", "b"], "score": [1.0, 2.0, 3.0]}
QRELS: Columns = {"query_id": ["q1", "q2", "q1"], "doc_id": ["a", "a", "a"], "rel": [1, 0, 1]}
DOCS: Columns = {"docno": [7, 8], "title": ["one", None], "text": ["t", "u"]}


@pytest.mark.parametrize("frame", LIBRARIES)
def test_frames_mean_what_dictionaries_do(frame):
    assert run_of_frame(frame(RUN)).order == {"q1": ["b", "a"], "q2": ["a"]}
    assert run_of_frame(frame(RUN)).scores["q1"].tolist() == [3.0, 1.0]
    assert qrels_of_frame(frame(QRELS)).relevance == {"q1": {"a": 1}, "q2": {"a": 0}}
    assert texts_of("the corpus", "doc_id", frame(DOCS)) == {"7": "one t", "8": "u"}
    assert texts_of("the corpus", "doc_id", frame(DOCS), {"8", "9"}) == {"8": "u"}
    assert texts_of("the topics", "query_id", frame({"qid": ["1"], "query": ["x"]})) == {"1": "x"}
    assert columns_of("the inputs", frame({"doc": ["d"], "query": ["q"]}), ("query", "doc")) == [
        ["q"],
        ["d"],
    ]


@pytest.mark.parametrize("frame", LIBRARIES)
def test_a_run_is_given_in_the_class_of_a_frame(frame):
    given = frame(RUN)
    found = run_like(given, {"q1": {"b": 3.0, "a": 1.0}, "q2": {"a": 2.0}})
    assert type(found) is type(given)
    assert pa.table(found).to_pydict() == {
        "query_id": ["q1", "q1", "q2"],
        "doc_id": ["b", "a", "a"],
        "rank": [1, 2, 1],
        "score": [3.0, 1.0, 2.0],
    }
    assert run_of_frame(found).order["q1"] == ["b", "a"]


def test_a_frame_whose_class_is_not_made_from_arrow_gives_an_arrow_table():
    class Other:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.table(RUN).__arrow_c_stream__(requested_schema)

    assert isinstance(run_like(Other(), {"q1": {"a": 1.0}}), pa.Table)
    assert run_of_frame(Other()).order["q2"] == ["a"]


def test_ranks_order_the_docs_and_are_scores_where_there_are_none():
    columns: Columns = {"query_id": ["q"] * 3, "doc_id": ["a", "b", "c"], "rank": [2, 3, 1]}
    assert run_of_frame(pa.table(columns | {"score": [1.0] * 3}), ties="rank").order["q"] == [
        "c",
        "a",
        "b",
    ]
    assert run_of_frame(pa.table(columns)).order["q"] == ["c", "a", "b"]
    assert run_of_frame(pa.table(columns)).scores["q"].tolist() == [-1.0, -2.0, -3.0]


def test_ties_without_ranks_are_ordered_as_in_a_file(tmp_path):
    table = pa.table({"query_id": ["q"] * 3, "doc_id": ["a", "c", "b"], "score": [1.0] * 3})
    pq.write_table(table, tmp_path / "run.parquet")
    for ties in ("rank", "doc_id"):
        read = read_run(str(tmp_path / "run.parquet"), ties=ties).order["q"]
        assert run_of_frame(table, ties=ties).order["q"] == read == ["c", "b", "a"]


@pytest.mark.parametrize("frame", LIBRARIES)
def test_measures_of_frames_are_those_of_dictionaries(frame, tmp_path):
    found = beamrank.evaluate(frame(RUN), frame(QRELS), "RR@10 nDCG@10")
    run = {"q1": {"b": 3.0, "a": 1.0}, "q2": {"a": 2.0}}
    assert found == beamrank.evaluate(run, {"q1": {"a": 1}, "q2": {"a": 0}}, "RR@10 nDCG@10")
    assert found.per_query.table.select(["query_id", "RR@10"]).to_pydict() == {
        "query_id": ["q1", "q2"],
        "RR@10": [0.5, 0],
    }
    beamrank.write_run(frame(RUN), tmp_path / "run.trec")
    assert beamrank.read_run(tmp_path / "run.trec") == run


@pytest.mark.parametrize("frame", LIBRARIES)
@pytest.mark.parametrize(
    ("read", "columns", "kind", "row"),
    [
        (run_of_frame, RUN | {"qid": ["q1", "q2", None]}, "null", 2),
        (run_of_frame, RUN | {"score": ["1", "x", "3"]}, "number", 1),
        (run_of_frame, {"qid": ["q"], "docno": ["d"]}, "column-missing", None),
        (qrels_of_frame, QRELS | {"rel": [1, 0, 2]}, "judged-twice", 2),
    ],
)
def test_what_cannot_be_used_is_named(frame, read, columns, kind, row):
    with refuses(DataError, kind, row):
        read(frame(columns))


def test_rows_are_named_by_their_place_in_the_frame_whatever_is_read():
    docs = pa.table({"doc_id": ["a", "b", "c"], "text": ["x", "y", None]})
    assert texts_of("the corpus", "doc_id", docs, {"b"}) == {"b": "y"}
    with refuses(DataError, "null", 2):
        texts_of("the corpus", "doc_id", docs, {"c"})


def test_what_is_no_table_is_refused():
    with refuses(DataError, "frame-unreadable"):
        run_of_frame(pa.chunked_array([[1]]))


def test_what_is_no_frame_is_named_with_what_makes_one_of_it():
    with pytest.raises(DataError, match=r"Series .*reset_index"):
        run_of_frame(pd.Series([1.0], name="score"))
    checked = checked_queries("the run", pl.DataFrame(RUN).lazy())
    with pytest.raises(DataError, match=r"LazyFrame.*\.collect\(\)"):
        next(checked)
