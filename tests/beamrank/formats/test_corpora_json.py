"""JSON files that are one value, as Anserini's JsonCollection reads them: a list of docs, or a
single doc.
"""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.errors import BeamrankError, DataError, PreflightError
from beamrank.formats import corpora
from beamrank.formats.corpora import list_units, read_unit
from beamrank.formats.decode import json_rows
from beamrank.formats.topics import TopicsConfig, read_topics
from tests.support.corpora import bad_rows, corpus_of, docs_of, read_batches, read_docs

_DOCS = [{"id": "d1", "contents": "one\nand a half"}, {"id": 2, "contents": "two 😀"}]
_READ = [("d1", "one\nand a half"), ("2", "two 😀")]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", ["jsonl", "auto"])
def test_json_list_is_read_as_its_docs(tmp_path, indent, pack, name):
    path = tmp_path / f"docs.json{'.gz' * (pack is gzip.compress)}"
    path.write_bytes(pack(b"\xef\xbb\xbf \n" + json.dumps(_DOCS, indent=indent).encode()))
    assert read_docs(path, name) == _READ
    (unit,) = list_units(corpus_of(path, name), unit_bytes=10)
    assert docs_of(list(read_unit(unit, batch_docs=1))) == _READ


def test_json_folder_of_lists_lines_and_single_docs_is_read(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(_DOCS, indent=2))
    (tmp_path / "b.json").write_text(json.dumps({"id": "b", "contents": "x"}, indent=2))
    (tmp_path / "c.jsonl").write_text(
        '{"id": "c", "contents": "y"}\n{"id": "d", "contents": "z"}\n'
    )
    assert corpora.resolved(corpus_of(tmp_path, "auto")).format == "jsonl"
    assert read_docs(tmp_path, "auto") == [*_READ, ("b", "x"), ("c", "y"), ("d", "z")]


def test_json_list_counts_rows_that_are_no_docs(tmp_path):
    rows = [
        *_DOCS,
        [1],
        {"id": "d3"},
        {"id": "a b", "contents": ""},
        {"id": "d4", "contents": "\ud83d"},
    ]
    (tmp_path / "docs.json").write_text(json.dumps(rows))
    corpus = corpus_of(tmp_path / "docs.json", "jsonl")
    (batch,), bad = read_batches(corpus), bad_rows(corpus)
    assert docs_of([batch]) == _READ
    assert [row.place for row in bad] == [f"{tmp_path}/docs.json at row {i}" for i in range(3, 7)]
    expected = (
        "a list, not an object",
        "has no `contents`",
        "white space",
        "surrogate",
    )
    for row, reason in zip(bad, expected, strict=True):
        assert reason in row.reason


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b'[{"id": "1",\n "contents": "x"},\n{"id"',
            r"docs\.json:3: not JSON: .*The file may be truncated",
        ),
        (b'[{"id": "1", "contents": "\xff"}]', r"docs\.json: not JSON: .*utf-8"),
        (b'[{"id": ' + b"1" * 5000 + b"}]", r"docs\.json: not JSON"),
        (b'[{"text": "x"}]', r"needs columns for \(doc_id, text\), and it has: text"),
        (b"[]", "holds no docs"),
    ],
)
def test_json_that_holds_no_docs_is_refused(tmp_path, content, message):
    (tmp_path / "docs.json").write_bytes(content)
    with pytest.raises(PreflightError, match=message):
        list_units(corpus_of(tmp_path / "docs.json", "jsonl"))


def test_json_list_that_is_too_large_names_the_remedy(tmp_path, monkeypatch):
    message = r"would be in memory at once: write a line for each row, with `jq -c '\.\[\]'"
    (tmp_path / "docs.json").write_text(json.dumps(_DOCS))
    (tmp_path / "docs.json.gz").write_bytes(gzip.compress(json.dumps(_DOCS).encode()))
    (unit,) = list_units(corpus_of(tmp_path / "docs.json", "jsonl"))
    monkeypatch.setattr(json_rows, "_MOST_LIST_BYTES", 60)
    for name in ("docs.json", "docs.json.gz"):
        with pytest.raises(PreflightError, match=message):
            list_units(corpus_of(tmp_path / name, "jsonl"))
    with pytest.raises(DataError, match=message):
        list(read_unit(unit))


@settings(max_examples=50, deadline=None)
@given(cut=st.integers(0, len(json.dumps(_DOCS)) - 1))
def test_truncated_json_list_is_an_error(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("cut") / "docs.json"
    path.write_text(json.dumps(_DOCS)[:cut])
    with pytest.raises(BeamrankError):
        read_docs(path, "jsonl")


def test_json_list_of_topics_is_read(tmp_path):
    (tmp_path / "topics.json").write_text('[{"query_id": "1", "text": "x"}]')
    topics = read_topics(TopicsConfig(path=str(tmp_path / "topics.json")))
    assert list(topics) == [("1", "x")]
