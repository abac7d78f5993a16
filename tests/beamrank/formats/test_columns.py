"""Columns that have names: tables, JSON, CSV and header lines, of runs and of qrels."""

import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beamrank
from beamrank.errors import DataError, PreflightError
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import read_run
from beamrank.formats.schemas import Hints
from tests.support.refusals import refuses


def _file(folder, name, content):
    path = folder / name
    if isinstance(content, dict):
        pq.write_table(pa.table(content), path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "quoted.csv",
            '\ufeff"doc id",note,"query id",label\n7,"a ""b"",\n2 lines",1,1\n8,,1,0.0\n',
        ),
        ("dict.json", '{"1": {"7": 1, "8": 0.0}}'),
        ("indented.json", json.dumps({"1": {"7": 1, "8": 0}}, indent=2)),
    ],
)
def test_qrels_are_equal_in_every_container(tmp_path, name, content):
    assert read_qrels(_file(tmp_path, name, content)).relevance == {"1": {"7": 1, "8": 0}}


def test_runs_have_named_columns(tmp_path):
    content = "query_id Q0 doc_id rank score run_tag\n1 Q0 d2 2 1.5 x\n1 Q0 d1 1 2.5 x\n"
    run = read_run(_file(tmp_path, "run.trec", content))
    assert (run.order, run.scores["1"].tolist(), run.notes.format) == (
        {"1": ["d1", "d2"]},
        [2.5, 1.5],
        "trec",
    )


def test_columns_choose_among_names(tmp_path):
    columns = Hints({"doc_id": "passage"})
    path = _file(tmp_path, "t.tsv", "topic passage grade\n1 a 2\n")
    assert read_qrels(path, columns).relevance == {"1": {"a": 2}}
    with refuses(PreflightError, "column-missing", 1):
        read_qrels(_file(tmp_path, "u.tsv", "1 0 a 2\n"), columns)


@pytest.mark.parametrize(
    ("name", "content", "kind", "place"),
    [
        ("q.csv", 'qid,docid,rel\n1,"a"b,1\n', "not-csv", 2),
        ("q.csv", 'qid,docid,rel\n1,"a\n2,b,1\n', "not-csv", 2),
        ("q.json", '{"1": {"a": 1, "a": 2}}', "judged-twice", 1),
        ("q.json", '{"1": {"a": 1}, "1": {"b": 1}}', "query-twice", 2),
        ("q.json", '{"1": {}}', "no-rows", None),
        ("q.json", '{"1": {"a": 1}', "not-json", None),
        ("q.json", '{"1": {"a": 1}}\n{"2": {"a": 1}}', "not-json", None),
        ("q.json", '{"1": {"a": 1}, "2": 3}', "column-missing", None),
        ("q.json", '{"1": {"a": NaN}}', "number", 1),
        ("q.json", '{"1": {"a": null}}', "null", 1),
    ],
)
def test_what_named_columns_cannot_be_is_refused(tmp_path, name, content, kind, place):
    path = _file(tmp_path, name, content)
    with refuses(PreflightError, kind, place, path):
        read_qrels(path)


def test_score_that_the_first_row_lacks_is_not_lost(tmp_path):
    table = {"qid": ["1", "1"], "docid": ["a", "b"], "rank": [1, 2], "score": [None, 5.0]}
    with refuses(PreflightError, "null", 2):
        read_run(_file(tmp_path, "r.parquet", table))


@pytest.mark.parametrize("level", [1.0, np.float32(1), np.int64(1), Decimal(1), True])
def test_evaluate_takes_whole_numbers_of_any_type(level):
    found = beamrank.evaluate({"q": {"a": 1.0}}, {"q": {"a": level}}, "RR@10")
    assert found.means["RR@10"] == 1


@pytest.mark.parametrize("level", [1.5, float("nan"), float("inf"), Decimal("0.5")])
def test_evaluate_refuses_what_is_not_a_whole_number(level):
    with pytest.raises(DataError, match="'a'"):
        beamrank.evaluate({"q": {"a": 1.0}}, {"q": {"a": level}}, "RR@10")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.json", '{"q": {"a": 1.0, "b": 2.0}}'),
        ("r.csv", "query_id,doc_id,score\nq,a,1.0\nq,b,2.0\n"),
    ],
)
def test_scores_without_ranks_disagree_with_none(tmp_path, name, content):
    run = read_run(_file(tmp_path, name, content))
    assert (run.order, run.notes.rank_disagreements) == ({"q": ["b", "a"]}, 0)
