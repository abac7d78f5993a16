"""Runs are read in one order; what is noticed is counted, wrong rows are refused."""

import gzip
import re

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.errors import DataError, PreflightError
from beamrank.formats.runs import read_run, run_of
from tests.support.refusals import refuses


@pytest.fixture
def write(tmp_path):
    """A function that writes a run and returns its path."""

    def write_content(text):
        (tmp_path / "some.run").write_bytes(text.encode() if isinstance(text, str) else text)
        return str(tmp_path / "some.run")

    return write_content


def _problems(path):
    with pytest.raises(PreflightError, match=re.escape(path)) as caught:
        read_run(path)
    return str(caught.value)


def _refused(path, kind, place):
    with refuses(PreflightError, kind, place, path):
        read_run(path)


@pytest.mark.parametrize(
    ("text", "order"),
    [
        # Ties are those of float32.
        ("q Q0 a 1 0.99999999 t\nq Q0 b 2 0.99999998 t\n", {"q": ["b", "a"]}),
        ("\ufeffq\tQ0\ta\t0\t2.5\ttag\r\n\r\n  q   Q0 b 1\t1.5   t\n\n", {"q": ["a", "b"]}),
        # These bytes begin a bzip2 file, too.
        ("BZh91 Q0 a 1 1 t\n", {"BZh91": ["a"]}),
        ("b Q0 x 1 2 t\na Q0 x 1 2 t\nb Q0 y 2 1 t\n", {"b": ["x", "y"], "a": ["x"]}),
        *[
            (
                f"q\tb\t{n + 1}\nq\ta\t{n}\nr\tc\t{n}\nq\td\t{n + 2}\n",
                {"q": ["a", "b", "d"], "r": ["c"]},
            )
            for n in (0, 1, 7)
        ],
    ],
)
def test_run_is_read_in_order(write, text, order):
    assert read_run(write(text)).order == order


def test_trec_run_ties_are_ordered_by_doc_id_descending(write):
    run = read_run(
        write("q Q0 a 1 1.5 t\nq Q0 z 2 2 t\nq Q0 é 3 2 t\nq Q0 B 4 2 t\nq Q0 b 5 3e0 t\n")
    )
    assert run.order == {"q": ["b", "é", "z", "B", "a"]}
    assert run.scores["q"].tolist() == [3, 2, 2, 2, 1.5]
    assert (run.notes.format, run.notes.queries, run.notes.rows) == ("trec", 1, 5)
    assert (run.notes.tied_scores, run.notes.rank_disagreements) == (2, 3)
    assert len(run.notes.lines()) == 2


def test_ties_can_follow_the_rank_column(write):
    path = write("q Q0 a 0 1 t\nq Q0 c 2 1 t\nq Q0 b 1 1 t\nq Q0 z 3 9 t\n")
    assert read_run(path, ties="rank").order == {"q": ["z", "a", "b", "c"]}
    assert read_run(path).order == {"q": ["z", "c", "b", "a"]}


def test_ties_of_rank_keep_the_order_of_the_file(write):
    run = read_run(write("q\tb\t2\nq\ta\t2\nq\tc\t1\n"))
    assert run.order == {"q": ["c", "b", "a"]}
    assert (run.notes.format, run.notes.tied_ranks) == ("msmarco", 1)
    assert "rank of the row before" in run.notes.lines()[0]


def test_comments_are_skipped_and_counted(write):
    run = read_run(write("# made by hand\nq Q0 a#1 1 2 t\n  #q Q0 b 1 3 t\nq Q0 c 2 1 #t\n"))
    assert run.order == {"q": ["a#1", "c"]}
    assert (run.notes.comments, run.notes.comment_rows) == (2, 1)
    assert "look like rows" in run.notes.lines()[0]


def test_compressed_run_is_read_from_any_file_system():
    with fsspec.open("memory://runs/small.trec.gz", "wb") as file:
        file.write(gzip.compress(b"q Q0 a 1 2 t\n"))
    assert read_run("memory://runs/small.trec.gz").order == {"q": ["a"]}


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ("q Q0 b 2.5 1 t", "number-fraction"),
        ("q Q0 b 1_0 1 t", "number"),
        ("q Q0 b 1 1_0 t", "number"),
        ("q Q0 b 0x10 1 t", "number"),
        ("q Q0 b ١ 1 t", "number"),
        (f"q Q0 b {10**30} 1 t", "number-range"),
        ("q\u2028 Q0 b 2 1 t", "id-white-space"),
    ],
)
def test_bad_row_is_named(write, row, kind):
    row = row if isinstance(row, bytes) else row.encode()
    _refused(write(b"q Q0 a 1 3 t\n" + row + b"\n"), kind, 2)


@pytest.mark.parametrize(
    ("text", "kind", "place"),
    [
        ("q\ta\t12.5\n", "number-fraction", 1),
        ("q 0 a 1\n", "columns", 1),
        ("# by hand\rq Q0 a 1 3 t\rq Q0 b 2 2 t\r", "lone-cr", 1),
        (b"\xffq Q0 a 1 3 t\n", "not-utf8", 1),
        ("# nothing\n", "no-rows", None),
    ],
)
def test_wrong_file_is_refused(write, text, kind, place):
    _refused(write(text), kind, place)


def test_similar_problems_are_counted_and_shown_once(write):
    kinds = [
        "q Q0 a 1 3 t",
        *["bad row"] * 12,
        "q Q0 a x 1 t",
        "q Q0 b 1 nan t",
        "q Q0 c 1 inf t",
        "q Q0 d 1 1 t u",
    ]
    message = _problems(
        write(
            "".join(
                f"{row}\n"
                for row in [*kinds, "q Q0 e\0 1 1 t", "q Q0 f\u00a0 1 1 t", "q Q0 a 1 1 t"]
            )
        )
    )
    assert [int(line) for line in re.findall(r"line (\d+): ", message)] == [2, 14, 15, 18, 19]
    assert re.search(r" 19 .*\n.*\(.* 12 .*\)(.*\n)+.* 1 .*$", message)


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
    tmp_path_factory, doc_ids, separator, tag, ends, joined, by
):
    path = tmp_path_factory.mktemp("rows") / "some.run"
    rows = [
        separator.join(["q", "Q0", doc_id, "1", str(-i), tag]) for i, doc_id in enumerate(doc_ids)
    ]
    path.write_text("".join(row + end for row, end in zip(rows, ends, strict=False)), newline="")
    assert read_run(str(path)).order == {"q": doc_ids}
    if joined + 1 < len(rows):
        ends[joined] = by
        path.write_text(
            "".join(row + end for row, end in zip(rows, ends, strict=False)), newline=""
        )
        with pytest.raises(PreflightError) as caught:
            read_run(str(path))
        assert caught.value.place == sum(end.count("\n") for end in ends[:joined]) + 1


def test_truncated_runs_are_refused(tmp_path):
    whole = gzip.compress(b"".join(b"q Q0 doc-%d 1 %d t\n" % (i, i * 7919) for i in range(1000)))
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "other.gz").write_bytes(b"q Q0 a 1 2 t\n")
    for name in ("cut.gz", "other.gz"):
        with refuses(PreflightError, "damaged", file=name):
            read_run(str(tmp_path / name))


@pytest.mark.data
def test_real_runs(shared_data):
    run = read_run(str(shared_data / "msmarco/ans_small/run.monobert.ans_small.dev.tsv.gz"))
    assert (run.notes.format, run.notes.queries, run.notes.rows) == ("msmarco", 105, 105_000)
    assert run.order["188714"][:3] == ["4321745", "6301923", "6442308"]
    commented = read_run(str(shared_data / "trec_eval/results.comment.test.gz"))
    assert (commented.notes.format, commented.notes.rows) == ("trec", 30_100)
    assert commented.order["2024-224960"][0] == "msmarco_v2.1_doc_50_2286987788#13_3087841662"


@pytest.mark.data
def test_words_after_the_run_tag_are_refused(shared_data):
    with refuses(PreflightError, "columns", 1):
        read_run(str(shared_data / "trec_eval/results.trunc"))


def test_run_of_orders_as_the_file_would_be_ordered(tmp_path):
    scores: dict[str, dict[str, float]] = {
        "q1": {"b": 1.0, "a": 2.0, "é": 1.0, "c": 1.0 + 1e-12},
        "q2": {"x": 5},
    }
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
        assert [each.tolist() for each in found.scores.values()] == [
            each.tolist() for each in wanted.scores.values()
        ]
        assert found.notes == wanted.notes


def test_run_of_leaves_queries_without_docs_out():
    assert list(run_of({"q1": {}, "q2": {"d": 1.0}}).order) == ["q2"]


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({}, "run"),
        ({"q": {"a b": 1.0}}, "'a b'"),
        ({"#q": {"a": 1.0}}, "#"),
        ({"q": {"d": float("nan")}}, "'q': .*'d' .*nan"),
        ({"q": {"d": 1e39}}, "'q': .*'d' .*inf"),
        ({1: {"d": 1.0}}, "int"),
    ],
)
def test_run_of_refuses_bad_scores(scores, message):
    with pytest.raises(DataError, match=message):
        run_of(scores)
