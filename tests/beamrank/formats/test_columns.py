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

_WHOLE = pa.decimal128(38, 0)


def _file(folder, name, content):
    path = folder / name
    if isinstance(content, dict):
        pq.write_table(pa.table(content), path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def _decimals(*values, kind=_WHOLE):
    return pa.array([None if each is None else Decimal(each) for each in values], kind)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("q.txt", "1 0 7 1.0\n1 0 8 0.0\n"),
        ("q.tsv", "query-id\tcorpus-id\tscore\n1\t7\t1.0\n1\t8\t0.0\n"),
        ("q.csv", "query_id,doc_id,relevance\r\n1,7,1\r\n1,8,0\r\n"),
        (
            "quoted.csv",
            '\ufeff"doc id",note,"query id",label\n7,"a ""b"",\n2 lines",1,1\n8,,1,0.0\n',
        ),
        ("dict.json", '{"1": {"7": 1, "8": 0.0}}'),
        ("indented.json", json.dumps({"1": {"7": 1, "8": 0}}, indent=2)),
        (
            "q.jsonl",
            '{"qid": 1, "docid": 7, "label": 1.0, "text": null}\n{"qid": 1, "docid": "8", '
            '"label": 0}\n',
        ),
        (
            "level.parquet",
            {"query_id": ["1", "1"], "doc_id": ["7", "8"], "relevance": _decimals(1, 0)},
        ),
        ("ids.parquet", {"qid": _decimals(1, 1), "docno": _decimals(7, 8), "rel": [1, 0]}),
        (
            "scale.parquet",
            {"qid": [1, 1], "pid": [7, 8], "rel": _decimals(1, 0, kind=pa.decimal128(9, 3))},
        ),
        (
            "binary.parquet",
            {"qid": [b"1", b"1"], "pid": [7, 8], "rel": [1, 0], "__index_level_0__": [0, 1]},
        ),
        (
            "texts.parquet",
            {
                "qid": [1, 1],
                "query": ["a b", "c d"],
                "docid": [7, 8],
                "doc": ["", None],
                "rel": [1, 0],
            },
        ),
        (
            "null.parquet",
            {"qid": [1, 1], "docid": [7, 8], "iteration": pa.nulls(2), "rel": [1.0, 0.0]},
        ),
    ],
)
def test_qrels_are_equal_in_every_container(tmp_path, name, content):
    assert read_qrels(_file(tmp_path, name, content)).relevance == {"1": {"7": 1, "8": 0}}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", '{"1": {"d2": 1.5, "d1": 2.5}}'),
        ("run.csv", "qid,docno,score\n1,d2,1.5\n1,d1,2.5\n"),
        ("run.tsv", "qid docid rank score\n1 d2 2 1.5\n1 d1 1 2.5\n"),
        ("run.trec", "query_id Q0 doc_id rank score run_tag\n1 Q0 d2 2 1.5 x\n1 Q0 d1 1 2.5 x\n"),
        (
            "run.jsonl",
            '{"qid": 1, "docid": "d1", "score": 2.5, "x": []}\n{"qid": 1, "docid": "d2", "score": '
            '1.5, "x": []}\n',
        ),
        (
            "run.parquet",
            {"query_id": [1, 1], "doc_id": ["d1", "d2"], "rank": [1, 2], "score": [2.5, 1.5]},
        ),
        (
            "tag.parquet",
            {"query_id": [1, 1], "doc_id": ["d1", "d2"], "rank": pa.nulls(2), "score": [2.5, 1.5]},
        ),
        (
            "all.parquet",
            {"qid": ["1", "1"], "docno": ["d1", "d2"], "score": [2.5, 1.5], "query": ["a b", None]},
        ),
    ],
)
def test_runs_have_named_columns(tmp_path, name, content):
    run = read_run(_file(tmp_path, name, content))
    assert (run.order, run.scores["1"].tolist(), run.notes.format) == (
        {"1": ["d1", "d2"]},
        [2.5, 1.5],
        "trec",
    )


def test_ranks_of_named_columns_order_a_run_without_scores(tmp_path):
    path = _file(
        tmp_path, "run.parquet", {"qid": ["1", "1"], "pid": ["a", "b"], "rank": [2.0, 1.0]}
    )
    assert read_run(path).order == {"1": ["b", "a"]}
    assert read_run(path).notes.format == "msmarco"


def test_columns_choose_among_names(tmp_path):
    table = {
        "pid": [4, 5],
        "docno": ["a", "b"],
        "qid": ["1", "1"],
        "score": [1.0, 2.0],
        "relevance": [1, 0],
    }
    path = _file(tmp_path, "t.parquet", table)
    for read in (read_qrels, read_run):
        with pytest.raises(
            PreflightError,
            match=r"`pid` and `docno`, .* doc_id: rename or remove .* `columns: {doc_id: pid",
        ):
            read(path)
    with pytest.raises(
        PreflightError, match="`score` and `relevance`, and each could be the relevance"
    ):
        read_qrels(path, Hints({"doc_id": "docno"}))
    assert read_qrels(path, Hints({"doc_id": "docno", "relevance": "relevance"})).relevance == {
        "1": {"a": 1, "b": 0}
    }
    assert read_run(path, hints=Hints({"doc_id": "docno"})).order == {"1": ["b", "a"]}
    with pytest.raises(
        PreflightError, match="has no column `doc`, which `columns` names; it has: pid, docno"
    ):
        read_run(path, hints=Hints({"doc_id": "doc"}))
    path = _file(tmp_path, "t.tsv", "topic passage grade\n1 a 2\n")
    assert read_qrels(path, Hints({"doc_id": "passage"})).relevance == {"1": {"a": 2}}
    with pytest.raises(PreflightError) as caught:
        read_qrels(_file(tmp_path, "u.tsv", "1 0 a 2\n"), Hints({"doc_id": "passage"}))
    assert caught.value.kind == "column-missing"


@pytest.mark.parametrize(
    ("name", "content", "kind", "place"),
    [
        ("q.csv", "1,a,1\n", "header-missing", 1),
        ("q.csv", 'qid,docid,rel\n1,"a"b,1\n', "not-csv", 2),
        ("q.csv", 'qid,docid,rel\n1,"a\n2,b,1\n', "not-csv", 2),
        ("q.csv", "qid,docid,rel\n1,a b,1\n", "id-white-space", 2),
        ("q.csv", b"qid,docid,rel\n1,\xff,1\n", "not-utf8", 2),
        ("q.csv", "qid,docid,rel\n1,a,1,\n", "columns", 2),
        ("q.csv", "qid,docid,rel\n", "no-rows", None),
        ("q.csv", "qid,docid,rel\n1,a,1\nqid,docid,rel\n", "header-again", 3),
        ("q.csv", "qid;docid;rel\n1;a;1\n", "separator", None),
        ("q.json", '{"1": {"a": 1, "a": 2}}', "judged-twice", 1),
        ("q.json", '{"1": {"a": 1}, "1": {"b": 1}}', "query-twice", 2),
        ("q.json", '{"1": {}}', "no-rows", None),
        ("q.json", '{"1": {"a": 1}', "not-json", None),
        ("q.json", '{"1": {"a": 1}}\n{"2": {"a": 1}}', "not-json", None),
        ("q.json", '{"1": {"a": 1}, "2": 3}', "column-missing", None),
        ("q.json", '{"1": {"a": NaN}}', "number", 1),
        ("q.json", '{"1": {"a": null}}', "null", 1),
        ("q.parquet", {"qid": ["1"], "docid": ["a"]}, "column-missing", None),
        ("q.parquet", {"qid": ["1"], "docid": [float("nan")], "rel": [1]}, "id-type", 1),
        (
            "q.parquet",
            {"qid": ["1"], "docid": ["a"], "rel": _decimals("1.5", kind=pa.decimal128(2, 1))},
            "number-fraction",
            1,
        ),
        ("q.parquet", {"qid": [], "docid": [], "rel": []}, "no-rows", None),
        ("q.txt", "1 0 d1 1".encode("utf-16"), "packed", None),
        ("q.txt", "1 0 d1 1\n".encode("utf-16-le"), "packed", None),
        ("q.txt", "1 0 d1 1\n".encode("utf-16-be"), "packed", None),
    ],
)
def test_what_named_columns_cannot_be_is_refused(tmp_path, name, content, kind, place):
    path = _file(tmp_path, name, content)
    with pytest.raises(PreflightError) as caught:
        read_qrels(path)
    assert (caught.value.file, caught.value.kind, caught.value.place) == (path, kind, place)


def test_score_that_the_first_row_lacks_is_not_lost(tmp_path):
    table = {"qid": ["1", "1"], "docid": ["a", "b"], "rank": [1, 2], "score": [None, 5.0]}
    with pytest.raises(
        PreflightError,
        match="row 2: the row has a value in `score`, which is null in the first row",
    ):
        read_run(_file(tmp_path, "r.parquet", table))


@pytest.mark.parametrize("level", [1.0, np.float32(1), np.int64(1), Decimal(1), True])
def test_evaluate_takes_whole_numbers_of_any_type(level):
    found = beamrank.evaluate({"q": {"a": 1.0}}, {"q": {"a": level}}, "RR@10")
    assert found.means["RR@10"] == 1


@pytest.mark.parametrize("level", [1.5, float("nan"), float("inf"), Decimal("0.5")])
def test_evaluate_refuses_what_is_not_a_whole_number(level):
    with pytest.raises(DataError, match="not a whole number"):
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
