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
from tests.support.corpora import corpus_of, docs_of, read_docs
from tests.support.refusals import refuses

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


@pytest.mark.parametrize(
    ("content", "place"),
    [('[{"id": "1",\n "contents": "x"},\n{"id"', 3), ('[{"id": ' + "1" * 5000 + "}]", None)],
)
def test_json_that_holds_no_docs_is_refused(tmp_path, content, place):
    (tmp_path / "docs.json").write_text(content)
    with refuses(PreflightError, "not-json", place):
        list_units(corpus_of(tmp_path / "docs.json", "jsonl"))


def test_json_list_that_is_too_large_names_the_remedy(tmp_path, monkeypatch):

    (tmp_path / "docs.json").write_text(json.dumps(_DOCS))
    (tmp_path / "docs.json.gz").write_bytes(gzip.compress(json.dumps(_DOCS).encode()))
    (unit,) = list_units(corpus_of(tmp_path / "docs.json", "jsonl"))
    monkeypatch.setattr(json_rows, "_MOST_LIST_BYTES", 60)
    for name in ("docs.json", "docs.json.gz"):
        with refuses(PreflightError, "too-large"):
            list_units(corpus_of(tmp_path / name, "jsonl"))
    with refuses(DataError, "too-large"):
        list(read_unit(unit))


@pytest.mark.parametrize("small_bytes", [0, 1 << 13])
def test_bytes_behind_a_byte_order_mark_are_those_of_the_file(tmp_path, monkeypatch, small_bytes):
    monkeypatch.setattr("beamrank.formats.decode.lines.SMALL_BYTES", small_bytes)
    lines = b'\xef\xbb\xbf{"id": "1", "text": "x"}\n', b'{"id": "2", "text": "y"}\n'
    (tmp_path / "docs.jsonl").write_bytes(b"".join(lines))
    (unit,) = list_units(corpus_of(tmp_path / "docs.jsonl", "jsonl"))
    positions = [at for batch in read_unit(unit) for at in batch.positions]
    assert positions == [0, len(lines[0])]


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
