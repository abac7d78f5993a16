"""Files that are small, and large when they are decoded, are too large and not damaged."""

from pathlib import Path
from typing import Any

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
from tests.support.refusals import refuses
from tests.support.tiers import slow_but

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


def _write(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, compression="zstd", write_statistics=False, **options)
    assert path.stat().st_size < 1 << 20
    return path


def _read_pairs(url: str) -> None:
    (file,) = find_pairs([url])
    read_pairs(RowRange(digest_file(file.url), 0, ROWS), file.kind, file.id_type)


@pytest.mark.parametrize(
    ("read", "error", "columns", "options"),
    slow_but(
        2,
        [
            (_corpus, DataError, {"id": _ids(), "text": LONG}, {"store_schema": True}),
            (_corpus, DataError, {"id": _ids(), "text": LONG}, {"store_schema": False}),
            (
                read_run,
                PreflightError,
                {"query_id": _ids(), "doc_id": LONG, "score": [1.0] * ROWS},
                {},
            ),
            (
                lambda url: read_topics(TopicsConfig(path=url)),
                PreflightError,
                {"query_id": _ids(), "text": LONG},
                {},
            ),
            (_read_pairs, DataError, {"id": _ids(), "query": ["q"] * ROWS, "doc": LONG}, {}),
        ],
    ),
    ids=["dictionary", "strings", "run", "topics", "pairs"],
)
def test_one_long_text_many_times_is_too_large(tmp_path, read, error, columns, options):
    columns = {name: _repeated() if each is LONG else each for name, each in columns.items()}
    path = _write(tmp_path / "t.parquet", columns, **options)
    with refuses(error, "too-large", file=path):
        read(str(path))


def test_corpus_of_many_long_texts_is_too_large(tmp_path):
    columns = {"id": _ids(), "text": [LONG] * ROWS}
    path = _write(tmp_path / "c.parquet", columns, use_dictionary=False)
    with refuses(DataError, "too-large"):
        _corpus(str(path))


@pytest.mark.parametrize("size_bytes", [1, 1 << 20])
def test_corpus_of_one_text_many_times_is_read_in_pieces(tmp_path, size_bytes):
    rows = (200 << 20) // max(size_bytes, 1 << 17)
    columns = {"id": _ids(rows), "text": _repeated("x" * size_bytes, rows)}
    path = _write(tmp_path / "c.parquet", columns, store_schema=False)
    assert _corpus(str(path)) == _ids(rows)


@pytest.mark.parametrize("rows", [40, 80])
def test_corpus_whose_texts_begin_alike_is_read_in_pieces(tmp_path, rows):
    text = "x" * (4 << 20)
    columns = {"id": _ids(rows), "text": [text + str(row) for row in range(rows)]}
    encoding = {"text": "DELTA_BYTE_ARRAY"}
    path = _write(tmp_path / "c.parquet", columns, use_dictionary=False, column_encoding=encoding)
    if rows == 40:
        assert _corpus(str(path)) == _ids(rows)
        return
    with refuses(DataError, "too-large"):
        _corpus(str(path))


def test_arrow_file_of_one_long_id_many_times_is_too_large(tmp_path):
    path = tmp_path / "t.arrow"
    table = pa.table({"query_id": _ids(), "doc_id": _repeated(), "score": [1.0] * ROWS})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(path, table.schema, options=options) as writer:
        writer.write_table(table)
    with refuses(PreflightError, "too-large", file=path):
        read_run(str(path))


@pytest.mark.slow
def test_line_that_is_huge_when_it_is_unpacked_is_too_large(tmp_path):
    path = tmp_path / "c.tsv.zst"
    path.write_bytes(pa.compress(b"a\t" + b"x" * (260 << 20), "zstd", asbytes=True))
    with refuses(BeamrankError, "too-large", file=path):
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
