"""Line by line corpora: units, bad rows, compressed and remote files, folders."""

import gzip
import json
import pickle

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora import FORMATS, list_units, read_unit
from beamrank.formats.schemas import Hints
from beamrank.formats.texts.units import CorpusUnit
from tests.support.corpora import (
    COMPRESSORS,
    bad_rows,
    corpus_of,
    docs_of,
    each_compression,
    read_batches,
    read_docs,
    zstd,
)
from tests.support.refusals import refuses

_BEIR = (
    '{"_id": "1", "title": "T", "text": "x"}\n{"_id": "2", "title": "", "text": "y"}\n{"_id": '
    '"3", "text": "z"}\n'
)


def test_tsv_reads_ids_texts_and_byte_positions(tmp_path):
    content = "7\tdépôt\n8\tsecond\r\nD-9\t\n10\tlast".encode()
    (tmp_path / "c.tsv").write_bytes(content)
    (unit,) = list_units(corpus_of(tmp_path / "c.tsv", "tsv"))
    batches = list(read_unit(unit))
    assert docs_of(batches) == [("7", "dépôt"), ("8", "second"), ("D-9", ""), ("10", "last")]
    positions = [position for batch in batches for position in batch.positions]
    assert [content[position:].split(b"\t")[0] for position in positions] == [
        b"7",
        b"8",
        b"D-9",
        b"10",
    ]
    assert bad_rows(corpus_of(tmp_path / "c.tsv", "tsv")) == []
    assert unit.place(10) == f"{tmp_path}/c.tsv at byte 10"


def test_csv_is_read_in_small_batches(tmp_path):
    (tmp_path / "c.csv").write_text("id,text\n" + "".join(f"{row},x\n" for row in range(5000)))
    (unit,) = list_units(corpus_of(tmp_path / "c.csv", "csv"))
    assert [len(batch) for batch in unit.open().batches()] == [4096, 904]


@pytest.mark.parametrize(
    ("name", "content", "fields", "docs"),
    [
        (
            "tsv",
            "1\ta\x0bb\x0c\x1c\x85c\u2028d\re\n2\tx\n",
            None,
            [("1", "a\x0bb\x0c\x1c\x85c\u2028d\re"), ("2", "x")],
        ),
        ("jsonl", '{"id": "a", "contents": "\\ud83d\\ude00"}', None, [("a", "😀")]),
        (
            "jsonl",
            '{"id": "a", "t": "T", "b": "B"}\n{"id": "b", "t": "", "b": "B"}',
            ("b", "t"),
            [("a", "B T"), ("b", "B")],
        ),
        ("jsonl", '{"id": "c", "t": "", "b": ""}', ("b", "t"), [("c", "")]),
        ("beir", _BEIR, ("text",), [("1", "x"), ("2", "y"), ("3", "z")]),
    ],
)
def test_corpus_reads_docs(tmp_path, name, content, fields, docs):
    (tmp_path / "c").write_text(content, encoding="utf-8", newline="")
    assert read_docs(tmp_path / "c", name, fields) == docs


@pytest.mark.parametrize("line", ["[" * 100_000, '{"id": ' + "1" * 5000 + ', "contents": ""}'])
def test_corpus_counts_a_line_that_cannot_be_used(tmp_path, line):
    """The lines before and after it are read."""
    good = '{"id": "d1", "contents": "good"}'
    (tmp_path / "c").write_text("\n".join([good, line, good]))
    corpus = corpus_of(tmp_path / "c", "jsonl")
    assert len(docs_of(read_batches(corpus))) == 2
    (found,) = bad_rows(corpus)
    assert found.place == f"{tmp_path}/c at byte {len(good) + 1}"
    assert found.kind == "not-json"


@pytest.mark.parametrize(
    ("name", "content", "fields", "kind", "place"),
    [
        ("tsv", "id,text\n1,one\n", None, "columns", 1),
        ("tsv", "1\tone\n", ("text",), "column-missing", 1),
        ("jsonl", '{"id": "d1", "contents": "good"}', ("body",), "column-missing", None),
    ],
)
def test_corpus_refuses_a_wrong_file(tmp_path, name, content, fields, kind, place):
    (tmp_path / "c").write_text(content)
    with refuses(PreflightError, kind, place):
        list_units(corpus_of(tmp_path / "c", name, fields))


@pytest.mark.parametrize(
    ("content", "given", "remedy"),
    [
        (b"1\tx\n2\ty\n", "jsonl", "corpus.format: tsv"),
        (b'{"id": "1", "contents": "x"}\n', "tsv", "corpus.format: jsonl"),
        (b"PAR1" + bytes(50), "tsv", "corpus.format: parquet"),
        (b"\x83\x00\x42p1\x80", "jsonl", "corpus.format: car"),
        (b"<DOC>\n<DOCNO>1</DOCNO>\n", "jsonl", "corpus.format: trec"),
        (gzip.compress(b"1\tx\n", mtime=0), "tsv", "gzip.*\\.gz"),
        (zstd(b"1\tx\n"), "parquet", "zstd.*\\.zst"),
        (b"PK\3\4", "jsonl", "zip"),
        (b"PK\3\4" + bytes(26) + b"xl/workbook.xml", "csv", "Excel"),
    ],
)
def test_corpus_names_the_format_that_a_file_looks_like(tmp_path, content, given, remedy):
    (tmp_path / "corpus").write_bytes(content)
    with pytest.raises(PreflightError, match=remedy):
        list_units(corpus_of(tmp_path / "corpus", given))


@pytest.mark.parametrize("packed", [False, True])
def test_beir_reads_a_folder_or_its_file(tmp_path, packed):
    file = tmp_path / ("corpus.jsonl.gz" if packed else "corpus.jsonl")
    file.write_bytes(gzip.compress(_BEIR.encode()) if packed else _BEIR.encode())
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "not a doc"}\n')
    assert (
        read_docs(tmp_path, "beir")
        == read_docs(file, "beir")
        == [("1", "T x"), ("2", "y"), ("3", "z")]
    )


def test_beir_refuses_a_folder_without_exactly_one_corpus(tmp_path):
    with pytest.raises(PreflightError, match=r"corpus\.jsonl"):
        list_units(corpus_of(tmp_path, "beir"))
    for name in ("corpus.jsonl", "corpus.jsonl.gz"):
        (tmp_path / name).write_text("")
    with pytest.raises(PreflightError, match=r"corpus\.jsonl\.gz"):
        list_units(corpus_of(tmp_path, "beir"))


@settings(max_examples=50, deadline=None)
@given(
    texts=st.lists(st.text(st.sampled_from("aé€😀 \r\u2028"), max_size=8), min_size=1, max_size=12),
    line_end=st.sampled_from(["\n", "\r\n"]),
    final=st.booleans(),
    mark=st.booleans(),
    unit_bytes=st.integers(1, 60),
    name=st.sampled_from(["tsv", "jsonl"]),
)
def test_units_of_any_size_give_the_docs_of_one(
    tmp_path_factory, texts, line_end, final, mark, unit_bytes, name
):
    docs = [(f"{i}", text.rstrip("\r")) for i, text in enumerate(texts)]
    rows = [{"id": doc_id, "contents": text} for doc_id, text in docs]
    lines = (
        ["\t".join(doc) for doc in docs]
        if name == "tsv"
        else [json.dumps(row, ensure_ascii=False) for row in rows]
    )
    content = ("\ufeff" * mark + line_end.join(lines) + line_end * final).encode()
    path = tmp_path_factory.mktemp("units") / "corpus"
    path.write_bytes(content)
    units = list_units(corpus_of(path, name), unit_bytes)
    batches = [batch for unit in units for batch in read_unit(unit, batch_docs=3)]
    assert docs_of(batches) == docs
    assert [unit.index for unit in units] == list(range(len(units)))
    assert all(len(batch.doc_ids) <= 3 for batch in batches)
    starts = [position for batch in batches for position in batch.positions]
    assert starts == [
        position for batch in read_batches(corpus_of(path, name)) for position in batch.positions
    ]
    assert all(start == 0 or content[start - 1 : start] == b"\n" for start in starts)


def test_units_read_long_lines_and_bad_ones_once(tmp_path):
    long = [b"1\t" + b"x" * (3 << 20), b"3\t" + "é".encode() * (1 << 20)]
    (tmp_path / "c.tsv").write_bytes(
        b"\n".join([long[0], b"bad", b"2\ty", long[1], b"caf\xe9\tz", b"4\t"])
    )
    for unit_bytes in (1 << 20, 64 << 20):
        corpus = corpus_of(tmp_path / "c.tsv", "tsv")
        docs = docs_of(read_batches(corpus, unit_bytes))
        assert [doc_id for doc_id, _ in docs] == ["1", "2", "3", "4"]
        assert len({bad.place for bad in bad_rows(corpus, unit_bytes)}) == 2


@pytest.mark.parametrize("name", FORMATS)
def test_unit_and_batch_can_be_pickled(tmp_path, name):
    unit = CorpusUnit(
        0, f"{tmp_path}/c", FORMATS[name], Hints(fields=("text",), format=name), 0, 10
    )
    assert pickle.loads(pickle.dumps(unit)) == unit
    (tmp_path / "c.tsv").write_text("1\tone\nbad\n")
    batches = read_batches(corpus_of(tmp_path / "c.tsv", "tsv"))
    assert pickle.loads(pickle.dumps(batches)) == batches


def test_corpus_folder_is_read_in_file_order(tmp_path):
    (tmp_path / "b").mkdir()
    lines = {"b/1.tsv": "1\tx\n", "c.txt": "3\tz\n", ".d.tsv": "4\n", "e.md": "5\n"}
    for name, line in lines.items():
        (tmp_path / name).write_text(line)
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(b"2\ty\n"))
    assert read_docs(tmp_path, "tsv") == [("2", "y"), ("1", "x"), ("3", "z")]
    assert read_docs(f"{tmp_path}/*/*.tsv", "tsv") == [("1", "x")]


def test_corpus_path_without_files_is_refused(tmp_path):
    with refuses(PreflightError, "no-file"):
        list_units(corpus_of(tmp_path / "none.tsv", "tsv"))
    with refuses(PreflightError, "no-file"):
        list_units(corpus_of(tmp_path, "tsv"))
    unit = CorpusUnit(0, f"{tmp_path}/gone.tsv", FORMATS["tsv"], Hints(format="tsv"), 0, 10)
    with refuses(DataError, "no-file"):
        list(read_unit(unit))


_LINES = "\ufeff" + "".join(f"d{i}\ttext {i} é\n" for i in range(40_000)) + "bad\nlast\tz"


@each_compression
def test_compressed_corpus_is_one_unit(tmp_path, ending):
    file = tmp_path / f"c.tsv{ending}"
    packed = COMPRESSORS[ending](_LINES.encode())
    file.write_bytes(packed)
    (unit,) = list_units(corpus_of(file, "tsv"), unit_bytes=100)
    batches = list(read_unit(unit))
    assert docs_of(batches) == [*[(f"d{i}", f"text {i} é") for i in range(40_000)], ("last", "z")]
    assert [position for batch in batches for position in batch.positions] == [
        *range(1, 40_001),
        40_002,
    ]
    assert [bad.place for bad in bad_rows(corpus_of(file, "tsv"))] == [f"{file}:40001"]
    file.write_bytes(packed[: -len(packed) // 4])
    with refuses(DataError, "damaged"):
        list(read_unit(unit))


@pytest.mark.parametrize(("name", "kind"), [("c.tsv.gz", "damaged"), ("c.tsv.zip", "packed")])
def test_corpus_not_compressed_as_named_is_refused(tmp_path, name, kind):
    (tmp_path / name).write_text("1\tone\n")
    with refuses(PreflightError, kind, file=name):
        list_units(corpus_of(tmp_path / name, "tsv"))


def test_corpus_in_a_remote_folder_is_read():
    files = fsspec.filesystem("memory")
    files.pipe("/corpora/a.jsonl", b'{"id": "1", "contents": "x"}\n{"id": "2", "contents": "y"}\n')
    files.pipe("/corpora/b.jsonl.gz", gzip.compress(b'{"id": "3", "contents": "z"}\n'))
    corpus = corpus_of("memory://corpora", "jsonl")
    for unit_bytes in (7, 64 << 20):
        assert docs_of(read_batches(corpus, unit_bytes)) == [("1", "x"), ("2", "y"), ("3", "z")]
    assert list_units(corpus)[0].place(29).startswith("memory://")
    files.rm("/corpora", recursive=True)
