"""A run as a folder of parts, text or Parquet: read like one file; what is no part is not read."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.errors import PreflightError
from beamrank.formats.runs import read_run
from tests.support.refusals import refuses

ROWS = [[("q1", "a", 1, 3.0), ("q1", "b", 2, 1.0)], [], [("q2", "a", 1, 2.0), ("q0", "c", 1, 2.0)]]


def _text(rows) -> bytes:
    return "".join(
        f"{query_id} Q0 {doc_id} {rank} {score} t\n" for query_id, doc_id, rank, score in rows
    ).encode()


def _table(rows, **names: str) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * 4
    kinds = [pa.string(), pa.string(), pa.int32(), pa.float32()]
    found = [names.get(name, name) for name in ("query_id", "doc_id", "rank", "score")]
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], found
    )


def _write(folder: Path, kind: str) -> str:
    folder.mkdir()
    for shard, rows in enumerate(ROWS):
        path = folder / f"part-{shard:05d}.{kind}"
        if kind == "parquet":
            pq.write_table(_table(rows), path)
        else:
            path.write_bytes(gzip.compress(_text(rows)) if kind == "trec.gz" else _text(rows))
    return str(folder)


@pytest.mark.parametrize("kind", ["trec", "trec.gz", "parquet"])
def test_folder_of_parts_reads_like_one_file(tmp_path, kind):
    folder = _write(tmp_path / "parts", kind)
    (tmp_path / "one.trec").write_bytes(b"".join(map(_text, ROWS)))
    for name in ("_SUCCESS", "_metadata", ".part-00000.trec.crc", "._part-00000.parquet"):
        (tmp_path / "parts" / name).write_bytes(b"no data")
    one = read_run(str(tmp_path / "one.trec"))
    for path in (folder, f"{folder}/part-*.{kind}"):
        run = read_run(path)
        assert (run.order, run.notes) == (one.order, one.notes)
        assert {query_id: each.tolist() for query_id, each in run.scores.items()} == {
            "q1": [3, 1],
            "q2": [2],
            "q0": [2],
        }


def test_problem_names_the_file_and_the_line(tmp_path):
    folder = _write(tmp_path / "parts", "trec")
    (tmp_path / "parts/part-00001.trec").write_bytes(
        b"q3 Q0 a one 1 t\n# a comment\nq3 Q0\rb 1 1 t\n"
    )
    with pytest.raises(PreflightError, match=r"part-00001\.trec .*\n  line 1: .*\n  line 3: "):
        read_run(folder)
    (tmp_path / "parts/part-00001.trec").write_bytes(b"\nq1 Q0 b 3 1 t\n")
    with refuses(PreflightError, "doc-twice", 2, "00001.trec"):
        read_run(folder)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("parquet", {"query_id": "qid"}),
        ("parquet", {"rank": "place"}),
        ("trec", b"q2\ta\t1\n"),
    ],
)
def test_file_with_other_columns_than_the_first_is_refused(tmp_path, kind, content):
    folder = _write(tmp_path / "parts", kind)
    path = tmp_path / f"parts/part-00002.{kind}"
    if isinstance(content, dict):
        pq.write_table(_table(ROWS[2], **content), path)
    else:
        path.write_bytes(content)
    with pytest.raises(PreflightError, match=r"part-00002\..*part-00000\."):
        read_run(folder)


def test_folder_without_rows_is_refused(tmp_path):
    (tmp_path / "_SUCCESS").touch()
    with refuses(PreflightError, "no-file"):
        read_run(str(tmp_path))
    for shard in (0, 1):
        pq.write_table(_table([]), tmp_path / f"part-0000{shard}.parquet")
    with refuses(PreflightError, "no-rows"):
        read_run(str(tmp_path))


def test_many_small_parts_are_read(tmp_path):
    for shard in range(300):
        (tmp_path / f"part-{shard:05d}.trec").write_bytes(
            _text([(f"q{shard}", "a", 1, 1.0)] if shard % 2 else [])
        )
    assert len(read_run(str(tmp_path)).order) == 150


def test_row_group_without_rows_is_skipped(tmp_path):
    path = str(tmp_path / "run.parquet")
    with pq.ParquetWriter(path, _table([]).schema) as writer:
        for rows in ROWS:
            writer.write_table(_table(rows))
    assert read_run(path).order == {"q1": ["a", "b"], "q2": ["a"], "q0": ["c"]}
