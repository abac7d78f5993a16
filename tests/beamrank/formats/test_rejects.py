"""Rows that cannot be used: left out and counted up to a limit, an error beyond it, and written as
a table.
"""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.commit.listing import REJECT, list_output
from beamrank.errors import PreflightError
from beamrank.formats.qrels import read_qrels
from beamrank.formats.rejects import MOST_ROWS, Rejects, beginning
from beamrank.formats.runs import read_run
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.records import BadRow

_RUN = [
    "q1 Q0 a 1 3 t",
    "q1 Q0 b two 2 t",
    "q1 Q0 c 3",
    "q1 Q0 d\0 4 1 t",
    "q\u3000x Q0 e 1 1 t",
    "q1 Q0 f 5 nan t",
]
_QRELS = ["q1 0 a 1", "q1 0 b high", "q1 0", "q1 0 d\0 1", "q1 0 e 20000"]
_TOPICS = ["q1\tcat", "no tab", "q2\t ", "#q\tcat", "q1\tcat"]


def _read_run(path, rejects):
    return read_run(path, rejects=rejects).order


def _read_topics(path, rejects):
    return [topic.query_id for topic in read_topics(TopicsConfig(path=path, format="tsv"), rejects)]


_KINDS = [
    ("run", _RUN, _read_run, {"q1": ["a"]}),
    (
        "qrels",
        _QRELS,
        lambda path, rejects: read_qrels(path, rejects=rejects).relevance,
        {"q1": {"a": 1}},
    ),
    ("topics", _TOPICS, _read_topics, ["q1"]),
]


@pytest.fixture
def write(tmp_path):
    """A function that writes lines, as bytes or text, and returns the file's path."""

    def write_lines(lines) -> str:
        path = tmp_path / "rows.txt"
        path.write_bytes(
            b"".join((each if isinstance(each, bytes) else each.encode()) + b"\n" for each in lines)
        )
        return str(path)

    return write_lines


@pytest.mark.parametrize(
    ("kind", "lines", "read", "usable"), _KINDS, ids=[each[0] for each in _KINDS]
)
def test_rows_are_left_out_up_to_the_limit(write, tmp_path, kind, lines, read, usable):
    path, bad = write(lines), len(lines) - 1
    rejects = Rejects(kind, bad)
    assert read(path, rejects) == usable
    assert rejects.count == bad
    table = pq.read_table(tmp_path / "out/rejects" / rejects.publish(str(tmp_path / "out")))
    assert table["kind"].unique().to_pylist() == [kind]
    assert table["file"].unique().to_pylist() == [path]
    assert sorted(table["place"].to_pylist()) == [
        f"{path}:{line}" for line in range(2, len(lines) + 1)
    ]
    with pytest.raises(PreflightError, match=rf" {bad} .*max_bad_rows .*{bad - 1} .*{kind}\n"):
        read(path, Rejects(kind, bad - 1))
    with pytest.raises(PreflightError, match=f"{bad} ") as refused:
        read(path, Rejects(kind))
    assert "max_bad_rows" not in str(refused.value)


@pytest.mark.parametrize(
    ("read", "lines"),
    [
        (_read_run, ["q1 Q0 a 1 3 t", "q1 Q0 a 2 2 t"]),
        (_read_run, ["q1 Q0 a 1 3 t", "q1\tb\t2"]),
        (_KINDS[1][2], ["q1 0 a 1", "q1 0 a 2"]),
        (_KINDS[1][2], ["q1 0 a 1", "q1 b 2"]),
        (_read_topics, ["q1\tcat", "q1\tdog"]),
    ],
    ids=["doc twice", "other run format", "other relevance", "other qrels format", "other text"],
)
def test_rows_that_contradict_others_are_an_error_whatever_the_limit(write, read, lines):
    with pytest.raises(PreflightError, match=r":2:|line 2:"):
        read(write(lines), Rejects("any", 100))


def test_the_limit_is_that_of_all_files_together(tmp_path):
    paths = [tmp_path / name for name in ("a.txt", "b.txt")]
    for path in paths:
        path.write_text("q1 0 a 1\nq1 0 b high\n")
    rejects = Rejects("qrels", 2)
    assert read_qrels([str(path) for path in paths], rejects=rejects).notes.judgments == 1
    assert rejects.count == 2
    with pytest.raises(PreflightError, match=r"a\.txt .*1 problem, .*max_bad_rows"):
        read_qrels([str(path) for path in paths], rejects=Rejects("qrels", 1))


def test_a_partition_without_rows_is_read(tmp_path):
    ids, empty = pa.array(["q1"]), pa.array([], pa.string())
    for name, column in (("a", empty), ("b", ids)):
        levels = pa.array([1] * len(column), pa.int64())
        table = pa.table(
            {"query_id": column, "text": column, "doc_id": column, "relevance": levels}
        )
        pq.write_table(table, tmp_path / f"{name}.parquet")
    assert [
        topic.query_id for topic in read_topics(TopicsConfig(path=str(tmp_path / "*.parquet")))
    ] == ["q1"]
    assert read_qrels(str(tmp_path / "*.parquet")).relevance == {"q1": {"q1": 1}}


def test_a_row_with_two_problems_counts_once(write):
    rejects = Rejects("qrels", 1)
    read_qrels(write(["q1 0 a 1", "\0q 0 b\0 high"]), rejects=rejects)
    assert rejects.count == 1


def test_a_query_whose_rows_are_all_left_out_is_not_in_the_run(write):
    run = read_run(
        write(["q1 Q0 a 1 3 t", "q\0 Q0 b 1 2 t", "q2 Q0 c 1 inf t"]), rejects=Rejects("run", 2)
    )
    assert list(run.order) == ["q1"]
    assert run.notes.rows == 1
    assert ": 2 (" in run.notes.lines()[0]


def test_a_file_of_rejects_is_named_by_its_content(tmp_path):
    output = str(tmp_path)
    rejects = Rejects("docs")
    assert rejects.publish(output) == ""
    assert not (tmp_path / "rejects").exists()
    rejects.add(
        "corpus.tsv",
        (BadRow(f"corpus.tsv:{number}", "is bad", "row") for number in range(MOST_ROWS + 1)),
    )
    names = {rejects.publish(output, 7) for _ in range(2)}
    (entry,) = list_output(output)
    assert {f"rejects/{name}" for name in names} == {entry.path}
    assert (entry.kind, entry.number) == (REJECT, 7)
    table = pq.read_table(tmp_path / entry.path)
    assert table.num_rows == MOST_ROWS
    assert table.schema.metadata[b"beamrank.rows"] == b"10001"
    assert table.schema.metadata[b"beamrank.schema"] == b"rejects/1"


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        (b"q1\tcaf\xe9", "q1\tcaf\\xe9"),
        ((b"q1", None, 3), "q1\tnull\t3"),
        ({"id": "é\ud800"}, '{"id": "é\\ud800"}'),
        ("x" * 1000, "x" * 500),
        (b"\xff" * 1000, "\\xff" * 125),
        (None, "null"),
        ({(1, 2): "x"}, "a value that cannot be shown (dict)"),
    ],
    ids=["bytes", "columns", "surrogate", "long", "long bytes", "nothing", "no JSON"],
)
def test_the_beginning_of_a_row_is_text(row, shown):
    assert beginning(row) == shown


def test_rejected_row_whose_file_and_reason_are_not_utf8_is_written():
    rejects = Rejects("topics", 1)
    rejects.add(
        "t\udcff.jsonl", [BadRow("t:1", "the topic has no field `id`; it has: \ud800", "{}")]
    )
    (row,) = pq.read_table(pa.BufferReader(rejects.as_file()[1])).to_pylist()
    assert (row["file"], row["reason"]) == (
        "t\\udcff.jsonl",
        "the topic has no field `id`; it has: \\ud800",
    )
