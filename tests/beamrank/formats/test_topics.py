"""Topics: each format, and everything that is refused."""

import gzip
import tarfile
import zipfile

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.errors import PreflightError
from beamrank.formats.topics import TopicsConfig, read_topics
from tests.support.refusals import refuses

_TOP = """<top>
<num> Number: 301
<title> Topic: International
 Organized  Crime, x < y

<desc> Description:
Identify organizations.
</top>
"""
_CLOSED = "<top><num>302</num><title>\nPoliomyelitis\n</title><desc>no</desc></top>"


def _read(path, name):
    return [tuple(topic) for topic in read_topics(TopicsConfig(path=str(path), format=name))]


@pytest.fixture
def read(tmp_path):
    """A function that reads the topics of a file with a content."""

    def read_content(content, name):
        (tmp_path / "t.txt").write_bytes(
            content if isinstance(content, bytes) else content.encode()
        )
        return _read(tmp_path / "t.txt", name)

    return read_content


@pytest.mark.parametrize(
    ("name", "content", "topics"),
    [
        (
            "tsv",
            "\ufeff2\t Androgen receptor define\r\n\n010\tdépôt\u2028x",
            [("2", " Androgen receptor define"), ("010", "dépôt\u2028x")],
        ),
        (
            "jsonl",
            '{"query_id": "a", "id": "no", "query": "x"}\n{"query_id": 7, "query": "y"}',
            [("a", "x"), ("7", "y")],
        ),
        (
            "trec",
            f"{_TOP}\n{_CLOSED}\n",
            [("301", "International Organized Crime, x < y"), ("302", "Poliomyelitis")],
        ),
        (
            "trec",
            "<DOC>\n<DOCNO> 1 </DOCNO>\n\n What\narticles <b>?\n \n</DOC>\n",
            [("1", "What articles <b>?")],
        ),
        ("car", "enwiki:A%20b/C%2FD+e", [("enwiki:A%20b/C%2FD+e", "A b C D+e")]),
        (
            "car-qrels",
            "# of 2019\nenwiki:A%20b/C 0 p1 1\nenwiki:A%20b/C 0 p2 1\n\nB 0 p1 1\nenwiki:A%20b/C "
            "0 p3 1\n",
            [("enwiki:A%20b/C", "A b C"), ("B", "B")],
        ),
        (
            "car",
            "%C3%89mile/enwiki:x\nA/%22B%22",
            [("%C3%89mile/enwiki:x", "Émile enwiki:x"), ("A/%22B%22", 'A "B"')],
        ),
    ],
)
def test_topics_are_read(read, name, content, topics):
    assert read(content, name) == topics


_COVID = """<?xml version="1.0" encoding="UTF-8"?>
<topics task="COVIDSEARCH Round 1" batch="1">
  <!-- one -->
  <topic number="1">
    <query>coronavirus
 origin &amp; age</query>
    <question>what is the origin</question>
  </topic>
  <topic number='2'><narrative>long</narrative><query>b</query></topic>
</topics>
"""
_WEB = """<webtrack2009>
<topic number="1" type="faceted">
  <query> obama family tree </query>
  <subtopic number="1" type="nav"> Find the <query>no</query> </subtopic>
</topic>
</webtrack2009>"""
_TRIALS = (
    '<topics task="2021 TREC Clinical Trials">\n<topic number="1">\nA 45-year-old man,\n BP '
    "< 90\n</topic>\n</topics>"
)


@pytest.mark.parametrize(
    ("content", "topics"),
    [
        (_COVID, [("1", "coronavirus origin & age"), ("2", "b")]),
        (_WEB, [("1", "obama family tree")]),
        (_TRIALS, [("1", "A 45-year-old man, BP < 90")]),
        ('<topic number="7"><title>a</title></topic>', [("7", "a")]),
        ('<topic number="1"><query><![CDATA[a < b & c]]></query></topic>', [("1", "a < b & c")]),
    ],
)
def test_topics_with_numbers_as_attributes_are_read(tmp_path, content, topics):
    (tmp_path / "t.xml").write_text(content)
    for name in ("trec", "auto"):
        assert _read(tmp_path / "t.xml", name) == topics


def test_topics_are_read_from_folders_compressed_and_remote_files(tmp_path):
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "x"}\n')
    assert _read(tmp_path, "beir") == [("q1", "x")]
    (tmp_path / "t.tsv.gz").write_bytes(gzip.compress(b"1\tx\n"))
    assert _read(tmp_path / "t.tsv.gz", "tsv") == [("1", "x")]
    (tmp_path / "t.tsv.gz").write_bytes(gzip.compress(b"1\tx\n")[:-6])
    with pytest.raises(PreflightError, match=r"t\.tsv\.gz"):
        _read(tmp_path / "t.tsv.gz", "tsv")
    fsspec.filesystem("memory").pipe("/topics/t.tsv", b"1\tx\n2\ty\n")
    assert _read("memory://topics/t.tsv", "tsv") == [("1", "x"), ("2", "y")]


def test_topics_are_read_from_several_files_and_globs(tmp_path):
    for fold in range(4):
        (tmp_path / f"fold-{fold}.qrels").write_text(f"q{fold} 0 p 1\nshared 0 p{fold} 1\n")
    config = TopicsConfig(
        path=(f"{tmp_path}/fold-3.qrels", f"{tmp_path}/fold-[0-2].qrels"), format="car-qrels"
    )
    assert [topic.query_id for topic in read_topics(config)] == ["q3", "shared", "q0", "q1", "q2"]
    for name in ("a.tsv", "b.tsv"):
        (tmp_path / name).write_text("1\tx\n")
    with refuses(PreflightError, "query-twice", 1):
        read_topics(TopicsConfig(path=f"{tmp_path}/*.tsv", format="tsv"))
    with refuses(PreflightError, "no-file"):
        read_topics(TopicsConfig(path=f"{tmp_path}/*.none", format="tsv"))


def test_topics_may_be_decoded_as_in_2019(tmp_path):
    (tmp_path / "t").write_text("enwiki:A%20b/%C3%89mile%22/enwiki:c\n")
    texts = {
        decoding: read_topics(
            TopicsConfig(path=str(tmp_path / "t"), format="car", decoding=decoding)
        )[0].text
        for decoding in ("full", "original")
    }
    assert texts == {"full": 'A b Émile" enwiki:c', "original": "A b %C3%89mile%22 c"}
    with pytest.raises(PreflightError, match=r"`topics\.decoding`"):
        read_topics(TopicsConfig(path=f"{tmp_path}/t", format="tsv", decoding="original"))


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("topics_format", "content", "kind", "line"),
    [
        ("tsv", "1 x\n", "columns", 1),
        ("tsv", "1\tx\ty\n", "columns", 1),
        ("car", "A\rB\r", "lone-cr", 1),
        ("car", "A%20b/%FF\n", "not-utf8", 1),
        ("car", "enwiki:\n", "topic-empty", 1),
        ("car", "A b\n", "id-white-space", 1),
        ("car-qrels", "A 0 p1 1\nB 0 p1\n", "columns", 2),
        ("car-qrels", "A/%FF 0 p1 1\n", "not-utf8", 1),
        ("trec", _TOP.replace("\n", "\r"), "lone-cr", 1),
        ("trec", "\n1\tx\n", "outside", 2),
        ("trec", _TOP + "<top>\n<num> 302\n", "outside", 9),
        ("trec", _TOP.replace("</top>", "") + _TOP, "not-closed", 1),
        ("trec", "<top><num> 1</num></top>", "tag-missing", 1),
        ("trec", _TOP.replace("</top>\n", "") + _TOP.removeprefix("<top>\n"), "tag-twice", 1),
        ("trec", "<top><num> 1</num><title>a</title><title>b</title></top>", "tag-twice", 1),
        ("trec", "<top><title> x</title></top>", "tag-missing", 1),
        ("trec", "<top><num> 1\n<title>\n<desc> x</top>", "topic-empty", 1),
        ("trec", "<DOC>1</DOC>", "tag-missing", 1),
        (
            "trec",
            _TOP.encode() + b"\n" + _TOP.replace("C", "é").encode("l1"),
            "not-utf8",
            10,
        ),
        ("trec", '<topic number="1"><disease>x</disease></topic>', "no-query", 1),
        ("trec", '<topics>\n<topic number="1">a</topic>\nb c\n</topics>', "outside", 3),
        ("trec", '<topic number="1">a\n<topic number="2">b</topic>', "not-closed", 1),
        ("trec", '<topic number="1">a</topic>\n<topic number="2">b', "outside", 2),
        ("trec", '<topic number="1"></topic>', "topic-empty", 1),
        ("trec", '<topic number=" "><query>a</query></topic>', "empty-id", 1),
        ("trec", "<top>" * 100_000, "outside", 1),
        ("trec", "</top>" * 100_000, "outside", 1),
        ("trec", "<top><doc>" * 50_000, "outside", 1),
        ("trec", "<top" + " " * 99999, "outside", 1),
    ],
)
def test_topics_error_names_the_line(read, topics_format, content, kind, line):
    with refuses(PreflightError, kind, line):
        read(content, topics_format)


@pytest.mark.parametrize(
    ("content", "given", "remedy"),
    [
        (_TOP * 90, "jsonl", "topics.format: trec"),
        ('{"query_id": "1", "text": "x"}\n', "tsv", "topics.format: jsonl"),
        ("\ufeff1\tx\n", "car", "topics.format: tsv"),
        (gzip.compress(b"1\tx\n", mtime=0), "tsv", r"gzip.*\.gz"),
    ],
)
def test_topics_name_the_format_that_a_file_looks_like(read, content, given, remedy):
    with pytest.raises(PreflightError, match=remedy):
        read(content, given)


def test_topics_of_the_given_format_name_no_other(read):
    for content, given in [
        ('{"_id": "1"}', "jsonl"),
        ("1\tx\n1\ty\n", "tsv"),
        (_TOP + _TOP, "trec"),
        ("", "tsv"),
    ]:
        with pytest.raises(PreflightError) as caught:
            read(content, given)
        assert "looks like" not in str(caught.value)


def test_topics_path_that_is_not_a_file_is_refused(tmp_path):
    with refuses(PreflightError, "no-file"):
        _read(tmp_path, "tsv")
    with pytest.raises(PreflightError, match=r"queries\.jsonl"):
        _read(tmp_path, "beir")


@pytest.mark.data
def test_cacm_has_64_topics(shared_data):
    topics = _read(shared_data / "cacm" / "topics.cacm.txt", "trec")
    assert [query_id for query_id, _ in topics] == [str(number) for number in range(1, 65)]
    assert topics[1][1] == (
        "I am interested in articles written either by Prieve or Udo Pooch Prieve, B. Pooch, U."
    )


@pytest.mark.data
def test_msmarco_has_6980_dev_topics(shared_data):
    topics = _read(shared_data / "msmarco" / "topics.msmarco-passage.dev-subset.txt", "tsv")
    assert len(topics) == 6980
    assert topics[0] == ("1048585", "what is paula deen's brother")


@pytest.mark.data
def test_car_topics_are_those_of_the_qrels(shared_data):
    with tarfile.open(shared_data / "trec_car_test200.tar.gz") as archive:
        folder = "trec_car_test200/benchmarkY1test"
        texts = archive.extractfile(f"{folder}/topics.car17v1.5.benchmarkY1test.txt")
        qrels = archive.extractfile(f"{folder}/qrels.car17v1.5.benchmarkY1test.txt")
        judged = {line.split()[0].decode() for line in qrels}
        fsspec.filesystem("memory").pipe("/car/topics.txt", texts.read())
    topics = dict(_read("memory://car/topics.txt", "car"))
    assert len(topics) == 2125
    assert judged == topics.keys()
    assert (
        topics["Division%20of%20labour/Theorists/%C3%89mile%20Durkheim"]
        == "Division of labour Theorists Émile Durkheim"
    )


@pytest.mark.data
def test_nfcorpus_has_all_queries_of_its_three_splits(shared_data, tmp_path):
    with zipfile.ZipFile(shared_data / "nfcorpus" / "nfcorpus.zip") as archive:
        archive.extractall(tmp_path)
    topics = _read(tmp_path / "nfcorpus", "beir")
    assert len(topics) == 2590 + 324 + 323
    assert topics[0] == ("PLAIN-3", "Breast Cancer Cells Feed on Cholesterol")


def test_topics_of_many_batches_are_a_table(tmp_path):
    """Texts and Parquet are read in batches of rows; problems in any of them have their places."""
    count = 70_000
    ids, texts = (
        [f"q{number}" for number in range(count)],
        [f"text {number}" for number in range(count)],
    )
    (tmp_path / "t.tsv").write_text("".join(map("{}\t{}\n".format, ids, texts)))
    pq.write_table(pa.table({"qid": ids, "text": texts}), tmp_path / "t.parquet")
    found = [read_topics(TopicsConfig(path=f"{tmp_path}/t.{each}")) for each in ("tsv", "parquet")]
    assert found[0] == found[1]
    assert (len(found[0]), found[0][count - 1]) == (count, (ids[-1], texts[-1]))
    ids[-1], texts[-2] = "q5", "\u2003"
    pq.write_table(pa.table({"qid": ids, "text": texts}), tmp_path / "t.parquet")
    with pytest.raises(PreflightError) as caught:
        read_topics(TopicsConfig(path=f"{tmp_path}/t.parquet"))
    no_text, twice = str(caught.value).splitlines()[1:]
    assert f"row {count - 1}:" in no_text
    assert all(name in twice for name in (f"row {count}:", "'q5'", "row 6 "))


def test_fields_of_json_that_are_null_in_all_rows_are_none(tmp_path, read):
    assert read(
        '{"query_id": null, "id": "a", "text": "x"}\n{"id": "b", "text": "y"}', "jsonl"
    ) == [
        ("a", "x"),
        ("b", "y"),
    ]
    with refuses(PreflightError, "null", 1):
        read('{"query_id": null, "id": "a", "text": "x"}\n{"query_id": "b", "text": "y"}', "jsonl")
