"""Rankings from stage tables, by hand and against the in-memory loop of the papers."""

import numpy as np
import pyarrow as pa
import pytest

from beamrank.commit.schemas import CANDIDATES, DUO, MONO
from beamrank.errors import ConfigError, DataError
from beamrank.ranking.aggregation import sampled_opponents
from beamrank.ranking.combine import Combine, normalized
from beamrank.ranking.input_layout import SegmentPooling
from beamrank.ranking.rankings import (
    Ranking,
    order,
    rank_candidates,
    rank_docs,
    rank_pairs,
    received,
)
from benchmarks.differential.ranking import check
from tests.support.rankings import duo_ranking, mono_ranking

NAN = float("nan")


def _candidates(*rows):
    return pa.Table.from_pylist(
        [dict(zip(CANDIDATES.names, row, strict=True)) for row in rows], schema=CANDIDATES
    )


def _mono(*rows):
    return pa.Table.from_pylist(
        [dict(zip(MONO.names, row, strict=True)) for row in rows], schema=MONO
    )


def _duo(*rows):
    return pa.Table.from_pylist(
        [dict(zip(DUO.names, row, strict=True)) for row in rows], schema=DUO
    )


FOUR = _candidates(("q", "a", 1, 9.0), ("q", "b", 2, 8.0), ("q", "c", 3, 7.5), ("q", "d", 4, 3.0))
MONO_OF_THREE = _mono(("q", "a", 0, 1, -2.0), ("q", "b", 0, 2, 5.0), ("q", "c", 0, 3, 1.0))
BY_MONO = mono_ranking(FOUR, MONO_OF_THREE)


def _docs(ranking):
    return [doc_id for doc_id, _ in ranking]


def _rows(rankings):
    return {query_id: list(ranking) for query_id, ranking in rankings.items()}


def test_first_stage_keeps_the_order_of_its_part():
    table = _candidates(("q", "a", 1, 9.0), ("q", "b", 2, 8.0), ("r", "x", 1, 1.5))
    assert _rows(rank_candidates(table)) == {"q": [("a", 9.0), ("b", 8.0)], "r": [("x", 1.5)]}
    assert [ranking.scored for ranking in rank_candidates(table).values()] == [2, 1]
    assert rank_candidates(CANDIDATES.empty_table()) == {}


def test_order_puts_ties_in_the_order_before_and_nan_last():
    assert order(np.array([1.0, NAN, 2.0, 1.0, 2.0])).tolist() == [2, 4, 0, 3, 1]


def test_doc_that_the_corpus_lacks_leaves_where_it_was_due():
    before = rank_candidates(FOUR)
    mono = _mono(("q", "a", 0, 1, -2.0), ("q", "c", 0, 3, 1.0))
    # b was due among the first three, whatever k; d was not.
    for k, expected in (
        (None, ["c", "a", "d"]),
        (0, ["a", "c", "d"]),
        (1, ["a", "c", "d"]),
        (3, ["c", "a", "d"]),
    ):
        ranking = rank_docs(before, mono, 3, k=k)["q"]
        assert _docs(ranking) == expected
        assert ranking.scored == (2 if k in (None, 3) else k)
    # The next stage receives c and a alone.
    duo = _duo(("q", ["c", "a"], [NAN, -1.0, 1.0, NAN]))
    assert _docs(rank_pairs(rank_docs(before, mono, 3), duo, 4, "sum")["q"]) == ["a", "c", "d"]


def test_fewer_pairs_are_those_of_the_first_docs_before_also_if_the_corpus_lacks_one():
    before = rank_candidates(FOUR)
    duo = _duo(("q", ["a", "c", "d"], [NAN, -1.0, -1.0, 1.0, NAN, 1.0, 1.0, -1.0, NAN]))
    # b was due and is gone: among the first two only a was compared, among the first three a and c.
    for k, expected in ((2, ["a", "c", "d"]), (3, ["c", "a", "d"]), (None, ["c", "d", "a"])):
        assert _docs(rank_pairs(before, duo, 4, "binary", k=k)["q"]) == expected


def test_query_without_scores_loses_the_docs_that_were_due():
    found = rank_docs(rank_candidates(FOUR), MONO.empty_table(), 3)["q"]
    assert (found.doc_ids, found.scored) == (("d",), 0)


@pytest.mark.parametrize(
    ("mono", "ranking"),
    [
        (MONO_OF_THREE, [("b", 5.0), ("c", 1.0), ("a", -2.0), ("d", -3.0)]),
        (_mono(("q", "b", 0, 2, 5.0)), [("b", 5.0), ("a", 4.0), ("c", 2.5), ("d", -2.0)]),
        (
            _mono(("q", "a", 0, 1, -2.0), ("q", "c", 0, 3, 1.0)),
            [("c", 1.0), ("a", -2.0), ("b", -3.0), ("d", -8.0)],
        ),
        (MONO.empty_table(), [("a", 9.0), ("b", 8.0), ("c", 7.5), ("d", 3.0)]),
    ],
)
def test_mono_ranking_puts_unscored_candidates_below(mono, ranking):
    assert _rows(mono_ranking(FOUR, mono)) == {"q": ranking}


@pytest.mark.parametrize(
    ("method", "scores", "expected"),
    [
        ("minmax", [4.0, 1.0, 2.0], [1.0, 0.0, 1 / 3]),
        ("zscore", [1.0, 3.0, 1.0, 3.0], [-1.0, 1.0, -1.0, 1.0]),
        ("none", [4.0, 1.0], [4.0, 1.0]),
        ("minmax", [7.0, 7.0], [0.0, 0.0]),
        ("zscore", [0.1, 0.1, 0.1], [0.0, 0.0, 0.0]),
        ("none", [7.0, 7.0], [7.0, 7.0]),
        ("minmax", [5.0], [0.0]),
        ("zscore", [5.0], [0.0]),
        ("minmax", [], []),
        ("zscore", [], []),
        ("zscore", [1e-300, 0.0], [1.0, -1.0]),
        ("zscore", [1e300, -1e300], [1.0, -1.0]),
    ],
)
def test_scores_are_normalized_as_by_hand(method, scores, expected):
    found = normalized(np.array(scores, np.float64), method)
    assert found.dtype == np.float64
    assert found.tolist() == expected


# Own scores: a -2, b 5, c 1; before: a 9, b 8, c 7.5.
@pytest.mark.parametrize(
    ("combine", "k", "ranking"),
    [
        # a: .5 * 0 + .5 * 1; b: .5 * 1 + .5 * (1 / 3); c: .5 * 3 / 7.
        (
            Combine(0.5, "minmax"),
            None,
            [("b", 0.5 + 0.5 * (0.5 / 1.5)), ("a", 0.5), ("c", 1.5 / 7), ("d", 1.5 / 7 - 1)],
        ),
        (Combine(1.0, "none"), None, [("b", 5.0), ("c", 1.0), ("a", -2.0), ("d", -3.0)]),
        (Combine(0.0, "none"), None, [("a", 9.0), ("b", 8.0), ("c", 7.5), ("d", 6.5)]),
        (Combine(0.25, "none"), None, [("b", 7.25), ("a", 6.25), ("c", 5.875), ("d", 4.875)]),
        # Over the first two: a tie, in the order before; the others keep their spacing.
        (Combine(0.5, "minmax"), 2, [("a", 0.5), ("b", 0.5), ("c", -0.5), ("d", -5.0)]),
        (Combine(0.75, "minmax"), 2, [("b", 0.75), ("a", 0.25), ("c", -0.75), ("d", -5.25)]),
        (Combine(0.5, "zscore"), 2, [("a", 0.0), ("b", 0.0), ("c", -1.0), ("d", -5.5)]),
        (Combine(0.5, "minmax"), 1, [("a", 0.0), ("b", -1.0), ("c", -1.5), ("d", -6.0)]),
        (Combine(0.5, "minmax"), 0, [("a", 9.0), ("b", 8.0), ("c", 7.5), ("d", 3.0)]),
    ],
)
def test_scores_are_combined_with_those_before(combine, k, ranking):
    found = rank_docs(rank_candidates(FOUR), MONO_OF_THREE, 3, k=k, combine=combine)["q"]
    assert _docs(found) == [doc_id for doc_id, _ in ranking]
    assert dict(found) == pytest.approx(dict(ranking), rel=1e-15)
    own = {"a": -2.0, "b": 5.0, "c": 1.0}
    assert found.own_scores.tolist() == [own[doc_id] for doc_id in found.doc_ids[: found.scored]]


def test_scores_are_combined_after_pooling_over_the_docs_that_the_corpus_has():
    before = rank_candidates(FOUR)
    mono = _mono(("q", "a", 0, 1, -2.0), ("q", "a", 1, 1, 4.0), ("q", "c", 0, 3, 3.0))
    # b was due and is gone: a has 9 before and c 7.5.
    orders: dict[SegmentPooling, list[str]] = {"max": ["a", "c", "d"], "first": ["c", "a", "d"]}
    for pooling, expected in orders.items():
        ranking = rank_docs(before, mono, 3, pooling, combine=Combine(0.6, "minmax"))["q"]
        assert _docs(ranking) == expected
    assert next(iter(ranking)) == ("c", 0.6)


@pytest.mark.parametrize("normalize", ["minmax", "zscore", "none"])
def test_score_that_is_not_finite_is_not_combined(normalize):
    part = _mono(("q", "a", 0, 1, float("inf")), ("q", "b", 0, 2, 1.0))
    with np.errstate(invalid="ignore"), pytest.raises(DataError, match=r"'q': .*finite"):
        rank_docs(rank_candidates(FOUR), part, 3, combine=Combine(0.5, normalize))


def test_ties_keep_the_previous_order():
    mono = _mono(
        ("q", "c", 0, 3, 1.0), ("q", "b", 0, 2, 1.0), ("q", "a", 0, 1, 1.0), ("q", "d", 0, 4, 2.0)
    )
    assert _docs(mono_ranking(FOUR, mono)["q"]) == ["d", "a", "b", "c"]
    duo = _duo(("q", ["b", "c", "a"], [NAN, -1.0, 1.0, 1.0, NAN, -1.0, -1.0, 1.0, NAN]))
    assert _docs(duo_ranking(BY_MONO, duo, "binary")["q"]) == ["b", "c", "a", "d"]


@pytest.mark.parametrize(
    ("doc_ids", "z", "aggregation", "ranking"),
    [
        (
            ["b", "c"],
            [NAN, -1.0, 2.0, NAN],
            "min",
            [("c", 2.0), ("b", -1.0), ("a", -2.0), ("d", -3.0)],
        ),
        (["b", "c"], [NAN, 30.0, 20.0, NAN], "max", [("b", 30), ("c", 20), ("a", 19), ("d", 18)]),
        ([], [], "sum", [("b", 5.0), ("c", 1.0), ("a", -2.0), ("d", -3.0)]),
        (["b"], [NAN], "sum", [("b", 0.0), ("c", -1.0), ("a", -4.0), ("d", -5.0)]),
    ],
)
def test_duo_ranking_puts_compared_docs_above_monos_others(doc_ids, z, aggregation, ranking):
    assert _rows(duo_ranking(BY_MONO, _duo(("q", doc_ids, z)), aggregation)) == {"q": ranking}


def test_query_without_candidates_has_no_ranking():
    assert duo_ranking({}, _duo(("q", [], [])), "sum") == {}


@pytest.mark.parametrize("row", [("q", "x", 0, 1, 1.0), ("r", "a", 0, 1, 1.0)])
def test_mono_score_of_a_foreign_doc_is_an_error(row):
    with pytest.raises(DataError, match=r"'[qr]': .*'[xa]'"):
        mono_ranking(FOUR, _mono(row))


@pytest.mark.parametrize(
    ("rows", "aggregation", "error", "message"),
    [
        ([("q", ["b", "x"], [NAN, 1.0, 1.0, NAN])], "sum", DataError, "'q': .*'x'"),
        ([], "sum", DataError, "'q' "),
        ([("q", ["b", "c"], [NAN, 1.0, 1.0])], "sum", DataError, "'q': 2 .*4 .*3"),
        ([("q", ["b", "c"], [NAN, NAN, 1.0, NAN])], "sum", DataError, "'q': 1 .*2 "),
        ([("q", ["b", "c"], [NAN, 1.0, 1.0, NAN])], "mean", ConfigError, "'mean'"),
    ],
)
def test_duo_scores_that_do_not_fit_are_an_error(rows, aggregation, error, message):
    with pytest.raises(error, match=message):
        duo_ranking(BY_MONO, _duo(*rows), aggregation)


def test_sample_ranks_by_the_pairs_that_were_scored():
    duo = _duo(("q", ["b", "c"], [NAN, NAN, 1.0, NAN]))
    assert _docs(duo_ranking(BY_MONO, duo, "sample")["q"]) == ["c", "b", "a", "d"]


def _random_stages(queries, k, mono_k, duo_k):
    """Stage tables, and nothing of rankings.py in them."""
    random = np.random.default_rng(5)
    candidates, mono, duo = [], [], []
    for number in range(queries):
        query_id = f"q{number}"
        doc_ids = [f"d{doc}" for doc in random.permutation(1000)[:k]]
        bm25 = np.sort(random.gamma(9, 1, k).astype(np.float32))[::-1]
        z = np.round(random.normal(0, 4, mono_k), 1).astype(np.float32)
        pairwise = random.normal(0, 4, (duo_k, duo_k)).astype(np.float32)
        np.fill_diagonal(pairwise, np.nan)
        candidates += [(query_id, doc_id, i + 1, bm25[i]) for i, doc_id in enumerate(doc_ids)]
        mono += [(query_id, doc_ids[i], 0, i + 1, z[i]) for i in range(mono_k)]
        admitted = [doc_ids[i] for i in sorted(range(mono_k), key=lambda i: (-z[i], i))[:duo_k]]
        duo.append((query_id, admitted, pairwise.reshape(-1)))
    return _candidates(*candidates), _mono(*mono), _duo(*duo)


def test_next_stage_receives_only_docs_that_were_scored():
    rankings = {"q": Ranking(("a", "b", "c"), np.array([3.0, 2.0, 1.0]), 2)}
    assert [received(rankings, k) for k in (1, 2, 3)] == [
        {"q": ("a",)},
        {"q": ("a", "b")},
        {"q": ("a", "b")},
    ]


def _restricted(duo, k1):
    rows = duo.to_pylist()
    z = [
        np.array(row["scores"], dtype=np.float32).reshape(len(row["doc_ids"]), -1)[:k1, :k1]
        for row in rows
    ]
    return _duo(
        *(
            (row["query_id"], row["doc_ids"][:k1], each.ravel())
            for row, each in zip(rows, z, strict=True)
        )
    )


def test_smaller_k1_compares_only_the_leading_block():
    candidates, mono, duo = _random_stages(queries=3, k=12, mono_k=9, duo_k=4)
    by_mono = mono_ranking(candidates, mono)
    smaller = duo_ranking(by_mono, duo, "sum", k1=3)
    whole = _rows(duo_ranking(by_mono, duo, "sum"))
    assert _rows(smaller) == _rows(duo_ranking(by_mono, _restricted(duo, 3), "sum")) != whole
    assert _docs(smaller["q0"])[3:] == _docs(by_mono["q0"])[3:]
    assert _rows(duo_ranking(by_mono, duo, "sum", k1=99)) == whole


def test_opponents_are_drawn_from_a_full_matrix():
    candidates, mono, duo = _random_stages(queries=3, k=12, mono_k=9, duo_k=6)
    by_mono = mono_ranking(candidates, mono)
    for row in duo.to_pylist():
        asked = sampled_opponents(row["query_id"], row["doc_ids"], 2, seed=1)
        p = 1 / (1 + np.exp(-np.array(row["scores"], dtype=np.float64).reshape(6, 6)))
        ranking = duo_ranking(by_mono, duo, "sample", drawn=(2, 1))[row["query_id"]]
        expected = dict(zip(row["doc_ids"], np.where(asked, p, 0).sum(axis=1), strict=True))
        assert dict(list(ranking)[:6]) == pytest.approx(expected)


def test_random_draws_equal_plain_loops(tmp_path):
    assert sum(check(seed, tmp_path) for seed in range(60)) > 60_000
