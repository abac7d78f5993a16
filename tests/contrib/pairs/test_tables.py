"""Files of pairs and triples are checked before anything starts, and read by rows."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.commit.stage import described
from beamrank.errors import PreflightError
from beamrank.storage.digested import RowRange, digest_file
from contrib.pairs.tables import PairRows, find_pairs, read_pairs
from tests.support.refusals import refuses

PAIRS = {
    "id": ["a", "b", "c", "d", "e"],
    "query": ["q1", "q2", "q3", "q4", "q5"],
    "doc": ["1", "2", "3", "4", "5"],
}
INVALID = b"\xff\xfe"


def _write(path: Path, columns: dict[str, Any], row_group_size: int | None = None) -> str:
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return str(path)


def _read(url: str, start: int, end: int, kind: Any = "mono", id_type: Any = None) -> PairRows:
    return read_pairs(RowRange(digest_file(url), start, end), kind, id_type or pa.string())


def test_pairs_are_found_in_files_folders_and_globs(tmp_path):
    (tmp_path / "folder").mkdir()
    b, a = (
        _write(tmp_path / "folder/b.parquet", PAIRS),
        _write(tmp_path / "folder/A.PARQUET", PAIRS),
    )
    single = _write(tmp_path / "0.pq", PAIRS)
    (tmp_path / "folder/_SUCCESS").touch()
    (tmp_path / "folder/.hidden.parquet").touch()
    files = find_pairs([str(tmp_path / "folder"), str(tmp_path / "*.pq")])
    assert [(file.url, file.rows, file.kind, file.id_type) for file in files] == [
        (url, 5, "mono", pa.string()) for url in (a, b, single)
    ]
    (tmp_path / "folder/c.parquet.lz4").touch()
    with refuses(PreflightError, "packed", file="c.parquet.lz4"):
        find_pairs([str(tmp_path / "folder")])


@pytest.mark.parametrize(
    ("ids", "id_type"),
    [
        (pa.array([1, 2], pa.uint16()), pa.uint16()),
        (pa.array(["a", "b"], pa.large_string()), pa.string()),
        (pa.array(["a", "b"]).dictionary_encode(), pa.string()),
        (pa.array([7, 8]).dictionary_encode(), pa.int64()),
    ],
)
def test_ids_keep_their_values_and_kind(tmp_path, ids, id_type):
    texts = pa.array(["x", "y"], pa.large_string()).dictionary_encode()
    url = _write(
        tmp_path / "pairs.parquet", {"query": texts, "id": ids, "doc_i": texts, "doc_j": texts}
    )
    (file,) = find_pairs([url])
    assert (file.kind, file.id_type) == ("duo", id_type)
    rows = _read(url, 0, 2, "duo", id_type)
    assert rows.ids.type == id_type
    assert rows.ids.to_pylist() == ids.to_pylist()
    assert rows.texts == [["x", "y"]] * 3


OTHERS = {
    "qid": [1, 2, 3, 4, 5],
    "question": PAIRS["query"],
    "doc": PAIRS["doc"],
    "label": pa.array(["x", "y", None, "x", "y"]).dictionary_encode(),
    "score": [0.1, 0.2, 0.3, 0.4, 0.5],
    "words": [["a"], [], None, ["b", "c"], ["d"]],
}
RENAMED = {"id": "qid", "query": "question", "first_score": "score"}


@pytest.mark.parametrize("row_group_size", [1, 2, 5])
def test_columns_are_renamed_and_others_are_passed_through(tmp_path, row_group_size):
    url = _write(tmp_path / "pairs.parquet", OTHERS, row_group_size)
    (file,) = find_pairs([url], RENAMED)
    assert (file.kind, file.id_type) == ("mono", pa.int64())
    assert dict(zip(file.passed.names, file.passed.types, strict=True)) == {
        "label": pa.string(),
        "first_score": pa.float64(),
        "words": pa.list_(pa.string()),
    }
    rows = read_pairs(
        RowRange(digest_file(url), 1, 4), "mono", pa.int64(), RENAMED, described(file.passed)
    )
    assert (rows.ids.to_pylist(), rows.texts) == ([2, 3, 4], [["q2", "q3", "q4"], ["2", "3", "4"]])
    assert rows.passed.to_pydict() == {
        "label": ["y", None, "x"],
        "first_score": [0.2, 0.3, 0.4],
        "words": [[], None, ["b", "c"]],
    }


def test_a_bad_row_is_explained_by_the_names_in_the_file(tmp_path):
    url = _write(tmp_path / "pairs.parquet", OTHERS | {"question": [None] * 5})
    rows = read_pairs(RowRange(digest_file(url), 0, 1), "mono", pa.int64(), RENAMED)
    assert "`question`" in rows.bad[0].reason


@pytest.mark.parametrize(
    ("renamed", "message"),
    [
        ({"id": "qid", "query": "question"}, "`--columns first_score=score`"),
        (RENAMED | {"query": "none"}, "`none`"),
        (RENAMED | {"doc": "label"}, "`doc`"),
        ({"first_score": "score"}, "qid, question, doc, label, score, words"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path, renamed, message):
    with pytest.raises(PreflightError, match=message):
        find_pairs([_write(tmp_path / "pairs.parquet", OTHERS)], renamed)


@pytest.mark.parametrize("label", [[1] * 5, None])
def test_files_whose_other_columns_differ_are_refused(tmp_path, label):
    a = _write(tmp_path / "a.parquet", PAIRS | {"label": PAIRS["doc"]})
    b = _write(tmp_path / "b.parquet", PAIRS if label is None else PAIRS | {"label": label})
    with pytest.raises(PreflightError, match=rf"{b} and {a} .*label"):
        find_pairs([str(tmp_path)])


def test_whole_decimals_are_ids_and_others_are_bad_rows(tmp_path):
    ids = [Decimal(7), Decimal(2) ** 63 - 1, Decimal(2) ** 63, None]
    columns = {"id": pa.array(ids, pa.decimal128(38, 0)), "query": ["q"] * 4, "doc": ["x"] * 4}
    url = _write(tmp_path / "pairs.parquet", columns)
    assert find_pairs([url])[0].id_type == pa.int64()
    rows = _read(url, 0, 4, id_type=pa.int64())
    assert rows.ids.to_pylist() == [7, 2**63 - 1, None, None]
    assert [row.kind for row in rows.bad] == ["number-range", "null"]


@pytest.mark.parametrize("kind", [pa.null(), pa.int32(), pa.string()])
@pytest.mark.parametrize("name", ["id", "doc"])
def test_column_that_is_null_throughout_is_one_of_bad_rows(tmp_path, kind, name):
    url = _write(tmp_path / "pairs.parquet", PAIRS | {name: pa.nulls(5, kind)})
    (file,) = find_pairs([url])
    rows = _read(url, 0, 5, id_type=file.id_type)
    assert len(rows.bad) == 5


@pytest.mark.parametrize("row_group_size", [1, 2, 5])
@pytest.mark.parametrize(("start", "end"), [(0, 5), (0, 1), (1, 4), (4, 5)])
def test_rows_are_read_whatever_the_row_groups(tmp_path, row_group_size, start, end):
    rows = _read(_write(tmp_path / "pairs.parquet", PAIRS, row_group_size), start, end)
    assert [rows.ids.to_pylist(), *rows.texts] == [column[start:end] for column in PAIRS.values()]
    assert rows.usable.tolist() == [True] * (end - start)
    assert rows.bad == []


def test_bad_rows_are_named_and_others_are_read(tmp_path):
    columns: dict[str, list[Any]] = {
        "id": ["a", None, INVALID, "d", "e", "f"],
        "query": ["q", "q", "q", None, " ", "q"],
        "doc": ["", "x", "x", "x", "x", INVALID],
    }
    binary = {
        name: [value.encode() if isinstance(value, str) else value for value in v]
        for name, v in columns.items()
    }
    table = {name: pa.array(values, pa.binary()) for name, values in binary.items()}
    url = _write(tmp_path / "pairs.parquet", table | {"id": table["id"].view(pa.string())})
    rows = _read(url, 0, 6)
    assert rows.ids.to_pylist() == ["a", None, None, "d", "e", "f"]
    assert rows.texts == [["q"], [""]]
    assert rows.usable.tolist() == [True, False, False, False, False, False]
    assert [(row.place, row.kind) for row in rows.bad] == [
        (f"{url} at row 2", "null"),
        (f"{url} at row 3", "not-utf8"),
        (f"{url} at row 4", "null"),
        (f"{url} at row 5", "topic-empty"),
        (f"{url} at row 6", "not-utf8"),
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"doc_i": PAIRS["doc"], "doc_j": PAIRS["doc"]}, "`doc_i`"),
        ({"id": [[1]] * 5}, "`id`"),
        ({"doc": [1, 2, 3, 4, 5]}, "`doc`.*int64"),
    ],
)
def test_pairs_with_other_columns_are_refused(tmp_path, columns, message):
    with pytest.raises(PreflightError, match=message):
        find_pairs([_write(tmp_path / "pairs.parquet", PAIRS | columns)])


TRIPLES = {
    **{name: PAIRS[name] for name in ("id", "query")},
    "doc_i": PAIRS["doc"],
    "doc_j": PAIRS["doc"],
}


@pytest.mark.parametrize("other", [PAIRS | {"id": [1, 2, 3, 4, 5]}, TRIPLES])
def test_files_that_do_not_agree_are_refused(tmp_path, other):
    _write(tmp_path / "a.parquet", PAIRS)
    _write(tmp_path / "b.parquet", other)
    with pytest.raises(PreflightError, match=r"b.parquet and .*a.parquet"):
        find_pairs([str(tmp_path)])


def test_damaged_files_and_files_named_twice_are_refused(tmp_path):

    (tmp_path / "text.parquet").write_text("id,query,doc")
    with refuses(PreflightError, "damaged", file="text.parquet"):
        find_pairs([str(tmp_path / "text.parquet")])
    url = _write(tmp_path / "pairs.pq", PAIRS)
    with pytest.raises(PreflightError, match=r"pairs.pq"):
        find_pairs([url, str(tmp_path / "*.pq")])


def test_files_without_rows_or_values_have_the_types_of_the_others(tmp_path):
    none = {name: pa.nulls(0) for name in PAIRS}
    _write(tmp_path / "a.parquet", none)
    full = _write(tmp_path / "b.parquet", PAIRS | {"note": ["x"] * 5})
    empty = _write(tmp_path / "c.parquet", PAIRS | {"note": pa.nulls(5)})
    files = find_pairs([str(tmp_path)])
    assert [file.rows for file in files] == [0, 5, 5]
    assert {(file.kind, file.id_type) for file in files} == {("mono", pa.string())}
    passed = described(files[0].passed)
    assert passed == (("note", "string"),)
    for url, notes in ((full, ["x"]), (empty, [None])):
        rows = read_pairs(RowRange(digest_file(url), 1, 2), "mono", pa.string(), {}, passed)
        assert rows.passed.to_pydict() == {"note": notes}
        assert rows.passed.schema.types == [pa.string()]


def test_folders_below_the_given_path_name_columns_that_are_passed_through(tmp_path):
    for lang in ("de", "fr%20ca"):
        folder = tmp_path / "id=above" / f"lang={lang}"
        folder.mkdir(parents=True)
        _write(folder / "part.parquet", PAIRS)
    files = find_pairs([str(tmp_path / "id=above")])
    passed = described(files[0].passed)
    assert passed == (("lang", "string"),)
    rows = [RowRange(digest_file(file.url), 3, 5) for file in files]
    read_rows = [read_pairs(own, "mono", pa.string(), {}, passed) for own in rows]
    assert [some.passed["lang"].to_pylist() for some in read_rows] == [["de"] * 2, ["fr ca"] * 2]
    assert [some.ids.to_pylist() for some in read_rows] == [["d", "e"]] * 2


def test_arrow_files_hold_pairs_and_text_does_not(tmp_path):
    table = pa.table(PAIRS)
    for name, new in (("a.arrow", pa.ipc.new_file), ("b.arrow", pa.ipc.new_stream)):
        with new(str(tmp_path / name), table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
        (file,) = find_pairs([str(tmp_path / name)])
        assert file.rows == 5
        rows = _read(file.url, 1, 4)
        assert (rows.ids.to_pylist(), rows.texts[1]) == (["b", "c", "d"], ["2", "3", "4"])
    (tmp_path / "c.csv").write_text("id,query,doc\n1,q,x\n")
    with refuses(PreflightError, "format-unknown", file="c.csv"):
        find_pairs([str(tmp_path / "c.csv")])
