"""Header lines of TSV and CSV, and names of ids, in corpora and topics."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.config.load import load_config
from beamrank.errors import PreflightError
from beamrank.formats import corpora, topics
from beamrank.formats.corpora import CorpusConfig, digest_corpus, list_units
from beamrank.formats.topics import TopicsConfig, read_topics
from pipelines.plan.named_inputs import with_formats
from tests.support.corpora import bad_rows, docs_of, read_batches
from tests.support.refusals import refuses

_LONG = "x" * 40


def _corpus(folder, content, name="c.tsv", **keys):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return CorpusConfig(path=str(path), **keys)


def _topics(folder, content, name="t.tsv", **keys):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return [tuple(each) for each in read_topics(TopicsConfig(path=f"{folder}/{name}", **keys))]


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        ("id\ttext\nd1\tone two\nd2\t\n", {}),
        ("\ufeffDocID\ttitle\turl\tbody\r\nd1\tone\thttp://x\ttwo\r\nd2\t\thttp://y\t\r\n", {}),
        ("text\tid\none two\td1\n\td2\n", {}),
        ("\nid\ttext\nd1\tone two\nd2\t\n", {}),
        ("a\tb\nd1\tone two\nd2\t\n", {"header": True}),
        ("key\tdocid\tx\ty\n1\td1\tone\ttwo\n2\td2\t\t\n", {"fields": ("x", "y")}),
        ("id\tkey\tx\n1\td1\tone two\n2\td2\t\n", {"fields": ("x",), "columns": {"doc_id": "key"}}),
    ],
)
@pytest.mark.parametrize("unit_bytes", [3, 1 << 20])
def test_header_of_a_tsv_names_its_columns(tmp_path, content, keys, unit_bytes):
    corpus = _corpus(tmp_path, content, format="tsv", **keys)
    batches = read_batches(corpus, unit_bytes)
    assert docs_of(batches) == [("d1", "one two"), ("d2", "")]
    assert bad_rows(corpus, unit_bytes) == []
    (tmp_path / "c.tsv.gz").write_bytes(gzip.compress(content.encode()))
    assert docs_of(
        read_batches(corpus.model_copy(update={"path": f"{tmp_path}/c.tsv.gz"}))
    ) == docs_of(batches)


def test_each_file_decides_about_its_first_line(tmp_path):
    (tmp_path / "a.tsv").write_text(f"1\t{_LONG}\n2\tid\n")
    (tmp_path / "b.tsv").write_text(f"id\ttext\n3\t{_LONG}\nid\ttitle\n")
    corpus = CorpusConfig(path=str(tmp_path), format="tsv")
    docs = [("1", _LONG), ("2", "id"), ("3", _LONG), ("id", "title")]
    for unit_bytes in (10, 1 << 20):
        assert docs_of(read_batches(corpus, unit_bytes)) == docs
    no_header = corpus.model_copy(update={"header": False})
    assert docs_of(read_batches(no_header)) == [*docs[:2], ("id", "text"), *docs[2:]]


def test_what_decides_about_a_header_is_in_the_digests(tmp_path):
    with_header = _corpus(tmp_path, "id\ttext\n1\tx\n", format="tsv")
    as_data = with_header.model_copy(update={"header": False})
    said = with_header.model_copy(update={"header": True})
    assert (
        digest_corpus(with_header).digest
        == digest_corpus(said).digest
        != digest_corpus(as_data).digest
    )
    plain = _corpus(tmp_path, "1\tx\n", "plain.tsv", format="tsv")
    assert (
        digest_corpus(plain).digest
        == digest_corpus(plain.model_copy(update={"header": False})).digest
    )
    jsonl = _corpus(
        tmp_path, '{"id": "1", "key": "2", "contents": "x"}\n', "c.jsonl", format="jsonl"
    )
    named = CorpusConfig.model_validate({**jsonl.model_dump(), "columns": {"doc_id": "key"}})
    assert digest_corpus(jsonl).digest != digest_corpus(named).digest


def test_headers_that_do_not_fit_are_refused(tmp_path):
    with refuses(PreflightError, "column-missing", 1):
        list_units(_corpus(tmp_path, "1\tx\n", format="tsv", columns={"doc_id": "id"}))
    with refuses(PreflightError, "column-several"):
        list_units(_corpus(tmp_path, "pid\tdocno\ttext\n1\tx\ty\n", format="tsv", header=True))


@pytest.mark.parametrize("key", [{"header": True}, {"columns": {"doc_id": "x"}}])
def test_keys_that_mean_nothing_to_a_format_are_refused(tmp_path, key):
    with pytest.raises(PreflightError, match=f"`corpus.{next(iter(key))}` .*trec"):
        list_units(_corpus(tmp_path, "<DOC><DOCNO>1</DOCNO></DOC>", format="trec", **key))
    with pytest.raises(PreflightError, match=f"`topics.{next(iter(key))}` .*trec"):
        _topics(
            tmp_path,
            "<top>",
            format="trec",
            **({"columns": {"text": "x"}} if "columns" in key else key),
        )


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        ('\ufeffdocno,url,contents\r\n1,x,"a, ""b""\nc"\r\n\r\n2,,\r\n', {}),
        ('1,"a, ""b""\nc"\n2,""', {"header": False}),
    ],
)
def test_csv_is_a_corpus(tmp_path, content, keys):
    for name in ("csv", "auto"):
        corpus = _corpus(tmp_path, content, "c.csv", format=name, **keys)
        assert docs_of(read_batches(corpus, 5)) == [("1", 'a, "b"\nc'), ("2", "")]
        assert bad_rows(corpus) == []


@pytest.mark.parametrize(
    ("name", "content", "keys"),
    [
        ("t.tsv", "x\ty\n1\ta b\n", {"header": True}),
        ("t.tsv", "x\ty\n1\ta b\n", {"columns": {"query_id": "x", "text": "y"}}),
        ("t.csv", '1,"a b"\n', {"header": False}),
        ("t.jsonl", '{"id": 1, "text": null, "query": "a b"}\n', {}),
    ],
)
def test_topics_have_named_columns(tmp_path, name, content, keys):
    assert _topics(tmp_path, content, name, **keys) == [("1", "a b")]


def test_topics_of_parquet_have_named_columns(tmp_path):
    path = f"{tmp_path}/t.parquet"
    for columns, keys in (
        (
            {"key": [1], "q": ["a b"], "query": pa.nulls(1)},
            {"columns": {"query_id": "key", "text": "q"}},
        ),
        ({"id": pa.nulls(1), "qid": ["1"], "text": pa.nulls(1), "query": ["a b"]}, {}),
    ):
        pq.write_table(pa.table(columns), path)
        assert [
            tuple(each) for each in read_topics(TopicsConfig.model_validate({"path": path, **keys}))
        ] == [("1", "a b")]


def test_ids_of_json_and_parquet_have_usual_names(tmp_path):
    fields = ("title", "text")
    for content in (
        '{"docno": 1, "title": "a", "text": "b"}\n',
        '[{"docno": "1", "title": "a", "text": "b"}]',
    ):
        corpus = _corpus(tmp_path, content, "c.jsonl", fields=fields)
        assert docs_of(read_batches(corpus)) == [("1", "a b")]
    pq.write_table(
        pa.table({"docno": ["1"], "title": ["a"], "text": ["b"]}), tmp_path / "c.parquet"
    )
    assert docs_of(read_batches(CorpusConfig(path=f"{tmp_path}/c.parquet", fields=fields))) == [
        ("1", "a b")
    ]


@pytest.mark.parametrize("keys", [{"columns": {"doc_id": "id"}}, {"fields": ["text"]}])
def test_names_of_columns_without_a_header_are_refused(keys):
    for config, named in ((CorpusConfig, keys), (TopicsConfig, {"columns": {"query_id": "id"}})):
        with pytest.raises(ValueError, match=f"`{next(iter(named))}` .*`header`"):
            config.model_validate({"path": "x.csv", "format": "csv", "header": False, **named})


def test_rows_without_a_header_are_compared_with_an_id_and_a_text(tmp_path):
    corpus = _corpus(tmp_path, "1,x,y\n", "c.csv", format="csv", header=False)
    with refuses(PreflightError, "columns", 1):
        list_units(corpus)


def test_header_of_a_csv_is_no_row_in_the_notes(tmp_path):
    corpus = _corpus(tmp_path, "id,text\n1,x\n", "c.csv", format="csv")
    _topics(tmp_path, "id,query\n1,x\n", "t.csv")
    assert corpora.notes(corpus) == []
    assert topics.notes(TopicsConfig(path=f"{tmp_path}/t.csv", format="csv")) == []


def test_guessed_headers_and_names_are_said(tmp_path):
    (tmp_path / "c.jsonl").write_text('{"docno": "1", "contents": "x"}\n')
    (tmp_path / "t.tsv").write_text("qid\tquery\n1\tx\n")
    (tmp_path / "u.tsv").write_text("query\tvector\nid\tx\n")
    values = {
        "corpus": {"path": f"{tmp_path}/c.jsonl", "format": "jsonl"},
        "topics": {"path": [f"{tmp_path}/t.tsv", f"{tmp_path}/u.tsv"], "format": "tsv"},
        "qrels": {"path": f"{tmp_path}/q.tsv", "columns": {"doc_id": "passage"}},
        "candidates": {"run": f"{tmp_path}/run.trec", "k": 10},
        "output": f"{tmp_path}/out",
    }
    config, notes = with_formats(load_config(values))
    assert (config.qrels.path, config.qrels.columns.doc_id) == (f"{tmp_path}/q.tsv", "passage")
    assert notes == [
        f"the first line of {tmp_path}/t.tsv is a header (qid, query), and no row",
        f"the first line of {tmp_path}/u.tsv is read as a row, and may be a header (query, "
        "vector): set `topics.header` to true or false",
    ]
    assert with_formats(config)[0] == config
    dumped = config.model_dump(mode="json")
    assert (
        dumped["topics"]["header"],
        dumped["topics"]["columns"],
        dumped["cascade"][0]["candidates"]["columns"],
    ) == (None,) * 3
    assert type(config).model_validate(dumped) == config
