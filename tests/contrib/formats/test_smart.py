"""SMART's files: docs and topics, and everything that is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.errors import PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units
from beamrank.formats.topics import TopicsConfig, read_topics
from contrib.formats import smart
from tests.support.corpora import bad_rows, corpus_of, docs_of, read_batches, read_docs

_DOCS = """.I 1
.T
Preliminary Report-International
 Algebraic Language
.B
CACM December, 1958
.A
Perlis, A. J.
.X
1\t5\t1
.I 2
.T
Extraction of Roots
.W
A method \r
of .W roots
.I 3
.B
nothing
"""
_TOPICS = (
    ".I 001\n.W\nwhat similarity laws\nmust be obeyed .\n.I 002\n.W \nwhat are\n.I 004\n.W\nheat\n"
)


@pytest.mark.parametrize(
    ("content", "fields", "docs"),
    [
        (
            _DOCS,
            None,
            [
                ("1", "Preliminary Report-International Algebraic Language"),
                ("2", "Extraction of Roots A method of .W roots"),
                ("3", ""),
            ],
        ),
        (
            "\ufeff" + _DOCS,
            ("A", "B"),
            [("1", "Perlis, A. J. CACM December, 1958"), ("2", ""), ("3", "nothing")],
        ),
        (
            _DOCS.replace("\n", "\r\n"),
            ("B",),
            [("1", "CACM December, 1958"), ("2", ""), ("3", "nothing")],
        ),
    ],
)
def test_smart_reads_docs(tmp_path, content, fields, docs):
    (tmp_path / "cacm.all").write_bytes(content.encode())
    assert read_docs(tmp_path / "cacm.all", "smart", fields) == docs
    assert read_docs(tmp_path, "smart", fields) == docs


def test_smart_has_fields_in_a_template(tmp_path):
    (tmp_path / "c").write_text(_DOCS)
    found = docs_of(
        read_batches(CorpusConfig(path=str(tmp_path / "c"), format="smart", template="{T} [{B}]"))
    )
    assert [text for _, text in found[1:]] == ["Extraction of Roots []", " [nothing]"]


def test_smart_counts_docs_that_cannot_be_used(tmp_path):
    (tmp_path / "c").write_bytes(
        b".I 1\n.W\nx\n.I\n.W\ny\n.I 2 3\n.W\nz\n.I 4\n.W\ncaf\xe9\n.I 5\n.W\nlast"
    )
    corpus = corpus_of(tmp_path / "c", "smart")
    assert docs_of(read_batches(corpus)) == [("1", "x"), ("5", "last")]
    assert [(row.place, row.reason) for row in bad_rows(corpus)] == [
        (f"{tmp_path}/c:4", "the row does not begin with `.I` and a number"),
        (f"{tmp_path}/c:7", "the row does not begin with `.I` and a number"),
        (
            f"{tmp_path}/c:10",
            "the row is not valid UTF-8 (byte 0xe9): convert the file, such as with `iconv -f "
            "latin1 -t utf-8`",
        ),
    ]


@pytest.mark.parametrize(
    ("content", "fields", "message"),
    [
        ("title\n", None, r"line 1: .*`.I`"),
        ('{"id": "1", "contents": "x"}', None, "`corpus.format: jsonl`"),
        (_DOCS, ("W", "K"), r"`K` .*A, B, T"),
        ("", None, "/c "),
    ],
)  # fmt: skip
def test_smart_refuses_another_file(tmp_path, content, fields, message):
    (tmp_path / "c").write_text(content)
    with pytest.raises(PreflightError, match=message):
        list_units(corpus_of(tmp_path / "c", "smart", fields))


def test_smart_topics_keep_their_numbers_or_count(tmp_path):
    (tmp_path / "cran.qry").write_text(_TOPICS)
    config = TopicsConfig(path=str(tmp_path / "cran.qry"), format="smart")
    texts = ["what similarity laws must be obeyed .", "what are", "heat"]
    assert list(read_topics(config)) == list(zip(["001", "002", "004"], texts, strict=True))
    assert list(read_topics(config.model_copy(update={"ids": "order"}))) == list(
        zip("123", texts, strict=True)
    )


def test_empty_record_at_the_end_of_smart_is_none(tmp_path):
    content = b".I 1\n.W\nx\n.I\n"
    (tmp_path / "c.all").write_bytes(content)
    assert read_docs(tmp_path / "c.all", "smart") == [("1", "x")]
    assert list(read_topics(TopicsConfig(path=f"{tmp_path}/c.all", format="smart"))) == [("1", "x")]
    (tmp_path / "c.all").write_bytes(b".I\n.W\ny\n" + content)
    with pytest.raises(PreflightError, match=r"line 1: .*`\.I`"):
        read_topics(TopicsConfig(path=f"{tmp_path}/c.all", format="smart"))


def test_smart_topics_error_names_the_line(tmp_path):
    (tmp_path / "cran.qry").write_text("x\n" + _TOPICS + ".I 004\n.W\nagain\n.I 5\n.A\nno text\n")
    with pytest.raises(PreflightError) as caught:
        read_topics(TopicsConfig(path=str(tmp_path / "cran.qry"), format="smart"))
    for found in (
        "3 problems",
        "line 1: the row does not begin with `.I`",
        "line 12: the row has the query_id '004', which line 9 has too",
        "line 15: the row has no text",
    ):
        assert found in str(caught.value)


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.text(st.sampled_from("ab .é\nI"), max_size=12), min_size=1))
def test_smart_splits_records_at_their_first_lines(texts):
    texts = [text.replace("\n.", "\n,") for text in texts]
    content = "".join(f".I {i}\n.W\n {text}\n" for i, text in enumerate(texts)).encode()
    records = list(smart._split(content))
    assert [smart._parse(record.decode())[0] for _, record in records] == [
        str(i) for i in range(len(texts))
    ]
    assert [content.split(b"\n")[line - 1] for line, _ in records] == [
        b".I %d" % i for i in range(len(texts))
    ]
