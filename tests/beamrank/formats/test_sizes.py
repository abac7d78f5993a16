"""Files that are small, and large when they are decoded, are too large and not damaged."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.errors import BeamrankError, DataError, PreflightError
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.runs import read_run
from beamrank.formats.schemas import DOCS, Hints, bind
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.storage.digested import RowRange, digest_file
from contrib.pairs.tables import find_pairs, read_pairs

LONG, ROWS = "x" * (64 << 20), 5


def _repeated(text: str = LONG, rows: int = ROWS) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))


def _ids(rows: int = ROWS) -> list[str]:
    return [f"d{row}" for row in range(rows)]


def _corpus(url: str) -> list[str]:
    return [
        doc_id
        for unit in list_units(CorpusConfig(path=url))
        for batch in read_unit(unit)
        for doc_id in batch.doc_ids
    ]


@pytest.mark.parametrize("as_dictionary", [True, False])
def test_corpus_of_one_long_text_many_times_is_too_large(tmp_path, as_dictionary):
    path = tmp_path / "c.parquet"
    table = pa.table({"id": _ids(), "text": _repeated()})
    pq.write_table(
        table, path, compression="zstd", write_statistics=False, store_schema=as_dictionary
    )
    assert path.stat().st_size < 1 << 20
    with pytest.raises(DataError, match=r"c\.parquet: part 0 .*too large"):
        _corpus(str(path))


def test_corpus_of_many_long_texts_is_too_large(tmp_path):
    path = tmp_path / "c.parquet"
    table = pa.table({"id": _ids(), "text": [LONG] * ROWS})
    pq.write_table(table, path, compression="zstd", write_statistics=False, use_dictionary=False)
    with pytest.raises(DataError, match="too large"):
        _corpus(str(path))


@pytest.mark.parametrize("size_bytes", [1, 1 << 20])
def test_corpus_of_one_text_many_times_is_read_in_pieces(tmp_path, size_bytes):
    path = tmp_path / "c.parquet"
    rows = (200 << 20) // max(size_bytes, 1 << 17)
    table = pa.table({"id": _ids(rows), "text": _repeated("x" * size_bytes, rows)})
    pq.write_table(table, path, compression="zstd", write_statistics=False, store_schema=False)
    assert _corpus(str(path)) == _ids(rows)


@pytest.mark.parametrize("rows", [40, 80])
def test_corpus_whose_texts_begin_alike_is_read_in_pieces(tmp_path, rows):
    path, text = tmp_path / "c.parquet", "x" * (4 << 20)
    table = pa.table({"id": _ids(rows), "text": [text + str(row) for row in range(rows)]})
    encoding = {"text": "DELTA_BYTE_ARRAY"}
    pq.write_table(
        table,
        path,
        compression="zstd",
        write_statistics=False,
        use_dictionary=False,
        column_encoding=encoding,
    )
    assert path.stat().st_size < 1 << 20
    if rows == 40:
        assert _corpus(str(path)) == _ids(rows)
        return
    with pytest.raises(DataError, match="too large"):
        _corpus(str(path))


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_table_of_one_long_id_many_times_is_too_large(tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    numbers = {"score": [1.0] * ROWS}
    table = pa.table({"query_id": _ids(), "doc_id": _repeated(), **numbers})
    if ending == "parquet":
        pq.write_table(table, path, compression="zstd", write_statistics=False)
    else:
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(path, table.schema, options=options) as writer:
            writer.write_table(table)
    with pytest.raises(PreflightError, match=rf"t\.{ending}.*too large"):
        read_run(str(path))


def test_topics_of_one_long_text_many_times_are_too_large(tmp_path):
    path = tmp_path / "t.parquet"
    table = pa.table({"query_id": _ids(), "text": _repeated()})
    pq.write_table(table, path, compression="zstd", write_statistics=False)
    with pytest.raises(PreflightError, match="too large"):
        read_topics(TopicsConfig(path=str(path)))


def test_pairs_of_one_long_text_many_times_are_too_large(tmp_path):
    path = tmp_path / "p.parquet"
    table = pa.table({"id": _ids(), "query": ["q"] * ROWS, "doc": _repeated()})
    pq.write_table(table, path, compression="zstd", write_statistics=False)
    (file,) = find_pairs([str(path)])
    with pytest.raises(DataError, match="too large"):
        read_pairs(RowRange(digest_file(file.url), 0, ROWS), file.kind, file.id_type)


def test_line_that_is_huge_when_it_is_unpacked_is_too_large(tmp_path):
    path = tmp_path / "c.tsv.zst"
    path.write_bytes(pa.compress(b"a\t" + b"x" * (260 << 20), "zstd", asbytes=True))
    with pytest.raises(BeamrankError, match=r"c\.tsv\.zst: .*too large"):
        _corpus(str(path))


class _Name(str):
    """A name that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        _Name.compared += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


def test_columns_are_compared_about_once_each():
    names = [_Name(f"c{number}") for number in range(1000)]
    hints = Hints(columns={"doc_id": "c7"}, fields=("c8", "c9"))
    assert bind(DOCS, names, hints) == {"doc_id": (7,), "text": (8, 9)}
    assert _Name.compared < 10 * len(names)
    with pytest.raises(PreflightError, match="`c7`"):
        bind(DOCS, [*names, _Name("c7")], hints)
