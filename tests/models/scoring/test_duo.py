from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest

from beamrank.commit import schemas
from beamrank.errors import DataError
from beamrank.ranking.aggregation import sampled_opponents
from beamrank.ranking.input_layout import InputLimits
from models.scoring.engine import ScoringEngine
from tests.support.models.tables import score_duo, shard
from tests.support.oracle import Oracle, assert_parity
from tests.support.rankings import best_docs

ORIGINAL = InputLimits("original", 64, 512)
PAPER = InputLimits("paper", 64, 512)

Rows = Sequence[tuple[str, Sequence[int], Mapping[str, Sequence[int]]]]


def _mono(scores: dict[str, dict[str, float]]) -> pa.Table:
    """monoBERT's scores, candidates in rank order."""
    rows = [
        {"query_id": query_id, "doc_id": doc_id, "segment": 0, "rank": rank, "score": score}
        for query_id, docs in scores.items()
        for rank, (doc_id, score) in enumerate(docs.items(), start=1)
    ]
    return pa.Table.from_pylist(rows, schema=schemas.MONO)


def _matrix(row: dict[str, list[float]]) -> np.ndarray:
    count = len(row["doc_ids"])
    return np.array(row["scores"], np.float32).reshape(count, count)


def _check_parity(
    engine: ScoringEngine, oracle: Oracle, queries: list[list[int]], text: list[int], inputs: int
) -> None:
    """Two docs a query: the inputs (q, 1, 2) and (q, 2, 1), of every length from 4 to 510,
    evenly.
    """
    rows, docs = [], []
    source = iter(text)
    for number, length in enumerate(np.linspace(4, 510, inputs // 2).astype(int).tolist()):
        query = queries[number % len(queries)][: max(0, length - 4) // 3]
        first = min((length - 4 - len(query)) * (number % 4 + 3) // 8, 223)
        second = min(length - 4 - len(query) - first, 223)
        docs.append((query, list(islice(source, first)), list(islice(source, second))))
        rows.append((f"q{number:03d}", query, {"d1": docs[-1][1], "d2": docs[-1][2]}))
    mono = _mono({query_id: {"d1": 2.0, "d2": 1.0} for query_id, _, _ in rows})
    table, counts = score_duo(engine, shard(rows), best_docs(mono, 2), PAPER, None, 0)
    assert counts.inferences + counts.duplicate_inputs == 2 * len(rows)
    assert counts.truncated_docs == counts.truncated_queries == 0
    found, wanted = [], []
    for row, (query, first_doc, second_doc) in zip(table.to_pylist(), docs, strict=True):
        found += [_matrix(row)[0, 1], _matrix(row)[1, 0]]
        wanted += [
            oracle.log_odds(query, first_doc, second_doc),
            oracle.log_odds(query, second_doc, first_doc),
        ]
    assert np.std(wanted) > 1
    assert_parity(found, wanted)


@pytest.mark.parametrize("count", [12, pytest.param(500, marks=pytest.mark.slow)])
def test_duo_equals_transformers_on_every_length(minilm_duo, queries, text, count):
    engine, oracle = minilm_duo
    _check_parity(engine, oracle, queries, text, count)


@pytest.fixture(scope="module")
def rows(queries: list[list[int]], text: list[int]) -> Rows:
    docs = {f"d{number}": text[number * 40 : number * 40 + 20 + number] for number in range(6)}
    return [
        ("q2", queries[0], docs),
        ("q1", queries[1], {"only": text[:15]}),
        ("q0", queries[2], {}),
    ]


@pytest.fixture(scope="module")
def mono() -> pa.Table:
    scores = {"d0": 0.5, "d1": 3.0, "d2": -1.0, "d3": 3.0, "d4": 9.0, "d5": 0.25}
    return _mono({"q1": {"only": 1.0}, "q2": scores})


def test_duo_compares_the_best_k(duo_engine, duo_oracle, rows, mono):
    table, counts = score_duo(duo_engine, shard(rows), best_docs(mono, 3), ORIGINAL, None, 0)
    assert table.schema == schemas.DUO
    assert table["query_id"].to_pylist() == ["q2", "q1", "q0"]
    best = ["d4", "d1", "d3"]
    assert table["doc_ids"].to_pylist() == [best, ["only"], []]
    matrices = [_matrix(row) for row in table.to_pylist()]
    assert np.isnan(np.diag(matrices[0])).all()
    assert np.isnan(matrices[1]).all()
    assert matrices[2].size == 0
    _, query, docs = rows[0]
    pairs = [(first, second) for first in range(3) for second in range(3) if first != second]
    wanted = [
        duo_oracle.log_odds(query, docs[best[first]], docs[best[second]]) for first, second in pairs
    ]
    assert_parity([float(matrices[0][pair]) for pair in pairs], wanted)
    assert (counts.queries, counts.inferences, counts.duplicate_inputs) == (3, 6, 0)
    assert counts.tokens == 6 * (4 + len(query)) + 4 * sum(len(docs[doc_id]) for doc_id in best)


def test_sample_asks_some_of_the_same_pairs(duo_engine, rows, mono):
    full, _ = score_duo(duo_engine, shard(rows), best_docs(mono, 6), ORIGINAL, None, 0)
    some, counts = score_duo(duo_engine, shard(rows), best_docs(mono, 6), ORIGINAL, 2, 17)
    doc_ids = full["doc_ids"][0].as_py()
    assert some["doc_ids"][0].as_py() == doc_ids
    asked = sampled_opponents("q2", doc_ids, 2, 17)
    assert counts.inferences == asked.sum() == 12
    one, other = _matrix(some.to_pylist()[0]), _matrix(full.to_pylist()[0])
    assert (~np.isnan(one) == asked).all()
    np.testing.assert_allclose(one[asked], other[asked], rtol=0, atol=1e-4)


@pytest.mark.parametrize("opponents", [5, 9])
def test_sample_of_enough_opponents_is_sum(duo_engine, rows, mono, opponents):
    full, _ = score_duo(duo_engine, shard(rows), best_docs(mono, 6), ORIGINAL, None, 0)
    drawn, _ = score_duo(duo_engine, shard(rows), best_docs(mono, 6), ORIGINAL, opponents, 1)
    assert _matrix(drawn.to_pylist()[0]).tobytes() == _matrix(full.to_pylist()[0]).tobytes()


def test_duo_truncation_and_equal_inputs(duo_engine, duo_oracle, queries, text):
    query = queries[3]
    room = (512 - len(query) - 2) // 2 - 2
    docs = {"a": [*text[:room], 5], "b": text[400:430], "c": [*text[:room], 6, 7]}
    rows = [("q", query, docs), ("long", text[:100], {"lonely": text[:512]})]
    mono = _mono({"q": {"a": 3.0, "b": 2.0, "c": 1.0}, "long": {"lonely": 1.0}})
    table, counts = score_duo(duo_engine, shard(rows), best_docs(mono, 3), ORIGINAL, None, 0)
    a, b = text[:room], docs["b"]
    ab, ba, aa = (duo_oracle.log_odds(query, *pair) for pair in ((a, b), (b, a), (a, a)))
    scores = _matrix(table.to_pylist()[0])
    assert_parity(scores[~np.eye(3, dtype=bool)].tolist(), [ab, aa, ba, ba, aa, ab])
    assert scores[0, 1] == scores[2, 1]
    assert scores[0, 2] == scores[2, 0]
    assert (counts.inferences, counts.duplicate_inputs) == (3, 3)
    assert (counts.truncated_queries, counts.truncated_docs, counts.candidates) == (0, 2, 3)


def test_doc_that_the_corpus_lacks_is_not_compared(duo_engine, rows):
    table, _ = score_duo(duo_engine, shard(rows), {"q2": ["d9", "d0", "d1"]}, ORIGINAL, None, 0)
    assert table["doc_ids"].to_pylist()[0] == ["d0", "d1"]


def test_query_of_a_different_shard_is_refused(duo_engine, rows):
    with pytest.raises(DataError, match="'q7'"):
        score_duo(
            duo_engine, shard(rows), best_docs(_mono({"q7": {"d0": 1.0}}), 6), ORIGINAL, None, 0
        )


def test_duo_scores_an_empty_shard(duo_engine):
    table, counts = score_duo(duo_engine, shard([]), best_docs(_mono({}), 6), ORIGINAL, None, 0)
    assert table.num_rows == counts.inferences == 0
