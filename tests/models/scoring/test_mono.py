from itertools import islice

import numpy as np
import pytest

from beamrank.commit import schemas
from beamrank.ranking.input_layout import InputLimits, SegmentRule
from models.scoring.engine import ScoringEngine, StageCounts
from tests.support.models.tables import Row, score_mono, shard
from tests.support.oracle import Oracle, assert_parity
from tests.support.rankings import first_docs

ORIGINAL = InputLimits("original", 64, 512)
PAPER = InputLimits("paper", 64, 512)


def _pairs(
    queries: list[list[int]], text: list[int], count: int
) -> list[tuple[list[int], list[int]]]:
    """Real pairs whose inputs have every length from 3 to 512, evenly."""
    pairs = []
    source = iter(text)
    for number, length in enumerate(np.linspace(3, 512, count).astype(int).tolist()):
        query = queries[number % len(queries)][: (length - 3) // 2 if length < 40 else 62]
        pairs.append((query, list(islice(source, length - 3 - len(query)))))
    return pairs


def _check_parity(
    engine: ScoringEngine, oracle: Oracle, pairs: list[tuple[list[int], list[int]]]
) -> None:
    tokens = shard(
        [(f"q{number:03d}", query, {"d": doc}) for number, (query, doc) in enumerate(pairs)]
    )
    table, counts = score_mono(engine, tokens, first_docs(tokens, 1), PAPER)
    assert counts.inferences == len(pairs)
    assert counts.truncated_docs == counts.truncated_queries == 0
    assert counts.tokens == sum(3 + len(query) + len(doc) for query, doc in pairs)
    wanted = [oracle.log_odds(query, doc) for query, doc in pairs]
    assert np.std(wanted) > 1
    assert_parity(table["score"].to_pylist(), wanted)


@pytest.mark.parametrize("count", [12, pytest.param(500, marks=pytest.mark.slow)])
def test_mono_equals_transformers_on_every_length(minilm_mono, queries, text, count):
    engine, oracle = minilm_mono
    _check_parity(engine, oracle, _pairs(queries, text, count))


def test_mono_truncates_scores_the_first_k_and_sorts(mono_engine, mono_oracle, queries, text):
    long_query = text[:80]
    rows = [
        ("b", queries[0], {"short": text[:20], "long": text[100:612], "left out": text[:9]}),
        ("a", long_query, {"empty": [], "long": text[100:612]}),
        ("c", queries[1], {}),
    ]
    table, counts = score_mono(mono_engine, shard(rows), first_docs(shard(rows), 2), ORIGINAL)
    assert table.schema == schemas.MONO
    assert table.select(["query_id", "doc_id", "segment", "rank"]).to_pylist() == [
        {"query_id": "a", "doc_id": "empty", "segment": 0, "rank": 1},
        {"query_id": "a", "doc_id": "long", "segment": 0, "rank": 2},
        {"query_id": "b", "doc_id": "short", "segment": 0, "rank": 1},
        {"query_id": "b", "doc_id": "long", "segment": 0, "rank": 2},
    ]
    wanted = [
        mono_oracle.log_odds(long_query[:62], []),
        mono_oracle.log_odds(long_query[:62], text[100 : 100 + 446]),
        mono_oracle.log_odds(queries[0], text[:20]),
        mono_oracle.log_odds(queries[0], text[100 : 100 + 508 - len(queries[0])]),
    ]
    assert_parity(table["score"].to_pylist(), wanted)
    tokens = 65 + 511 + (3 + len(queries[0]) + 20) + 511
    assert counts == StageCounts(
        queries=3,
        candidates=4,
        inferences=4,
        tokens=tokens,
        # The two long inputs, of 512 rows each, fill a block of 1,024; the others are in a second
        # one.
        padded_tokens=2 * 1024,
        halvings=0,
        truncated_queries=1,
        truncated_docs=2,
        duplicate_inputs=0,
        reused=0,
    )


def test_mono_inputs_equal_after_truncation_are_scored_once(mono_engine, queries, text):
    head = text[:509]
    rows = [
        (
            "a",
            queries[0],
            {"d1": [*head, 7, 8], "d2": text[:30], "d3": [*head, 9], "d4": text[:30]},
        ),
        ("b", queries[1], {"d2": text[:30]}),
    ]
    table, counts = score_mono(mono_engine, shard(rows), first_docs(shard(rows), 10), ORIGINAL)
    scores = table["score"].to_pylist()
    assert counts.inferences == 3
    assert counts.duplicate_inputs == 2
    assert scores[0] == scores[2]
    assert scores[1] == scores[3]
    assert len(set(scores)) == 3


def test_hf_rule_cuts_the_longer_text(mono_engine, mono_oracle, text):
    limits = InputLimits("hf", 64, 64)
    rows = [("q", text[:40], {"d1": text[100:110], "d2": text[200:260]})]
    table, counts = score_mono(mono_engine, shard(rows), first_docs(shard(rows), 2), limits)
    wanted = [
        mono_oracle.log_odds(text[:40], text[100:110]),
        mono_oracle.log_odds(text[:30], text[200:231]),
    ]
    assert_parity(table["score"].to_pylist(), wanted)
    assert (counts.truncated_queries, counts.truncated_docs) == (1, 1)


def test_mono_scores_a_shard_without_candidates(mono_engine, queries):
    cases: list[list[Row]] = [[], [("a", queries[0], {})]]
    for rows in cases:
        table, counts = score_mono(mono_engine, shard(rows), first_docs(shard(rows), 10), ORIGINAL)
        assert table.num_rows == 0
        assert table.schema == schemas.MONO
        assert (counts.queries, counts.inferences) == (len(rows), 0)


def test_segments_are_inputs_of_their_own(mono_engine, mono_oracle, queries, text):
    rows = [("q", queries[0], {"long": text[:50], "short": text[:20], "beyond": text[100:180]})]
    table, counts = score_mono(
        mono_engine, shard(rows), first_docs(shard(rows), 3), ORIGINAL, SegmentRule(20, 15, 3)
    )
    assert table.select(["doc_id", "segment", "rank"]).to_pylist() == [
        {"doc_id": doc_id, "segment": segment, "rank": rank}
        for rank, doc_id, count in ((1, "long", 3), (2, "short", 1), (3, "beyond", 3))
        for segment in range(count)
    ]
    windows = [
        text[:20],
        text[15:35],
        text[30:50],
        text[:20],
        text[100:120],
        text[115:135],
        text[130:150],
    ]
    assert_parity(
        table["score"].to_pylist(), [mono_oracle.log_odds(queries[0], window) for window in windows]
    )
    assert (counts.inferences, counts.duplicate_inputs, counts.truncated_docs) == (6, 1, 1)
