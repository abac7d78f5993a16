"""`format: auto`: what is taken, and what cannot be guessed."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.config.load import load_config
from beamrank.errors import ConfigError, PreflightError
from beamrank.formats import corpora, topics
from beamrank.formats.corpora import CorpusConfig, digest_corpus, list_units
from beamrank.formats.topics import TopicsConfig, read_topics
from pipelines.plan.named_inputs import with_formats
from tests.support.corpora import docs_of, read_batches
from tests.support.refusals import refuses

_CORPORA = {
    "jsonl": ("c.jsonl", b'{"id": "1", "contents": "x"}\n'),
    "beir": ("c.jsonl", b'{"_id": "1", "title": "", "text": "x"}\n'),
    "tsv": ("collection.tsv.gz", gzip.compress(b"\xef\xbb\xbf1\tx\n")),
    "trec": ("ft911_1", b"\n<DOC>\n<DOCNO>1</DOCNO><TEXT>x</TEXT></DOC>\n"),
    "smart": ("cacm.all", b".I 1\n.W\nx\n"),
    "car": ("p.cbor", b"\x83\x00\x411\x81\x82\x00\x61x"),
    "rank_llm": (
        "r.json",
        b'[{"query": {"qid": "q", "text": "t"}, "candidates": [{"docid": "1", "doc": "x"}]}]',
    ),
    "top1000": ("top1000.dev", b"q\t1\tone two three four five\tx\n"),
}
_TOPICS = {
    "tsv": b"q\tx\n",
    "jsonl": b'{"query_id": "q", "query": "x"}\n',
    "beir": b'{"_id": "q", "text": "x"}\n',
    "trec": b"<top>\n<num> Number: q\n<title> x\n</top>\n",
    "smart": b".I q\n.W\nx\n",
    "car": b"enwiki:a%20b/x\n",
    "car-qrels": b"enwiki:a%20b/x 0 p1 1\n",
}


@pytest.mark.parametrize("name", _CORPORA)
def test_corpus_format_is_guessed(tmp_path, name):
    base, content = _CORPORA[name]
    (tmp_path / base).write_bytes(content)
    given, named = (
        CorpusConfig(path=str(tmp_path / base)),
        CorpusConfig(path=str(tmp_path / base), format=name),
    )
    assert corpora.resolved(given) == corpora.resolved(named) == named
    assert docs_of(read_batches(given)) == [("1", "x")]
    assert digest_corpus(given).digest == digest_corpus(named).digest


@pytest.mark.parametrize(
    ("columns", "name"), [(("_id", "title", "text"), "beir"), (("id", "contents"), "parquet")]
)
def test_format_of_parquet_is_guessed_by_its_columns(tmp_path, columns, name):
    pq.write_table(pa.table({column: ["1"] for column in columns}), tmp_path / "c.parquet")
    assert corpora.resolved(CorpusConfig(path=str(tmp_path))).format == name


@pytest.mark.parametrize("packed", [b"", b".gz"])
def test_format_of_a_folder_is_guessed(tmp_path, packed):
    (tmp_path / "README.md").write_text("no docs")
    (tmp_path / "a.txt").write_text("1\tx\n")
    (tmp_path / "qrels").mkdir()
    assert corpora.resolved(CorpusConfig(path=str(tmp_path))).format == "tsv"
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1", "text": "x"}\n')
    assert corpora.resolved(CorpusConfig(path=str(tmp_path))).format == "beir"


@pytest.mark.parametrize("name", _TOPICS)
def test_topics_format_is_guessed(tmp_path, name):
    (tmp_path / "t").write_bytes(_TOPICS[name])
    given, named = (
        TopicsConfig(path=str(tmp_path / "t")),
        TopicsConfig(path=str(tmp_path / "t"), format=name),
    )
    assert topics.resolved(given) == named
    assert list(read_topics(given)) == list(read_topics(named)) != []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"one column\n", r"`corpus\.format` .*beir, csv, jsonl"),
        (b"D1\thttp://a\tCrust\topen the oven door\nD2\thttp://b\tFlour\twater\n", " 4 "),
        ('{"id": "1", "contents": "x"}\n'.encode("utf-16"), "iconv -f utf-16 "),
        ("1\tthe oven door\n".encode("utf-16-le"), "iconv -f utf-16le "),
        ("<DOC>\n<DOCNO>1</DOCNO>x</DOC>\n".encode("utf-16-be"), "iconv -f utf-16be "),
    ],
)
def test_format_that_cannot_be_guessed_is_an_error(tmp_path, content, message):
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(PreflightError, match=message):
        list_units(CorpusConfig(path=str(tmp_path / "c")))


@pytest.mark.parametrize(
    "name", ["tsv", "jsonl", "beir", "trec", "smart", "car", "rank_llm", "mteb", "top1000"]
)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_topics_in_utf16_are_named_in_every_format(tmp_path, name, encoding):
    (tmp_path / "t").write_bytes(_TOPICS.get(name, _TOPICS["jsonl"]).decode().encode(encoding))
    for given in {name, "auto"}:
        with pytest.raises(PreflightError, match="iconv"):
            read_topics(TopicsConfig(path=str(tmp_path / "t"), format=given))


def _config(folder, **corpus):
    values = {
        "corpus": {"path": f"{folder}/c.tsv", **corpus},
        "topics": {"path": f"{folder}/t.tsv"},
        "candidates": {"run": f"{folder}/run.trec", "k": 10},
        "mono": {"checkpoint": "embedded:mono"},
        "output": f"{folder}/out",
    }
    return load_config(values)


def test_guessed_formats_enter_the_configuration(tmp_path):
    (tmp_path / "c.tsv").write_text("1\tx\n")
    (tmp_path / "t.tsv").write_text("q\tx\n")
    config, notes = with_formats(_config(tmp_path))
    assert (config.corpus.format, config.topics.format) == ("tsv", "tsv")
    assert config.cascade[1].section.k == 10
    assert notes == [
        f"{tmp_path}/c.tsv is read as `corpus.format: tsv`",
        f"{tmp_path}/t.tsv is read as `topics.format: tsv`",
    ]
    assert with_formats(config) == (config, [])
    assert config == with_formats(_config(tmp_path, format="tsv"))[0]


def test_guessed_format_that_contradicts_other_keys_is_refused(tmp_path):
    (tmp_path / "c.tsv").write_bytes(_CORPORA["top1000"][1])
    (tmp_path / "t.tsv").write_text("q\tx\n")
    values = {
        "corpus": {"path": f"{tmp_path}/c.tsv"},
        "topics": {"path": f"{tmp_path}/t.tsv"},
        "index": {"path": f"{tmp_path}/index"},
        "output": f"{tmp_path}/out",
    }
    with pytest.raises(ConfigError, match=r"corpus\.format: top1000"):
        with_formats(load_config(values))


def test_a_file_that_two_formats_fit_needs_the_name_of_one(tmp_path):
    row = {"query": "x", "positive": ["y"], "negative": [], "hits": [{"qid": 1, "docid": 2}]}
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(row))
    for guess in (
        lambda: topics.resolved(TopicsConfig(path=str(path))),
        lambda: corpora.resolved(CorpusConfig(path=str(path))),
    ):
        with refuses(PreflightError, "format-several"):
            guess()
    assert topics.resolved(TopicsConfig(path=str(path), format="mteb")).format == "mteb"
