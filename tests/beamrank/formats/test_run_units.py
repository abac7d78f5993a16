"""A given run is read in units: a shard gets the same rows in the same order, whatever its form and
its files are.
"""

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from beamrank.errors import DataError, PreflightError
from beamrank.formats.decode import lines as decode_lines
from beamrank.formats.decode.base import unit_ranges
from beamrank.formats.rejects import Rejects
from beamrank.formats.run_order import Ties
from beamrank.formats.run_units import (
    RunReader,
    digest_run,
    open_run,
    read_units,
    run_bytes,
    write_units,
)
from beamrank.formats.runs import read_run, run_files
from beamrank.formats.schemas import NO_HINTS, Hints
from beamrank.storage.row_files import open_rows
from tests.support.given_runs import read_given
from tests.support.refusals import refuses
from tests.support.tiers import slow_but

# (query_id, doc_id, rank, score), the rows of queries apart; scores tie, ranks disagree.
Row = tuple[str, str, int, float]
ROWS: list[Row] = [
    ("q1", "a", 1, 2.5),
    ("q2", "x", 1, 0.25),
    ("q1", "c", 3, 2.5),
    ("q9", "s", 1, 1.0),
    ("q1", "b", 2, 2.5),
    ("q1", "é", 4, 9.0),
    ("q2", "y", 2, 0.125),
    ("q1", "d", 5, -1.0),
]


def _text(line: str, header: str = "") -> Callable[[Path, Sequence[Row]], None]:
    def write(path: Path, rows: Sequence[Row]) -> None:
        text = (header + "".join(line.format(*row) + "\n" for row in rows)).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)

    return write


def _table(path: Path, rows: Sequence[Row]) -> None:
    names = ("qid", "docno", "position", "value")
    table = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=2)
    else:
        feather.write_feather(table, path, chunksize=2)


_NAMES = {"rank": "position", "score": "value"}
# The form of a file by its name: how it is written, and the names of its columns.
WRITTEN: dict[str, tuple[Callable[[Path, Sequence[Row]], None], dict[str, str]]] = {
    "run.trec": (_text("{0} Q0 {1} {2} {3} t"), {}),
    "spaces.trec": (_text(" {0}  Q0\t{1} {2}   {3} t "), {}),
    "run.trec.gz": (_text("{0} Q0 {1} {2} {3} t"), {}),
    "named.tsv": (_text("{0} {1} {2} {3}", "qid docno rank score\n"), {}),
    "run.csv": (_text('{0},"{1}",{2},{3}', "qid,docno,rank,score\n"), {}),
    "run.jsonl": (_text('{{"query_id": "{0}", "doc_id": "{1}", "rank": {2}, "score": {3}}}'), {}),
    "run.parquet": (_table, _NAMES),
    "run.feather": (_table, _NAMES),
}


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("ties", slow_but(1, ["rank", "doc_id"]))
def test_files_and_units_do_not_matter(tmp_path: Path, name: str, ties: Ties) -> None:
    write, columns = WRITTEN[name]
    (tmp_path / "parts").mkdir()
    write(tmp_path / name, ROWS)
    for number, start in enumerate((0, 3, 4)):
        write(tmp_path / "parts" / f"{number}-{name}", ROWS[start : (3, 4, len(ROWS))[number]])
    order = list("éabcd" if ties == "rank" else "écbad")
    for path in (tmp_path / name, tmp_path / "parts", f"{tmp_path}/parts/*{name}"):
        for unit_bytes in (1 << 20, 7):
            found = read_given(path, ties, unit_bytes, columns=columns)
            assert found.order == {"q1": order, "q2": ["x", "y"], "q9": ["s"]}
            assert found.scores == {
                "q1": [9.0, 2.5, 2.5, 2.5, -1.0],
                "q2": [0.25, 0.125],
                "q9": [1.0],
            }
            assert found.counts == {
                "tied_scores": 2,
                "rank_disagreements": 1 if ties == "rank" else 3,
            }
        assert (found.units > 3) == (name not in ("run.trec.gz", "run.csv"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ranks.tsv", "q1\ta\t2\nq2\tx\t1\nq1\tb\t1\nq1\tc\t2\n"),
        (
            "lists.jsonl",
            '{"query-id": "q1", "corpus-ids": ["b", "a", "c"]}\n{"query-id": "q2", "corpus-ids": '
            '["x"]}\n',
        ),
        ("ranx.json", '{"q1": {"a": 1.0, "c": 1.0, "b": 1.0}, "q2": {"x": 3}}'),
        ("run.csv", "qid,docno,score\nq1,a,1.0\nq1,c,1.0\nq1,b,1\nq2,x,3\n"),
    ],
)
def test_run_is_ordered_by_rank_and_place_or_by_score_and_doc_id(
    tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / name).write_text(content)
    order = list("bac" if name in ("ranks.tsv", "lists.jsonl") else "cba")
    for unit_bytes in (1, 1 << 20):
        assert read_given(tmp_path / name, unit_bytes=unit_bytes).order == {
            "q1": order,
            "q2": ["x"],
        }
    assert read_run(str(tmp_path / name), ties="rank").order["q1"] == order


@pytest.mark.parametrize(
    ("unit_bytes", "places"),
    [
        (1 << 20, r"line 2: .*'q1' .*'d' .*line 1 .*/a\.trec"),
        (9, r"byte 15: .*'q1' .*'d' .*byte 0 .*/a\.trec"),
    ],
)
def test_duplicate_of_two_files_is_named_with_both_places(
    tmp_path: Path, unit_bytes: int, places: str
) -> None:
    (tmp_path / "a.trec").write_text("q1 Q0 d 1 2 t\nq1 Q0 e 2 1 t\n")
    (tmp_path / "b.trec").write_text("q1 Q0 f 1 20 t\nq1 Q0 d 2 1 t\n")
    with pytest.raises(PreflightError, match="\n  " + places) as caught:
        read_given(tmp_path, unit_bytes=unit_bytes)
    assert str(caught.value.args[0]).startswith(f"{tmp_path}/b.trec")


def test_duplicate_of_a_table_is_named_by_its_rows(tmp_path: Path) -> None:
    _table(tmp_path / "run.parquet", [*ROWS, ROWS[1]])
    message = rf"{tmp_path}/run\.parquet .*1 .*\n  row 9: .*'q2' .*'x' .*row 2"
    with pytest.raises(PreflightError, match=message):
        read_given(tmp_path / "run.parquet", unit_bytes=1, columns=_NAMES)


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ("q1 Q0 b 2 nan t", "number"),
        ("q1 Q0 b x 1 t", "number"),
        ("q1 b 2", "columns"),
        ("q1 Q0 b\u00a0 2 1 t", "id-white-space"),
    ],
)
def test_wrong_row_is_named_by_line_or_by_byte(tmp_path: Path, row: str, kind: str) -> None:
    (tmp_path / "run.trec").write_text(f"q1 Q0 a 1 3 t\n{row}\nq1 Q0 c 3 0 t\n")
    for unit_bytes, unit, place in ((1 << 20, "line", 2), (10, "byte", 14)):
        with refuses(PreflightError, kind, place, "run.trec") as caught:
            read_given(tmp_path / "run.trec", unit_bytes=unit_bytes)
        assert f"\n  {unit} {place}: " in str(caught.value)


def _write_tables(folder: Path, *tables: dict[str, object]) -> Path:
    for number, columns in enumerate(tables):
        (folder / f"part={number}").mkdir(parents=True)
        pq.write_table(pa.table(columns), folder / f"part={number}" / "data.parquet")
    return folder


_GOOD = {"query_id": ["q1"], "doc_id": ["a"], "rank": [1], "score": [1.0]}


@pytest.mark.parametrize(
    ("second", "kind"),
    [
        ({key: _GOOD[key] for key in ("query_id", "doc_id", "rank")}, "parts-differ"),
        ({key: _GOOD[key] for key in ("query_id", "score")}, "column-missing"),
        ({**_GOOD, "doc_id": pa.array([None], pa.string())}, "null"),
        ({**_GOOD, "score": pa.array([float("nan")])}, "number"),
        ({**_GOOD, "doc_id": [["a"]]}, "list-column"),
    ],
)
def test_files_of_one_folder_have_the_same_columns(
    tmp_path: Path, second: dict[str, object], kind: str
) -> None:
    folder = _write_tables(tmp_path / "run", _GOOD, second)
    with pytest.raises(PreflightError) as caught:
        read_given(folder)
    assert caught.value.kind == kind
    assert "part=1/data.parquet" in str(caught.value)


def test_files_of_one_folder_can_have_other_types(tmp_path: Path) -> None:
    second = {**_GOOD, "doc_id": [7], "score": ["0.5"]}
    folder = _write_tables(tmp_path / "run", _GOOD, second)
    assert read_given(folder).order == {"q1": ["a", "7"]}


def test_stray_files_and_empty_partitions_are_not_data(tmp_path: Path) -> None:
    empty = {
        name: pa.array([], kind)
        for name, kind in (("query_id", pa.string()), ("doc_id", pa.string()))
    }
    folder = _write_tables(tmp_path / "run", {**empty, "score": pa.array([], pa.float64())}, _GOOD)
    for stray in (
        "_SUCCESS",
        "_metadata",
        ".part.parquet.crc",
        "part=1/.data.parquet.crc",
        "README.md",
        "state.json",
    ):
        (folder / stray).write_text("q1 Q0 z 1 9 t\n")
    assert [Path(file.url).parent.name for file in run_files(str(folder))] == ["part=0", "part=1"]
    assert read_given(folder, unit_bytes=1).order == {"q1": ["a"]}


def test_partition_can_hold_the_query(tmp_path: Path) -> None:
    for query_id in ("q1", "q%202"):
        folder = tmp_path / "run" / f"query_id={query_id}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"doc_id": ["a", "b"], "score": [1.0, 2.0]}), folder / "0.parquet")
    with refuses(PreflightError, "id-white-space", 1):
        read_given(tmp_path / "run")
    (tmp_path / "run" / "query_id=q%202").rename(tmp_path / "run" / "query_id=q2")
    assert read_given(tmp_path / "run").order == {"q1": ["b", "a"], "q2": ["b", "a"]}


@pytest.mark.parametrize("content", ["", "# a comment\n", None])
def test_run_without_rows_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is None:
        _write_tables(
            tmp_path, {name: pa.array([], pa.string()) for name in ("qid", "docno", "position")}
        )
    else:
        (tmp_path / "a.trec").write_text(content)
        (tmp_path / "b.trec").write_text("")
    with refuses(PreflightError, "no-rows"):
        open_run(str(tmp_path), Hints({} if content is not None else {"rank": "position"}))


def test_changed_run_is_named(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.trec").write_text(f"q1 Q0 {name} 1 1 t\n")
    before = digest_run(str(tmp_path))
    assert digest_run(str(tmp_path / "a.trec")).digest == before.files[0].file.sha256
    assert len(open_run(str(tmp_path), NO_HINTS, before.digest)[1]) == 2
    (tmp_path / "same.trec").write_bytes((tmp_path / "a.trec").read_bytes())
    assert digest_run(str(tmp_path / "same.trec")).digest == before.files[0].file.sha256
    with refuses(DataError, "changed", file="b.trec"):
        open_run(str(tmp_path / "b.trec"), NO_HINTS, before.files[0].file.sha256)
    (tmp_path / "same.trec").rename(tmp_path / "c.trec")
    with refuses(DataError, "changed", file="c.trec"):
        open_run(str(tmp_path), NO_HINTS, before.digest)
    (tmp_path / "c.trec").unlink()
    (tmp_path / "b.trec").write_text("q1 Q0 z 1 1 t\n")
    with refuses(DataError, "changed", file="b.trec"):
        open_run(str(tmp_path), NO_HINTS, before.digest)
    (tmp_path / "b.trec").unlink()
    with refuses(DataError, "changed", file="b.trec"):
        open_run(str(tmp_path), NO_HINTS, before.digest)


def test_size_of_a_run_and_of_its_rows_is_that_of_all_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        (tmp_path / f"{number}.trec").write_text("q1 Q0 a 1 1 t\nbad\nbad\n")
    reader, units = open_run(str(tmp_path / "*.trec"), NO_HINTS)
    assert run_bytes(str(tmp_path / "*.trec")) == sum(unit.size_bytes for unit in units) == 3 * 22
    (batch,) = reader.read(units[0], Rejects("run", 2))
    assert [reader.sent_bytes(units[:count]) for count in (1, 3)] == [
        batch.rows.nbytes,
        3 * batch.rows.nbytes,
    ]
    monkeypatch.setattr("beamrank.formats.run_units._SAMPLE_ROWS", 0)
    assert reader.sent_bytes(units) == 8 * 3 * 22


def test_units_travel_in_a_file_and_small_ones_together(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.trec").write_text("q1 Q0 a 1 1 t\n")
    run = digest_run(str(tmp_path / "*.trec"))
    units = RunReader.of(run, NO_HINTS).units(run, 1 << 20)
    url = write_units(str(tmp_path), "tasks-", units)
    assert (read_units(url), Path(url).name[:6]) == (units, "tasks-")
    assert unit_ranges([unit.size_bytes for unit in units], 3 * 14) == [(0, 3), (3, 6), (6, 9)]
    content = Path(url).read_bytes()
    Path(url).write_bytes(content[:-1])
    read_units.cache_clear()
    open_rows.cache_clear()
    with pytest.raises(DataError, match=url):
        read_units(url)


def test_units_are_as_large_as_their_ranges(tmp_path: Path) -> None:
    """A job is planned by the rows of the first unit: the second of a file is smaller."""
    lines = [f"q1 Q0 d{number:02} {number} 1 t\n" for number in range(16)]
    (tmp_path / "run.trec").write_text("".join(lines))
    run = digest_run(str(tmp_path / "run.trec"))
    reader, (size,) = RunReader.of(run, NO_HINTS), (run.files[0].size_bytes,)
    units = reader.units(run, 10 * size // 16)
    assert [(unit.start, unit.end) for unit in units] == [(0, units[0].end), (units[0].end, size)]
    assert [unit.size_bytes for unit in units] == [unit.end - unit.start for unit in units]
    (whole,) = reader.units(run, size)
    assert (whole.end, whole.size_bytes) == (0, size)
    assert abs(reader.sent_bytes(units) / reader.sent_bytes([whole]) - 1) < 0.2


def test_scores_are_rounded_as_they_are_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halfway cases between two float32: they are rounded from float64, whole blocks and single
    rows alike.
    """
    scores = [1.0000000596046448, 16777217.0, 3.4028235e38, 1e-45, 0.1]
    lines = "".join(f"q1 Q0 d{number} 1 {score!r} t\n" for number, score in enumerate(scores))
    (tmp_path / "plain.trec").write_text(lines)
    (tmp_path / "spaces.trec").write_text(lines.replace(" ", "  "))
    plain, spaces = (read_given(tmp_path / f"{name}.trec") for name in ("plain", "spaces"))
    monkeypatch.setattr(decode_lines, "SMALL_BYTES", 1)
    small = read_given(tmp_path / "plain.trec")
    assert (
        (plain.order, plain.scores) == (spaces.order, spaces.scores) == (small.order, small.scores)
    )
    assert sorted(plain.scores["q1"]) == sorted(np.array(scores, np.float32).tolist())


def test_rows_that_cannot_be_used_are_left_out_up_to_the_limit(tmp_path: Path) -> None:
    good = [f"q1 Q0 d{number} {number} 1 t" for number in range(4)]
    (tmp_path / "run.trec").write_text(
        "\n".join([*good[:2], "q1 Q0 x 2 nan t", "q1 Q0 y\0 2 3 t", *good[2:], ""])
    )
    for unit_bytes in (9, 1 << 20):
        given = read_given(tmp_path / "run.trec", unit_bytes=unit_bytes, max_bad_rows=2)
        assert given.order == {"q1": ["d0", "d1", "d2", "d3"]}
        first, _ = given.rejects.examples
        place = " at byte 30" if unit_bytes == 9 else ":3"
        assert first.startswith(f"{tmp_path}/run.trec{place}: the row has the score")
        with pytest.raises(PreflightError, match="max_bad_rows"):
            read_given(tmp_path / "run.trec", unit_bytes=unit_bytes, max_bad_rows=1)
