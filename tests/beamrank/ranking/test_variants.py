"""The variants of a stage: each has the positions of the ranking that its part gives with the same
settings.
"""

import numpy as np
import pyarrow as pa
import pytest

from beamrank.commit import schemas
from beamrank.ranking.aggregation import (
    METHODS,
    aggregate,
    opponent_order,
    sample_sums,
    simulate_sample,
)
from beamrank.ranking.combine import Combine
from beamrank.ranking.rankings import Ranking, rank_docs, rank_pairs
from beamrank.ranking.variants import Depths, depth_variants, opponents, pair_variants

K = 8


@pytest.fixture(scope="module")
def drawn():
    """The rankings of queries with 0 to 14 docs, of which a stage before scored some, with ties of
    all scores.
    """
    random = np.random.default_rng(3)
    before, mono, duo = {}, [], []
    for number in range(15):
        query_id, docs = f"q{number:02}", [f"d{each}" for each in random.permutation(number)]
        scored = int(random.integers(1, number + 1)) if number % 3 else number
        before[query_id] = Ranking(tuple(docs), np.arange(number, 0, -1.0), scored)
        # The corpus lacks some docs, and all that were due of one query.
        kept = [
            doc_id for doc_id in docs[: min(K, scored)] if random.random() > 0.2 and number != 7
        ]
        scores = np.round(random.normal(size=len(kept)))
        mono += [
            {
                "query_id": query_id,
                "doc_id": doc_id,
                "segment": 0,
                "rank": rank,
                "score": float(score),
            }
            for rank, (doc_id, score) in enumerate(zip(kept, scores, strict=True), 1)
        ]
        z = np.round(random.normal(size=(len(kept), len(kept)))).astype(np.float32)
        np.fill_diagonal(z, np.nan)
        duo.append({"query_id": query_id, "doc_ids": kept, "scores": z.ravel().tolist()})
    return before, pa.Table.from_pylist(mono, schemas.MONO), pa.Table.from_pylist(duo, schemas.DUO)


def _assert_equal(variants, before, part, ranked, settings):
    """Every variant has every candidate where the ranking with its settings has it."""
    after = ranked()
    found = {
        query_id: (doc_ids, positions(np.arange(len(doc_ids))))
        for query_id, doc_ids, positions in variants.positions(before, after, part)
    }
    assert found.keys() == before.keys()
    for column, variant in enumerate(variants.variants):
        ranking = ranked(**settings(variant))
        for query_id, (doc_ids, positions) in found.items():
            assert sorted(doc_ids) == sorted(after[query_id].doc_ids)
            assert sorted(positions[:, column].tolist()) == [*range(1, len(doc_ids) + 1)]
            assert positions.dtype == np.int64
            order = [doc_ids[place] for place in np.argsort(positions[:, column])]
            assert order == list(ranking[query_id].doc_ids), (query_id, variant)


def test_depths_are_those_of_a_stage_that_scored_fewer(drawn):
    before, mono, _ = drawn
    variants = depth_variants(K, Depths())
    assert [(each.k0, each.inferences, each.inferences_asked) for each in variants.variants] == [
        (k0, k0, k0) for k0 in range(K + 1)
    ]
    _assert_equal(
        variants,
        before,
        mono,
        lambda k=None: rank_docs(before, mono, K, k=k),
        lambda variant: {"k": variant.k0},
    )


@pytest.mark.parametrize("normalize", ["minmax", "zscore", "none"])
@pytest.mark.parametrize("k0s", [(), (0, 3), (99,)])
def test_depths_of_combined_scores_are_those_of_a_stage_that_scored_fewer(drawn, normalize, k0s):
    before, mono, _ = drawn
    combine = Combine(0.5, normalize)
    variants = depth_variants(K, Depths(k0s=k0s), combine)
    assert [each.k0 for each in variants.variants] == [k0 for k0 in k0s or range(K + 1) if k0 <= K]
    _assert_equal(
        variants,
        before,
        mono,
        lambda k=None: rank_docs(before, mono, K, k=k, combine=combine),
        lambda variant: {"k": variant.k0},
    )


def test_combined_scores_have_at_most_a_hundred_depths_by_default():
    k0s = [each.k0 for each in depth_variants(250, Depths(), combine=Combine(0.5, "none")).variants]
    assert k0s == [*range(0, 250, 3), 250]


def test_pairs_are_those_of_a_stage_that_compared_fewer_or_aggregates_otherwise(drawn):
    before, _, duo = drawn
    variants = pair_variants(K, Depths(opponents=(1, 3, 9), trials=2))
    assert len(variants.variants) == (1 + 7) * (7 + 3 * 2)

    def settings(variant):
        sampled = {} if variant.opponents is None else {"drawn": (variant.opponents, variant.trial)}
        return {"k": variant.k1, "aggregation": variant.aggregation, **sampled}

    def ranked(aggregation="sum", **others):
        return rank_pairs(before, duo, K, aggregation, **others)

    _assert_equal(variants, before, duo, ranked, settings)


def test_inferences_of_sample_are_those_of_the_caption_and_those_that_are_asked():
    variants = pair_variants(5, Depths(opponents=(1, 3, 9), trials=1)).variants
    found = {
        (each.k1, each.opponents): (each.inferences, each.inferences_asked) for each in variants
    }
    assert [found[5, None], found[5, 1], found[5, 3], found[5, 9]] == [
        (20, 20),
        (0, 5),
        (10, 15),
        (20, 20),
    ]
    assert [found[2, None], found[2, 1], found[2, 3]] == [(2, 2), (0, 2), (2, 2)]
    assert found[0, None] == found[0, 3] == (0, 0)


def test_sample_of_several_sizes_equals_the_aggregation():
    random = np.random.default_rng(2)
    docs = [f"d{number}" for number in range(20)]
    z = np.round(random.normal(scale=6, size=(20, 20)), 1).astype(np.float32)
    order = opponent_order("q", docs, 3)
    for count, scores in sample_sums(z, order, (1, 7, 19, 30)).items():
        assert np.array_equal(scores, aggregate(simulate_sample(z, "q", docs, count, 3), "sample"))


@pytest.mark.parametrize(
    ("k", "k1s"), [(50, [0, 10, 20, 30, 40, 50]), (20, [0, *range(2, 21)]), (2, [0, 2])]
)
def test_default_points_are_those_of_the_paper_without_sample(k, k1s):
    variants = pair_variants(k, Depths()).variants
    assert list(dict.fromkeys(each.k1 for each in variants)) == k1s
    assert {(each.opponents, each.trial) for each in variants} == {(None, None)}
    assert {each.aggregation for each in variants} == {*METHODS} - {"sample"}


def test_sample_is_drawn_for_the_opponents_that_are_asked():
    variants = pair_variants(50, Depths(opponents=(20, 10))).variants
    assert {each.opponents for each in variants} == {10, 20, None}
    assert {each.trial for each in variants} == {*range(10), None}
    assert {each.aggregation for each in variants} == set(METHODS)


def test_points_beyond_the_stored_ones_are_left_out():
    assert [each.k0 for each in depth_variants(8, Depths(k0s=(0, 4, 99))).variants] == [0, 4]
    assert {each.k1 for each in pair_variants(8, Depths(k1s=(1, 3, 99))).variants} == {0, 3}
    assert pair_variants(1, Depths()).variants == []
    assert [variants(8, Depths())[:2] for variants in (depth_variants, pair_variants)] == [
        (2, 8),
        (3, 8),
    ]


def test_opponents_are_those_with_the_extreme_log_odds(drawn):
    _, _, duo = drawn
    assert opponents(duo, "none") == {}
    for row in duo.to_pylist():
        docs, found = row["doc_ids"], opponents(duo, row["query_id"])
        assert set(found) == set(docs if len(docs) > 1 else [])
        for number, doc_id in enumerate(docs if len(docs) > 1 else []):
            odds = dict(zip(docs, row["scores"][number * len(docs) :], strict=False))
            del odds[doc_id]
            strongest, weakest = found[doc_id]["strongest"], found[doc_id]["weakest"]
            assert strongest.log_odds == min(odds.values()) == odds[strongest.doc_id]
            assert weakest.log_odds == max(odds.values()) == odds[weakest.doc_id]
