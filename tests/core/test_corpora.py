"""The line by line corpora: units, bad rows, compressed and remote files, folders."""

import bz2
import gzip
import json
import lzma
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank import errors
from beamrank.formats.config import CorpusConfig
from beamrank.formats.corpora import CorpusUnit, DocBatch, list_units, place, read_unit


def read_batches(corpus: CorpusConfig, unit_bytes: int = 64 << 20) -> list[DocBatch]:
    return [batch for unit in list_units(corpus, unit_bytes) for batch in read_unit(unit)]


def docs_of(batches: list[DocBatch]) -> list[tuple[str, str]]:
    return [doc for batch in batches for doc in zip(batch.doc_ids, batch.texts, strict=True)]


def read_docs(path: Path | str, corpus_format: Any, fields: tuple[str, ...] | None = None) -> list[tuple[str, str]]:
    batches = read_batches(CorpusConfig(path=str(path), format=corpus_format, fields=fields))
    assert [bad for batch in batches for bad in batch.bad] == []
    return docs_of(batches)


def bad_reason(
    path: Path, corpus_format: Any, good: str, bad: str | bytes, fields: tuple[str, ...] | None = None
) -> str:
    """The reason given for one bad line between two good ones, which must be read all the same."""
    line = bad.encode() if isinstance(bad, str) else bad
    path.write_bytes(good.encode() + b"\n" + line + b"\n" + good.encode() + b"\n")
    batches = read_batches(CorpusConfig(path=str(path), format=corpus_format, fields=fields))
    assert len(docs_of(batches)) == 2
    (found,) = [bad for batch in batches for bad in batch.bad]
    assert found.place == f"{path} at byte {len(good.encode()) + 1}"
    return found.reason


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue())


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}


class TestTsv:
    def test_reads_ids_texts_and_byte_positions(self, tmp_path: Path) -> None:
        content = "7\tdépôt\n8\tsecond\r\nD-9\t\n10\tlast".encode()
        (tmp_path / "c.tsv").write_bytes(content)
        (unit,) = list_units(CorpusConfig(path=str(tmp_path / "c.tsv"), format="tsv"))
        (batch,) = read_unit(unit)
        assert batch.doc_ids == ["7", "8", "D-9", "10"]
        assert batch.texts == ["dépôt", "second", "", "last"]
        assert [content[position:].split(b"\t")[0] for position in batch.positions] == [b"7", b"8", b"D-9", b"10"]
        assert batch.bad == []
        assert place(unit, 10) == f"{tmp_path}/c.tsv at byte 10"

    def test_only_newlines_end_a_line(self, tmp_path: Path) -> None:
        text = "a\x0bb\x0c\x1c\x85c\u2028d\re"
        (tmp_path / "c.tsv").write_text(f"1\t{text}\n2\tx\n", encoding="utf-8", newline="")
        assert read_docs(tmp_path / "c.tsv", "tsv") == [("1", text), ("2", "x")]

    def test_drops_a_byte_order_mark_at_the_beginning_only(self, tmp_path: Path) -> None:
        (tmp_path / "c.tsv").write_bytes("\ufeff1\tone\n2\t\ufefftwo\n".encode())
        assert read_docs(tmp_path / "c.tsv", "tsv") == [("1", "one"), ("2", "\ufefftwo")]

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("only text", "has 1 column where id<TAB>text, exactly 2, are expected"),
            ("3\ta\tb", "has 3 columns"),
            ("", "is empty"),
            ("\ttext", "empty id"),
            ("a b\ttext", "the id 'a b', which holds white space (U+0020)"),
            ("a\u00a0b\ttext", "white space (U+00A0)"),
            ("a\u0085b\ttext", "white space (U+0085)"),
            ("a\0b\ttext", "a control character (U+0000)"),
            ("a\x9bb\ttext", "a control character (U+009B)"),
            ("\ufeffa\ttext", "a byte order mark (U+FEFF)"),
            (
                "2\tx\r3\ty",
                "has 3 columns where id<TAB>text, exactly 2, are expected; it holds a carriage return (CR)",
            ),
            (b"3\tcaf\xe9", "not valid UTF-8"),
        ],
    )
    def test_counts_a_line_that_it_cannot_use(self, tmp_path: Path, line: str | bytes, reason: str) -> None:
        assert reason in bad_reason(tmp_path / "c.tsv", "tsv", "1\tgood", line)

    def test_refuses_a_file_of_another_format(self, tmp_path: Path) -> None:
        (tmp_path / "c.tsv").write_text("id,text\n1,one\n")
        with pytest.raises(errors.PreflightError, match=r"none of the first 2 lines .*c.tsv at byte 0.*1 column"):
            list_units(CorpusConfig(path=str(tmp_path / "c.tsv"), format="tsv"))

    def test_refuses_fields(self, tmp_path: Path) -> None:
        (tmp_path / "c.tsv").write_text("1\tone\n")
        with pytest.raises(errors.PreflightError, match="leave `fields` out"):
            list_units(CorpusConfig(path=str(tmp_path / "c.tsv"), format="tsv", fields=("text",)))


class TestJsonl:
    GOOD = '{"id": "d1", "contents": "good"}'

    def test_reads_ids_and_contents(self, tmp_path: Path) -> None:
        rows = [{"id": "a", "contents": "x\ny"}, {"contents": "", "id": 12}, {"id": "é", "contents": "z", "more": 1}]
        (tmp_path / "c.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
        assert read_docs(tmp_path / "c.jsonl", "jsonl") == [("a", "x\ny"), ("12", ""), ("é", "z")]

    def test_joins_fields_by_one_space_without_empty_ones(self, tmp_path: Path) -> None:
        rows = [{"id": "a", "t": "T", "b": "B"}, {"id": "b", "t": "", "b": "B"}, {"id": "c", "t": "", "b": ""}]
        (tmp_path / "c.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
        assert read_docs(tmp_path / "c.jsonl", "jsonl", ("b", "t")) == [("a", "B T"), ("b", "B"), ("c", "")]

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("", "is empty"),
            ("{'id': 1}", "is no JSON: Expecting property name enclosed in double quotes (character 1)"),
            ("[" * 100_000, "is no JSON that can be read"),
            ('{"id": ' + "1" * 5000 + ', "contents": ""}', "is no JSON that can be read"),
            ('["d2", "text"]', "is JSON, but a list, not an object"),
            ('{"docid": "d2", "contents": ""}', "has no field `id`; it has: docid, contents"),
            ('{"id": "d2", "text": ""}', "has no field `contents`; it has: id, text"),
            ('{"id": "d2", "contents": null}', "has a field `contents` that is null, not a string"),
            ('{"id": "d2", "contents": ["x"]}', "has a field `contents` that is a list, not a string"),
            ('{"id": true, "contents": ""}', "has an id that is a boolean, not a string"),
            ('{"id": 1.5, "contents": ""}', "has an id that is a number, not a string"),
            ('{"id": null, "contents": ""}', "has an id that is null"),
            ('{"id": "", "contents": ""}', "has an empty id"),
            ('{"id": "a\\tb", "contents": ""}', "white space (U+0009)"),
            ('{"id": "a\\u0000", "contents": ""}', "a control character (U+0000)"),
            (
                '{"id": "a", "contents": ""}\r{"id": "b", "contents": ""}',
                "Extra data (character 28); it holds a carriage return (CR)",
            ),
            ('{"id": "d2", "contents": "\\ud83d"}', "surrogate"),
            ('{"id": "\\uDE00", "contents": ""}', "surrogate"),
            (b'{"id": "d2", "contents": "\xff"}', "not valid UTF-8"),
        ],
    )
    def test_counts_a_line_that_it_cannot_use(self, tmp_path: Path, line: str | bytes, reason: str) -> None:
        assert reason in bad_reason(tmp_path / "c.jsonl", "jsonl", self.GOOD, line)

    def test_a_surrogate_pair_is_one_character(self, tmp_path: Path) -> None:
        (tmp_path / "c.jsonl").write_text('{"id": "a", "contents": "\\ud83d\\ude00"}')
        assert read_docs(tmp_path / "c.jsonl", "jsonl") == [("a", "😀")]

    def test_refuses_fields_that_are_not_there(self, tmp_path: Path) -> None:
        (tmp_path / "c.jsonl").write_text(self.GOOD + "\n")
        with pytest.raises(errors.PreflightError, match=r"has no field `body`; it has: id, contents"):
            list_units(CorpusConfig(path=str(tmp_path / "c.jsonl"), format="jsonl", fields=("body",)))


class TestBeir:
    ROWS = (
        '{"_id": "1", "title": "T", "text": "x"}\n{"_id": "2", "title": "", "text": "y"}\n{"_id": "3", "text": "z"}\n'
    )

    @pytest.mark.parametrize("packed", [False, True])
    def test_reads_a_folder_or_its_file(self, tmp_path: Path, packed: bool) -> None:
        file = tmp_path / ("corpus.jsonl.gz" if packed else "corpus.jsonl")
        file.write_bytes(gzip.compress(self.ROWS.encode()) if packed else self.ROWS.encode())
        (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "no doc"}\n')
        docs = [("1", "T x"), ("2", "y"), ("3", "z")]
        assert read_docs(tmp_path, "beir") == docs
        assert read_docs(file, "beir") == docs

    def test_reads_the_fields_that_are_named(self, tmp_path: Path) -> None:
        (tmp_path / "corpus.jsonl").write_text(self.ROWS)
        assert read_docs(tmp_path, "beir", ("text",)) == [("1", "x"), ("2", "y"), ("3", "z")]
        (batch,) = read_batches(CorpusConfig(path=str(tmp_path), format="beir", fields=("title",)))
        assert [bad.reason for bad in batch.bad] == ["the row has no field `title`; it has: _id, text"]

    def test_refuses_a_folder_without_a_corpus_or_with_two(self, tmp_path: Path) -> None:
        with pytest.raises(errors.PreflightError, match=r"holds no corpus\.jsonl"):
            list_units(CorpusConfig(path=str(tmp_path), format="beir"))
        for name in ("corpus.jsonl", "corpus.jsonl.gz"):
            (tmp_path / name).write_text("")
        with pytest.raises(errors.PreflightError, match=r"holds corpus\.jsonl and corpus\.jsonl\.gz"):
            list_units(CorpusConfig(path=str(tmp_path), format="beir"))


class TestOtherFormats:
    @pytest.mark.parametrize(
        ("content", "given", "remedy"),
        [
            (b"1\tx\n2\ty\n", "jsonl", "a tab between them: set `corpus.format: tsv`"),
            (b'{"_id": "1", "title": "T", "text": "x"}\n', "jsonl", "BEIR's JSONL (`_id`): set `corpus.format: beir`"),
            (b'{"id": "1", "contents": "x"}\n', "beir", "JSONL: set `corpus.format: jsonl`"),
            (b'{"id": "1", "contents": "x"}\n', "tsv", "set `corpus.format: jsonl`"),
            (b'{"id": "1", "contents": "x"}\n', "car", "set `corpus.format: jsonl`"),
            (b"PAR1" + bytes(50), "tsv", "Parquet: set `corpus.format: parquet`"),
            (b"PAR1" + bytes(50), "car", "Parquet: set `corpus.format: parquet`"),
            (b"\x83\x00\x42p1\x80", "jsonl", "TREC CAR's CBOR: set `corpus.format: car`"),
            (b"\x83\x63CAR\x81\x02", "parquet", "TREC CAR's CBOR: set `corpus.format: car`"),
            (
                b"<DOC>\n<DOCNO> 1 </DOCNO>\n</DOC>\n",
                "jsonl",
                "TREC's (it begins with <top> or <DOC>): `corpus.format` can",
            ),
            (gzip.compress(b"1\tx\n", mtime=0), "tsv", "compressed with gzip: give it a name that ends in .gz"),
            (zstd(b"1\tx\n"), "parquet", "compressed with zstd: give it a name that ends in .zst"),
            (b"PK\3\4", "jsonl", "a zip archive: unpack it"),
        ],
    )
    def test_the_format_that_a_file_looks_like_is_named(
        self, tmp_path: Path, content: bytes, given: Any, remedy: str
    ) -> None:
        (tmp_path / "corpus").write_bytes(content)
        with pytest.raises(errors.PreflightError, match=re.escape(remedy)):
            list_units(CorpusConfig(path=str(tmp_path / "corpus"), format=given))

    def test_a_beir_folder_names_its_format(self, tmp_path: Path) -> None:
        (tmp_path / "corpus.jsonl.gz").write_bytes(b"")
        with pytest.raises(errors.PreflightError, match=r"set `corpus\.format: beir` for the corpus\.jsonl in it"):
            list_units(CorpusConfig(path=str(tmp_path), format="parquet"))

    def test_no_format_is_named_for_a_file_of_the_given_one(self, tmp_path: Path) -> None:
        (tmp_path / "c.jsonl").write_text('{"id": "1", "text": "x"}\n')
        with pytest.raises(
            errors.PreflightError, match=r"it has: id, text\. Check `format` and `fields` of the corpus$"
        ):
            list_units(CorpusConfig(path=str(tmp_path / "c.jsonl"), format="jsonl"))


class TestUnits:
    @settings(max_examples=150, deadline=None)
    @given(
        texts=st.lists(st.text(st.sampled_from("aé€😀 \r\u2028"), max_size=8), min_size=1, max_size=12),
        line_end=st.sampled_from(["\n", "\r\n"]),
        final=st.booleans(),
        mark=st.booleans(),
        unit_bytes=st.integers(1, 60),
        corpus_format=st.sampled_from(["tsv", "jsonl"]),
    )
    def test_units_of_any_size_give_the_docs_of_one(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        texts: list[str],
        line_end: str,
        final: bool,
        mark: bool,
        unit_bytes: int,
        corpus_format: Any,
    ) -> None:
        texts = [text.rstrip("\r") for text in texts]
        lines = [
            f"{i}\t{text}"
            if corpus_format == "tsv"
            else json.dumps({"id": f"{i}", "contents": text}, ensure_ascii=False)
            for i, text in enumerate(texts)
        ]
        content = ("\ufeff" * mark + line_end.join(lines) + line_end * final).encode()
        path = tmp_path_factory.mktemp("units") / "corpus"
        path.write_bytes(content)
        corpus = CorpusConfig(path=str(path), format=corpus_format)
        units = list_units(corpus, unit_bytes)
        batches = [batch for unit in units for batch in read_unit(unit, batch_docs=3)]
        assert docs_of(batches) == [(f"{i}", text) for i, text in enumerate(texts)]
        assert [unit.index for unit in units] == list(range(len(units)))
        assert all(len(batch.doc_ids) <= 3 and not batch.bad for batch in batches)
        starts = [position for batch in batches for position in batch.positions]
        assert starts == [position for batch in read_batches(corpus) for position in batch.positions]
        assert all(start == 0 or content[start - 1 : start] == b"\n" for start in starts)

    def test_lines_longer_than_a_block_and_bad_ones_stand_once(self, tmp_path: Path) -> None:
        lines = [
            b"1\t" + b"x" * (3 << 20),
            b"bad",
            b"2\ty",
            b"3\t" + "é".encode() * (1 << 20),
            b"caf\xe9\tz",
            b"4\t",
        ]
        (tmp_path / "c.tsv").write_bytes(b"\n".join(lines))
        for unit_bytes in (1 << 20, 64 << 20):
            batches = read_batches(CorpusConfig(path=str(tmp_path / "c.tsv"), format="tsv"), unit_bytes)
            assert [doc_id for doc_id, _ in docs_of(batches)] == ["1", "2", "3", "4"]
            assert len({bad.place for batch in batches for bad in batch.bad}) == 2

    def test_a_unit_and_a_batch_can_be_pickled(self, tmp_path: Path) -> None:
        (tmp_path / "c.tsv").write_text("1\tone\nbad\n")
        (unit,) = list_units(CorpusConfig(path=str(tmp_path / "c.tsv"), format="tsv"))
        assert pickle.loads(pickle.dumps(unit)) == unit == CorpusUnit(0, f"{tmp_path}/c.tsv", "tsv", None, 0, 10)
        (batch,) = read_unit(unit)
        assert pickle.loads(pickle.dumps(batch)) == batch

    def test_a_folder_is_read_in_the_order_of_its_files(self, tmp_path: Path) -> None:
        (tmp_path / "b").mkdir()
        for name, line in [
            ("b/1.tsv", "1\tx\n"),
            ("a.tsv.gz", ""),
            ("c.txt", "3\tz\n"),
            (".d.tsv", "4\n"),
            ("e.md", "5\n"),
        ]:
            (tmp_path / name).write_text(line)
        (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(b"2\ty\n"))
        assert read_docs(tmp_path, "tsv") == [("2", "y"), ("1", "x"), ("3", "z")]
        assert read_docs(f"{tmp_path}/*/*.tsv", "tsv") == [("1", "x")]

    def test_refuses_a_path_without_docs(self, tmp_path: Path) -> None:
        with pytest.raises(errors.PreflightError, match="does not exist"):
            list_units(CorpusConfig(path=str(tmp_path / "none.tsv"), format="tsv"))
        with pytest.raises(errors.PreflightError, match=r"holds no files named \*\.tsv, \*\.txt"):
            list_units(CorpusConfig(path=str(tmp_path), format="tsv"))
        (tmp_path / "c.tsv").write_text("")
        with pytest.raises(errors.PreflightError, match="holds no docs"):
            list_units(CorpusConfig(path=str(tmp_path / "c.tsv"), format="tsv"))

    def test_a_file_that_went_away_is_an_error_with_its_name(self, tmp_path: Path) -> None:
        with pytest.raises(errors.DataError, match=r"cannot read .*No such file or directory: '.*gone\.tsv'$"):
            list(read_unit(CorpusUnit(0, f"{tmp_path}/gone.tsv", "tsv", None, 0, 10)))


class TestCompressed:
    LINES = "\ufeff" + "".join(f"d{i}\ttext {i} é\n" for i in range(40_000)) + "bad\nlast\tz"

    @pytest.mark.parametrize("ending", COMPRESSORS)
    def test_reads_a_compressed_file_whole(self, tmp_path: Path, ending: str) -> None:
        file = tmp_path / f"c.tsv{ending}"
        file.write_bytes(COMPRESSORS[ending](self.LINES.encode()))
        (unit,) = list_units(CorpusConfig(path=str(file), format="tsv"), unit_bytes=100)
        assert (unit.start, unit.end) == (0, 0)
        batches = list(read_unit(unit))
        assert docs_of(batches) == [*[(f"d{i}", f"text {i} é") for i in range(40_000)], ("last", "z")]
        assert [position for batch in batches for position in batch.positions] == [*range(40_000), 40_001]
        assert [bad.place for batch in batches for bad in batch.bad] == [f"{file}:40001"]

    @pytest.mark.parametrize("ending", COMPRESSORS)
    def test_a_file_that_was_cut_short_is_an_error(self, tmp_path: Path, ending: str) -> None:
        packed = COMPRESSORS[ending](self.LINES.encode())
        (tmp_path / f"c.tsv{ending}").write_bytes(packed[: -len(packed) // 4])
        unit = CorpusUnit(0, f"{tmp_path}/c.tsv{ending}", "tsv", None, 0, 0)
        with pytest.raises(errors.DataError, match="cut short"):
            list(read_unit(unit))

    def test_a_file_that_is_not_compressed_is_refused_before_work(self, tmp_path: Path) -> None:
        (tmp_path / "c.tsv.gz").write_text("1\tone\n")
        with pytest.raises(errors.PreflightError, match=r"cannot read .*c\.tsv\.gz"):
            list_units(CorpusConfig(path=str(tmp_path / "c.tsv.gz"), format="tsv"))

    def test_an_archive_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "c.tsv.zip").write_bytes(b"PK")
        with pytest.raises(errors.PreflightError, match="unpack it"):
            list_units(CorpusConfig(path=str(tmp_path / "c.tsv.zip"), format="tsv"))


class TestRemote:
    @pytest.fixture
    def folder(self) -> Iterator[str]:
        files = fsspec.filesystem("memory")
        files.pipe("/corpora/a.jsonl", b'{"id": "1", "contents": "x"}\n{"id": "2", "contents": "y"}\n')
        files.pipe("/corpora/b.jsonl.gz", gzip.compress(b'{"id": "3", "contents": "z"}\n'))
        yield "memory://corpora"
        files.rm("/corpora", recursive=True)

    def test_reads_a_folder_in_a_store(self, folder: str) -> None:
        corpus = CorpusConfig(path=folder, format="jsonl")
        for unit_bytes in (7, 64 << 20):
            assert docs_of(read_batches(corpus, unit_bytes)) == [("1", "x"), ("2", "y"), ("3", "z")]
        first = list_units(corpus)[0]
        assert place(first, 29).startswith("memory://")
