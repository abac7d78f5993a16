"""Reading runs: formats, the order, what is noticed and what is refused."""

import gzip
import math
import re
from pathlib import Path

import fsspec
import pytest

from beamrank.errors import PreflightError
from beamrank.runs import read_run


def _write(folder: Path, text: str | bytes) -> str:
    path = folder / "some.run"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def _problems(folder: Path, text: str | bytes) -> str:
    path = _write(folder, text)
    with pytest.raises(PreflightError, match=re.escape(path)) as caught:
        read_run(path)
    return str(caught.value)


def test_a_trec_run_is_ordered_by_score_and_ties_by_doc_id_descending(tmp_path: Path) -> None:
    run = read_run(_write(tmp_path, "q Q0 a 1 1.5 t\nq Q0 z 2 2 t\nq Q0 é 3 2 t\nq Q0 B 4 2 t\nq Q0 b 5 3e0 t\n"))
    assert run.order == {"q": ["b", "é", "z", "B", "a"]}
    assert run.scores["q"].tolist() == [3, 2, 2, 2, 1.5]
    assert (run.notes.format, run.notes.queries, run.notes.rows) == ("trec", 1, 5)
    assert run.notes.tied_scores == 2
    assert run.notes.rank_disagreements == 3
    assert len(run.notes.lines()) == 2


def test_ties_are_those_of_float32(tmp_path: Path) -> None:
    run = read_run(_write(tmp_path, "q Q0 a 1 0.99999999 t\nq Q0 b 2 0.99999998 t\n"))
    assert run.order == {"q": ["b", "a"]}
    assert run.notes.tied_scores == 1


def test_tied_scores_can_follow_the_rank_column(tmp_path: Path) -> None:
    path = _write(tmp_path, "q Q0 a 0 1 t\nq Q0 c 2 1 t\nq Q0 b 1 1 t\nq Q0 z 3 9 t\n")
    assert read_run(path, ties="rank").order == {"q": ["z", "a", "b", "c"]}
    assert read_run(path).order == {"q": ["z", "c", "b", "a"]}


@pytest.mark.parametrize("first", [0, 1, 7])
def test_a_three_column_run_is_ordered_by_rank(tmp_path: Path, first: int) -> None:
    run = read_run(_write(tmp_path, f"q\tb\t{first + 1}\nq\ta\t{first}\nr\tc\t{first}\nq\td\t{first + 2}\n"))
    assert run.order == {"q": ["a", "b", "d"], "r": ["c"]}
    assert run.notes.format == "msmarco"
    assert run.notes.lines() == []


def test_tied_ranks_stand_as_in_the_file_and_are_counted(tmp_path: Path) -> None:
    run = read_run(_write(tmp_path, "q\tb\t2\nq\ta\t2\nq\tc\t1\n"))
    assert run.order == {"q": ["c", "b", "a"]}
    assert run.notes.tied_ranks == 1
    assert "rank of the row before" in run.notes.lines()[0]


def test_tabs_spaces_blank_lines_windows_line_ends_a_bom_and_a_tag_of_words(tmp_path: Path) -> None:
    text = "\ufeffq\tQ0\ta\t0\t2.5\tmy tag\r\n\r\n  q   Q0 b 1\t1.5   t\n\n"
    assert read_run(_write(tmp_path, text)).order == {"q": ["a", "b"]}


def test_comments_are_skipped_and_counted(tmp_path: Path) -> None:
    text = "# made by hand\nq Q0 a#1 1 2 t\n  #q Q0 b 1 3 t\nq Q0 c 2 1 #t\n"
    run = read_run(_write(tmp_path, text))
    assert run.order == {"q": ["a#1", "c"]}
    assert (run.notes.comments, run.notes.comment_rows) == (2, 1)
    assert "look like rows" in run.notes.lines()[0]


def test_rows_of_a_query_need_not_stand_together(tmp_path: Path) -> None:
    run = read_run(_write(tmp_path, "b Q0 x 1 2 t\na Q0 x 1 2 t\nb Q0 y 2 1 t\n"))
    assert run.order == {"b": ["x", "y"], "a": ["x"]}


def test_reads_compressed_files_from_any_file_system(tmp_path: Path) -> None:
    with fsspec.open("memory://runs/small.trec.gz", "wb") as file:
        file.write(gzip.compress(b"q Q0 a 1 2 t\n"))
    assert read_run("memory://runs/small.trec.gz").order == {"q": ["a"]}


def test_a_duplicate_names_both_lines(tmp_path: Path) -> None:
    message = _problems(tmp_path, "q Q0 a 1 3 t\nq Q0 b 2 2 t\nr Q0 a 1 1 t\nq Q0 a 3 1 t\n")
    assert "line 4: query 'q' has doc 'a' already on line 1" in message
    assert "1 problem\n" in message


@pytest.mark.parametrize("score", ["nan", "inf", "-Infinity", "1e39", "-1e300"])
def test_a_score_must_be_finite_in_float32(tmp_path: Path, score: str) -> None:
    assert "line 2: the score of doc 'b' is not finite" in _problems(tmp_path, f"q Q0 a 1 3 t\nq Q0 b 2 {score} t\n")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("q Q0 b 2 x t", "rank '2' must be a whole number and score 'x' a number"),
        ("q Q0 b 2.0 1 t", "rank '2.0' must be a whole number"),
        ("q Q0 b 1_0 1 t", "rank '1_0'"),
        ("q Q0 b 1 1_0 t", "rank '1' must be a whole number and score '1_0' a number"),
        (f"q Q0 b {10**30} 1 t", "rank '1000"),
        ("q Q0 b 2 1", "5 columns, where the rows before are TREC rows"),
        ("q b 2", "3 columns, where the rows before are TREC rows"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, reason: str) -> None:
    message = _problems(tmp_path, f"q Q0 a 1 3 t\n{row}\n")
    assert f"line 2: {reason}" in message
    assert "1 problem\n" in message


def test_three_columns_with_scores_are_no_run(tmp_path: Path) -> None:
    assert "line 1: rank '12.5' is no whole number" in _problems(tmp_path, "q\ta\t12.5\n")


def test_qrels_are_recognised(tmp_path: Path) -> None:
    assert "four are TREC qrels" in _problems(tmp_path, "q 0 a 1\n")


def test_the_first_five_problems_are_listed_and_all_are_counted(tmp_path: Path) -> None:
    message = _problems(tmp_path, "q Q0 a 1 3 t\n" + "bad row\n" * 12)
    assert [int(line) for line in re.findall(r"line (\d+):", message)] == [2, 3, 4, 5, 6]
    assert "12 problems" in message
    assert "and 7 more" in message


def test_invalid_utf_8_is_named(tmp_path: Path) -> None:
    assert r"line 2: 'b\\xff' is not valid UTF-8" in _problems(tmp_path, b"q Q0 a 1 3 t\nq Q0 b\xff 2 1 t\n")
    assert r"line 1: '\\xffq' is not valid UTF-8" in _problems(tmp_path, b"\xffq Q0 a 1 3 t\n")


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_an_empty_run_is_an_error(tmp_path: Path, text: str) -> None:
    assert "holds no rows" in _problems(tmp_path, text)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"there is no file .*none\.trec"):
        read_run(str(tmp_path / "none.trec"))


def test_a_folder_and_a_broken_archive_are_errors(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b"q Q0 doc-%d 1 %d t\n" % (i, i * 7919) for i in range(1000)))
    for name, content in [("cut.gz", whole[: len(whole) // 2]), ("other.gz", b"q Q0 a 1 2 t\n")]:
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(PreflightError, match=f"cannot read .*{name}"):
            read_run(str(path))
    with pytest.raises(PreflightError, match="is a folder"):
        read_run(str(tmp_path))


@pytest.mark.data
def test_real_runs(shared_data: Path) -> None:
    run = read_run(str(shared_data / "msmarco/ans_small/run.monobert.ans_small.dev.tsv.gz"))
    assert (run.notes.format, run.notes.queries, run.notes.rows) == ("msmarco", 105, 105_000)
    assert run.order["188714"][:3] == ["4321745", "6301923", "6442308"]
    commented = read_run(str(shared_data / "trec_eval/results.comment.test.gz"))
    assert (commented.notes.format, commented.notes.rows) == ("trec", 30_100)
    assert commented.order["2024-224960"][0] == "msmarco_v2.1_doc_50_2286987788#13_3087841662"
    tagged = read_run(str(shared_data / "trec_eval/results.trunc"))
    assert tagged.notes.rows == 584
    assert all(math.isfinite(score) for scores in tagged.scores.values() for score in scores)
