"""Inputs that once ended in an error that was not ours: read whole, or refused with a message."""

import bz2
import io
import json
from typing import Any

import cbor2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.fuzz.inputs import to_arrow, to_lines, to_parquet
from benchmarks.fuzz.targets import named
from benchmarks.fuzz.watch import attempt, prepare

_IDS = {"query_id": ["q", "q"], "doc_id": ["a", "b"]}
_HUGE = 10**400


def _table(names: str, *columns: Any, arrow: bool = False) -> bytes:
    """A table whose names can repeat."""
    table, sink = pa.table(list(map(pa.array, columns)), names=names.split()), io.BytesIO()
    if arrow:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        pq.write_table(table, sink)
    return sink.getvalue()


_UNTYPED = {
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}
_PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b"]


def _tokenizer(parts: dict[str, Any]) -> bytes:
    vocabulary = {piece: number for number, piece in enumerate(_PIECES)}
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 9,
    }
    return json.dumps({"model": {**model, "vocab": vocabulary}, **parts}).encode()


_NAMES, _REPEATED = (
    "query_id doc_id doc_id relevance score",
    [["q", "q"], ["a", "b"], ["a", "b"], [1, 2], [1, 2]],
)
_SURROGATE = {"qid": "q", "text": "\ud800"}
_FAR_DATE = pa.array([2**62, 1], pa.timestamp("us"))


@pytest.mark.parametrize(
    ("name", "content", "is_read"),
    [
        ("run parquet", _table(_NAMES, *_REPEATED), False),
        ("run arrow", _table(_NAMES, *_REPEATED, arrow=True), False),
        ("qrels parquet", _table(_NAMES, *_REPEATED), False),
        ("given run parquet", _table(_NAMES, *_REPEATED), False),
        ("topics parquet", _table("query_id text text", ["q"], ["a"], ["b"]), False),
        ("run parquet", to_parquet({**_IDS, "score": [1, 2], "date": _FAR_DATE}), True),
        ("run arrow", to_arrow({**_IDS, "score": _FAR_DATE}), False),
        (
            "qrels parquet",
            to_parquet({**_IDS, "relevance": pa.array([2**30, 1], pa.date32())}),
            False,
        ),
        (
            "given run jsonl",
            to_lines(
                [
                    {
                        "query": {"qid": "q", "text": "t"},
                        "candidates": [{"docid": "d", "score": _HUGE, "doc": "x"}],
                    }
                ]
            ),
            True,
        ),
        ("topics rank_llm", to_lines([{"query": _SURROGATE, "candidates": []}]), False),
        (
            "corpus rank_llm",
            to_lines([{"query": "t", "hits": [{"qid": "q", "docid": "d", "content": "\ud800"}]}]),
            False,
        ),
        ("excluded docs jsonl", to_lines([{"id": "\ud800", "excluded_ids": ["d"]}]), False),
        ("tokenizer.json", _tokenizer({"normalizer": _UNTYPED}), True),
        ("tokenizer.json", _tokenizer({"normalizer": [[]]}), True),
        (
            "tokenizer.json",
            _tokenizer({"model": {"type": "Unigram", "vocab": [[each, -1.5] for each in _PIECES]}}),
            False,
        ),
        ("tokenizer.json", _tokenizer({"model": {"type": "Unigram", "vocab": []}}), False),
        ("tokenizer.json", b'{"tru", ' + _tokenizer({})[1:], False),
        # A block of a million rows, of which none is a doc.
        ("corpus bz2", bz2.compress(b"\n" * 3_000_000), False),
        (
            "corpus car",
            cbor2.dumps([0, b"d1", [[0, "x"]]]) + cbor2.dumps([0, b"d2", {(1, 2): "x"}]),
            True,
        ),
    ],
)
def test_input_that_once_ended_in_a_traceback(tmp_path, name, content, is_read):
    assert attempt(prepare(named(name), tmp_path / "files"), content) is is_read


@pytest.mark.parametrize("name", ["topics parquet", "run parquet", "given run parquet", "part"])
def test_column_whose_name_is_not_utf8_is_an_error(tmp_path, name):
    prepared = prepare(named(name), tmp_path / "files")
    content = prepared.seeds[0].replace(b"query_id", b"query_\xe6d")
    assert attempt(prepared, content) is False


def _without_values(content: bytes, column: int) -> bytes:
    """A Parquet file in which the first page of a column says that it has no values."""
    chunk = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(column)
    at = chunk.dictionary_page_offset or chunk.data_page_offset
    header = content.index(b"\x15\x04", chunk.data_page_offset, at + chunk.total_compressed_size)
    return content[: header + 1] + b"\0" + content[header + 2 :]


@pytest.mark.parametrize("name", ["run parquet", "corpus parquet"])
def test_rows_that_a_damaged_page_hides_are_an_error(tmp_path, name):
    """Arrow ends where a column has no values, and says nothing."""
    prepared = prepare(named(name), tmp_path / "files")
    content = _without_values(prepared.seeds[0], 1)
    found = pq.ParquetFile(io.BytesIO(content))
    assert sum(map(len, found.iter_batches(row_groups=[0]))) < found.metadata.row_group(0).num_rows
    assert attempt(prepared, content) is False


def test_statistics_that_do_not_fit_their_column_are_an_error(tmp_path):
    """Arrow ends the process where it reads them."""
    prepared = prepare(named("pairs"), tmp_path / "files")
    optional, required = b"\x25\x02\x18\x03doc", b"\x25\x00\x18\x03doc"
    assert optional in prepared.seeds[0]
    assert attempt(prepared, prepared.seeds[0].replace(optional, required)) is False


@pytest.mark.parametrize("offset", [b"\xff" * 4, (1 << 30).to_bytes(4, "little")])
def test_arrow_offsets_that_lead_out_of_memory_are_an_error(tmp_path, offset):
    prepared = prepare(named("run arrow"), tmp_path / "files")
    content = prepared.seeds[0]
    at = content.index((2).to_bytes(4, "little") + (4).to_bytes(4, "little"))
    assert attempt(prepared, content[: at + 4] + offset + content[at + 8 :]) is False
