"""Writing runs: scores that every evaluator orders alike."""

import itertools
import math

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from beamrank.errors import DataError
from beamrank.formats.run_writer import run_lines, strictly_decreasing, write_run
from beamrank.formats.runs import read_run

_MAX = 3.0e38
_scores = st.lists(
    st.one_of(
        st.floats(-_MAX, _MAX, allow_nan=False),
        st.floats(-20, 20),
        st.floats(-1e-30, 1e-30),
        st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0**24, -(2.0**24), 1e30, 1e-45, 0.1, 49.0]),
    ),
    min_size=1,
    max_size=60,
).map(lambda scores: sorted(scores, reverse=True))


def _by_hand(scores):
    """design: s_r = min(float32(x_r), s_(r-1) - max(1e-5, 4 ulp))."""
    decreasing: list[np.float32] = []
    for score in map(np.float32, scores):
        if decreasing:
            last = decreasing[-1]
            step = max(np.float32(1e-5), np.float32(4) * np.spacing(abs(last)))
            score = min(score, np.float32(last - step))
        decreasing.append(score)
    return decreasing


@settings(max_examples=100, deadline=None)
@given(_scores)
def test_scores_decrease_strictly_as_the_formula_says(scores):
    decreasing = strictly_decreasing(scores)
    assert decreasing.dtype == np.float32
    assert decreasing.tolist() == [float(score) for score in _by_hand(scores)]
    assert (decreasing[1:] < decreasing[:-1]).all()
    assert (decreasing <= np.array(scores, dtype=np.float32)).all()


@settings(max_examples=100, deadline=None)
@given(_scores)
def test_printed_score_reads_back_as_the_same_float32(scores):
    ranking = [(f"d{i}", score) for i, score in enumerate(scores)]
    printed = [line.split()[4] for line in run_lines("q", ranking, "t")]
    assert [np.float32(text) for text in printed] == strictly_decreasing(scores).tolist()
    as_double = [float(text) for text in printed]
    assert all(after < before for before, after in itertools.pairwise(as_double))


def test_equal_scores_are_a_step_apart():
    assert strictly_decreasing([1.0, 1.0, 1.0, 0.5]).tolist() == pytest.approx(
        [1, 0.99999, 0.99998, 0.5], abs=1e-7
    )
    assert np.diff(strictly_decreasing([1e8] * 3)).tolist() == [-32, -32]
    assert strictly_decreasing([]).tolist() == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e39])
@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("run_format", ["trec", "msmarco"])
def test_score_that_is_not_finite_is_an_error(bad, position, run_format, tmp_path):
    scores = [3.0, 2.0, 1.0]
    scores[position] = bad
    ranking = [(f"d{i}", score) for i, score in enumerate(scores)]
    with pytest.raises(DataError, match=rf"'q': .* {position + 1} "):
        write_run(str(tmp_path / "a.run"), {"q": ranking}, "t", run_format)
    assert list(tmp_path.iterdir()) == []


def test_scores_pushed_below_float32_are_an_error():
    with pytest.raises(DataError, match=" 2 "):
        strictly_decreasing([-3.4028235e38, -3.4028235e38])


def test_run_lines_of_both_formats():
    ranking = [("b", 0.1), ("a", 0.1), ("c", -12345.6789)]
    assert list(run_lines("q", ranking, "my-tag")) == [
        "q Q0 b 1 0.100000001 my-tag",
        "q Q0 a 2 0.0999900028 my-tag",
        "q Q0 c 3 -12345.6787 my-tag",
    ]
    assert list(run_lines("q", ranking, "my-tag", "msmarco")) == ["q\tb\t1", "q\ta\t2", "q\tc\t3"]


def test_percent_signs_of_ids_are_text():
    assert list(run_lines("q%s", [("d%d", 1.0)], "t%")) == ["q%s Q0 d%d 1 1 t%"]
    assert list(run_lines("q%s", [("d%d", 1.0)], "t%", "msmarco")) == ["q%s\td%d\t1"]


@settings(max_examples=60, deadline=None)
@given(st.lists(_scores, min_size=1, max_size=4))
def test_run_order_is_the_same_in_every_reader(tmp_path_factory, queries):
    rankings = {
        f"q{9 - number}": [(f"d{(i * 7) % 61}", score) for i, score in enumerate(scores)]
        for number, scores in enumerate(queries)
    }
    expected = {
        query_id: [doc_id for doc_id, _ in ranking] for query_id, ranking in rankings.items()
    }
    folder = tmp_path_factory.mktemp("runs")
    trec, msmarco = str(folder / "a.trec"), str(folder / "a.tsv")
    write_run(trec, rankings, "t")
    write_run(msmarco, rankings, "t", "msmarco")
    for run in (read_run(trec), read_run(trec, ties="rank"), read_run(msmarco)):
        assert run.order == expected
        assert list(run.order) == list(expected)
        assert run.notes.lines() == []
    with open(trec) as file:
        scored = pytrec_eval.parse_run(file)
    for query_id, doc_ids in expected.items():
        assert _reciprocal_ranks(query_id, scored[query_id]) == {
            doc_id: 1 / r for r, doc_id in enumerate(doc_ids, 1)
        }


def _reciprocal_ranks(query_id, scored):
    """The rank at which trec_eval's own sorting puts each doc: a query for each, with that doc
    alone relevant.
    """
    qrels = {doc_id: {doc_id: 1} for doc_id in scored}
    measured = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(
        dict.fromkeys(scored, scored)
    )
    return {doc_id: values["recip_rank"] for doc_id, values in measured.items()}


def test_run_replaces_an_older_one(tmp_path):
    path = tmp_path / "deep" / "a.trec"
    write_run(str(path), {"q": [("a", 1.0)], "none": []}, "one")
    write_run(str(path), {"b": [("é", 1.0)], "a": [("x", 2.0)]}, "two")
    assert path.read_bytes() == "b Q0 é 1 1 two\na Q0 x 1 2 two\n".encode()
    assert [file.name for file in path.parent.iterdir()] == ["a.trec"]
