"""MTEB's first re-ranking files: topics, corpus, candidates and qrels at once."""

import gzip
import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.errors import BeamrankError, PreflightError
from beamrank.formats import corpora, topics
from beamrank.formats.corpora import list_units
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import read_run
from beamrank.formats.topics import TopicsConfig, read_topics
from tests.support.corpora import bad_rows, corpus_of, read_batches, read_docs
from tests.support.given_runs import read_given
from tests.support.refusals import refuses

ROWS = [
    {
        "query": "crisp crust",
        "positive": ["open the door", "steam"],
        "negative": ["rye", "steam", "salt", "salt"],
    },
    {"query": "rye é", "positive": ["rye"], "negative": ["salt"]},
]


def _id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _write(folder, rows, ending=".jsonl"):
    path = folder / f"test{ending}"
    if ending == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        content = "\n".join(map(json.dumps, rows)).encode()
        path.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
    return str(path)


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".parquet"])
def test_mteb_rows_are_topics_corpus_candidates_and_qrels(tmp_path, ending):
    url = _write(tmp_path, ROWS, ending)
    assert corpora.resolved(corpus_of(url, "auto")).format == "mteb"
    assert corpora.resolved(corpus_of(tmp_path, "auto")).format == "mteb"
    assert topics.resolved(TopicsConfig(path=url)).format == "mteb"
    assert list(read_topics(TopicsConfig(path=url))) == [("1", "crisp crust"), ("2", "rye é")]
    expected = {"1": ["open the door", "steam", "rye", "salt"], "2": ["rye", "salt"]}
    for name in ("mteb", "auto"):
        batches = read_batches(corpus_of(url, name))
        assert bad_rows(corpus_of(url, name)) == []
        (batch,) = batches
        assert set(zip(batch.query_ids, batch.doc_ids, batch.texts, strict=True)) == {
            (query_id, _id(text), text) for query_id, texts in expected.items() for text in texts
        }
    assert read_given(url).order == {
        query_id: sorted(map(_id, texts)) for query_id, texts in expected.items()
    }
    assert read_qrels(url).relevance == {
        "1": {_id("open the door"): 1, _id("steam"): 1, _id("rye"): 0, _id("salt"): 0},
        "2": {_id("rye"): 1, _id("salt"): 0},
    }


def test_mteb_query_of_several_texts_is_these_joined(tmp_path):
    url = _write(tmp_path, [{**ROWS[1], "query": ["news one", "news two"]}])
    assert list(read_topics(TopicsConfig(path=url))) == [("1", "news one news two")]


def test_mteb_query_has_the_number_of_its_row(tmp_path):
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(ROWS[0])}\n\n{json.dumps(ROWS[1])}\n")
    url = str(tmp_path / "a.jsonl")
    assert [topic.query_id for topic in read_topics(TopicsConfig(path=url, format="mteb"))] == [
        "1",
        "3",
    ]
    assert list(read_given(url).order) == list(read_qrels(url).relevance) == ["1", "3"]


def test_mteb_row_without_docs_has_no_candidates(tmp_path):
    url = _write(tmp_path, [{**ROWS[0], "positive": [], "negative": []}, ROWS[1]])
    assert list(read_given(url).order) == ["2"]
    assert read_docs(url, "mteb") == sorted((_id(text), text) for text in ("rye", "salt"))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"query": "x", "positive": ["y"]}, "query, positive, negative"),
        ({**ROWS[0], "negative": ["x", None]}, "`negative`"),
        ({**ROWS[0], "positive": {"a": 1}}, "`positive`"),
        ({**ROWS[0], "query": 7}, "`query`"),
        ({**ROWS[0], "query": "\ud83d"}, "UTF-16"),
        (["x"], "list"),
    ],
)
def test_mteb_row_that_cannot_be_read_is_an_error_with_its_line(tmp_path, row, message):
    url = _write(tmp_path, [ROWS[0], row])
    readers = [
        lambda: read_topics(TopicsConfig(path=url, format="mteb")),
        lambda: read_docs(url, "mteb"),
        lambda: read_given(url),
        lambda: read_qrels(url),
    ]
    for read in readers:
        with pytest.raises(PreflightError, match=rf"test\.jsonl:2: .*{message}"):
            read()


def test_mteb_file_without_a_query_is_refused(tmp_path):
    for rows, *told in (([{**ROWS[0], "query": " "}], "topic-empty", 1), ([], "no-rows")):
        url = _write(tmp_path, rows)
        with refuses(PreflightError, *told):
            read_topics(TopicsConfig(path=url, format="mteb"))


def test_mteb_parquet_with_null_or_invalid_text_is_refused(tmp_path):
    url = _write(tmp_path, [ROWS[0], {**ROWS[1], "negative": [None]}], ".parquet")
    with pytest.raises(PreflightError, match=r"test\.parquet:2: .*`negative`"):
        read_docs(url, "mteb")
    texts = pa.array([b"\xff"]).view(pa.string())
    lists = pa.array([["x"]])
    pq.write_table(pa.table({"query": texts, "positive": lists, "negative": lists}), url)
    with pytest.raises(PreflightError, match=r"test\.parquet:1: .*`query`"):
        read_topics(TopicsConfig(path=url, format="mteb"))


def test_mteb_corpus_takes_no_fields_and_other_files_are_named(tmp_path):
    url = _write(tmp_path, ROWS)
    with pytest.raises(PreflightError, match=r"`corpus\.fields` .*mteb"):
        list_units(corpus_of(url, "mteb", ("positive",)))
    with pytest.raises(PreflightError, match=r"`corpus\.format: mteb`"):
        list_units(corpus_of(url, "jsonl"))
    with refuses(PreflightError, "list-column"):
        read_run(url)


@settings(max_examples=50, deadline=None)
@given(cut=st.integers(0, len(json.dumps(ROWS[0])) - 1))
def test_truncated_mteb_row_is_an_error(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("cut") / "test.jsonl"
    path.write_text(json.dumps(ROWS[0])[:cut])
    with pytest.raises(BeamrankError):
        read_topics(TopicsConfig(path=str(path), format="mteb"))
