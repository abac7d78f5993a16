"""Reading runs: formats, the order, what is noticed and what is refused."""

import gzip
import re
from pathlib import Path

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.errors import DataError, PreflightError
from beamrank.formats.runs import read_run, run_of


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


def test_tabs_spaces_blank_lines_windows_line_ends_and_a_bom(tmp_path: Path) -> None:
    text = "\ufeffq\tQ0\ta\t0\t2.5\ttag\r\n\r\n  q   Q0 b 1\t1.5   t\n\n"
    assert read_run(_write(tmp_path, text)).order == {"q": ["a", "b"]}


def test_an_id_that_begins_as_bzip2_does_is_an_id(tmp_path: Path) -> None:
    assert read_run(_write(tmp_path, "BZh91 Q0 a 1 1 t\n")).order == {"BZh91": ["a"]}


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
        ("q Q0 b 2 1 my tag", "7 columns, and a TREC run has six (query_id Q0 doc_id rank score run_tag)"),
        ("q Q0 b 2 1 t q Q0 c 3 0 t", "12 columns, and a TREC run has six"),
        ("q Q0 b 2 1 t\rq Q0 c 3 0 t", "a carriage return (CR) inside the line. Lines must end in LF or CR LF"),
        ("q Q0 b\0 2 1 t", r"the row has the id 'b\x00', which holds a control character (U+0000)"),
        ("q Q0 b\u00a0 2 1 t", r"the row has the id 'b\xa0', which holds white space (U+00A0)"),
        ("q\u2028 Q0 b 2 1 t", r"the row has the id 'q\u2028', which holds white space (U+2028)"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, reason: str) -> None:
    message = _problems(tmp_path, f"q Q0 a 1 3 t\n{row}\n")
    assert f"line 2: {reason}" in message
    assert "1 problem\n" in message


def test_three_columns_with_scores_are_no_run(tmp_path: Path) -> None:
    assert "line 1: rank '12.5' is not a whole number" in _problems(tmp_path, "q\ta\t12.5\n")


def test_qrels_are_recognised(tmp_path: Path) -> None:
    assert "four are TREC qrels" in _problems(tmp_path, "q 0 a 1\n")


def test_a_file_of_old_macs_is_not_one_row(tmp_path: Path) -> None:
    assert "line 1: a carriage return (CR) inside" in _problems(tmp_path, "q Q0 a 1 3 t\rq Q0 b 2 2 t\r")
    assert "line 1: a carriage return (CR) inside" in _problems(tmp_path, "# by hand\rq Q0 a 1 3 t\rq Q0 b 2 2 t\r")


def test_problems_of_a_kind_are_one_example_and_all_are_counted(tmp_path: Path) -> None:
    kinds = ["q Q0 a 1 3 t", *["bad row"] * 12, "q Q0 a x 1 t", "q Q0 b 1 nan t", "q Q0 c 1 inf t", "q Q0 d 1 1 t u"]
    message = _problems(tmp_path, "".join(f"{row}\n" for row in [*kinds, "q Q0 e\0 1 1 t", "q Q0 a 1 1 t"]))
    assert [int(line) for line in re.findall(r"line (\d+): ", message)] == [2, 14, 15, 17, 18]
    assert "18 problems" in message
    assert "(and 11 more like it)" in message
    assert message.endswith("and 1 more of other kinds")


def test_invalid_utf_8_is_named(tmp_path: Path) -> None:
    assert r"line 2: 'b\\xff' is not valid UTF-8" in _problems(tmp_path, b"q Q0 a 1 3 t\nq Q0 b\xff 2 1 t\n")
    assert r"line 1: '\\xffq' is not valid UTF-8" in _problems(tmp_path, b"\xffq Q0 a 1 3 t\n")


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_an_empty_run_is_an_error(tmp_path: Path, text: str) -> None:
    assert "holds no rows" in _problems(tmp_path, text)


_tokens = st.text(st.sampled_from("aé#1_\u200b"), min_size=1, max_size=3)
_line_ends = st.sampled_from(["\n", "\r\n", "\n\n", " \n", "\t\r\n"])


@settings(max_examples=100, deadline=None)
@given(
    doc_ids=st.lists(_tokens, min_size=1, max_size=6, unique=True),
    separator=st.sampled_from([" ", "\t", "  ", " \t"]),
    tag=_tokens,
    ends=st.lists(_line_ends, min_size=6, max_size=6),
    joined=st.integers(0, 4),
    by=st.sampled_from(["\r", " ", "\x0b", "\x0c"]),
)
def test_rows_are_read_one_a_line_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    doc_ids: list[str],
    separator: str,
    tag: str,
    ends: list[str],
    joined: int,
    by: str,
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    rows = [separator.join(["q", "Q0", doc_id, "1", str(-i), tag]) for i, doc_id in enumerate(doc_ids)]
    text = "".join(row + end for row, end in zip(rows, ends, strict=False))
    assert read_run(_write(folder, text)).order == {"q": doc_ids}
    if joined + 1 < len(rows):
        ends[joined] = by
        message = _problems(folder, "".join(row + end for row, end in zip(rows, ends, strict=False)))
        assert f"line {sum(end.count(chr(10)) for end in ends[:joined]) + 1}: " in message


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
    (tmp_path / "below").mkdir()
    (tmp_path / "below/b.trec").write_text("")
    (tmp_path / "a.trec").write_text("")
    with pytest.raises(PreflightError, match=r"is a folder: give a file, such as \S+/a\.trec$"):
        read_run(str(tmp_path))


@pytest.mark.data
def test_real_runs(shared_data: Path) -> None:
    run = read_run(str(shared_data / "msmarco/ans_small/run.monobert.ans_small.dev.tsv.gz"))
    assert (run.notes.format, run.notes.queries, run.notes.rows) == ("msmarco", 105, 105_000)
    assert run.order["188714"][:3] == ["4321745", "6301923", "6442308"]
    commented = read_run(str(shared_data / "trec_eval/results.comment.test.gz"))
    assert (commented.notes.format, commented.notes.rows) == ("trec", 30_100)
    assert commented.order["2024-224960"][0] == "msmarco_v2.1_doc_50_2286987788#13_3087841662"


@pytest.mark.data
def test_words_after_the_run_tag_are_refused_unlike_by_trec_eval(shared_data: Path) -> None:
    with pytest.raises(PreflightError, match=r"results\.trunc is not a valid run: 5 problems\n.* line 1: 9 columns"):
        read_run(str(shared_data / "trec_eval/results.trunc"))


def test_run_of_scores_in_memory_is_ordered_as_the_file_would_be(tmp_path: Path) -> None:
    scores: dict[str, dict[str, float]] = {"q1": {"b": 1.0, "a": 2.0, "é": 1.0, "c": 1.0 + 1e-12}, "q2": {"x": 5}}
    path = tmp_path / "run.trec"
    path.write_text(
        "".join(
            f"{query_id} Q0 {doc_id} {rank} {score!r} t\n"
            for query_id, docs in scores.items()
            for rank, (doc_id, score) in enumerate(docs.items())
        )
    )
    for ties in ("doc_id", "rank"):
        found, wanted = run_of(scores, ties=ties), read_run(str(path), ties=ties)
        assert found.order == wanted.order
        assert [each.tolist() for each in found.scores.values()] == [each.tolist() for each in wanted.scores.values()]
        assert found.notes == wanted.notes


def test_run_of_leaves_queries_without_docs_out() -> None:
    assert list(run_of({"q1": {}, "q2": {"d": 1.0}}).order) == ["q2"]


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({}, "the run has no rows"),
        ({"q": {"a b": 1.0}}, "a row of the run has the id 'a b', which holds white space"),
        ({"#q": {"a": 1.0}}, "begins with `#`"),
        ({"q": {"d": float("nan")}}, "query 'q': the score of doc 'd' is not finite in float32: nan"),
        ({"q": {"d": 1e39}}, "query 'q': the score of doc 'd' is not finite in float32: inf"),
        ({1: {"d": 1.0}}, "query 1 of the run has the id 1 .int.: ids are strings"),
    ],
)
def test_run_of_refuses_bad_scores(scores: dict[str, dict[str, float]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        run_of(scores)
