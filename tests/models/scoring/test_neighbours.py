"""On a CPU, a score depends on its own input: not on the shard, the batch, the token budget or the
threads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beamrank.commit import schemas
from beamrank.ranking.input_layout import InputLimits
from models.checkpoints.checkpoint import resolve_checkpoint
from models.scoring.engine import ScoringEngine
from tests.support.models.tables import Row, score_duo, score_mono, shard
from tests.support.rankings import best_docs, first_docs
from tests.support.tiers import slow_but

LIMITS = InputLimits("paper", 16, 96)
QUERIES, DOCS = 8, 4


@cache
def _engine(folder: str, kind: str, dtype: str, threads: int, token_budget: int) -> ScoringEngine:
    return ScoringEngine(resolve_checkpoint(folder, kind), "cpu", dtype, threads, token_budget)


@dataclass(frozen=True, eq=False)
class _Collection:
    """Queries with docs of many lengths, some of them the same, and what scores them."""

    folder: str
    kind: str
    rows: Sequence[Row]

    def scores(self, engine: ScoringEngine, queries: Sequence[int]) -> dict[str, bytes]:
        """The bits of each query's scores, of a shard of some queries."""
        rows = [self.rows[query] for query in queries]
        if self.kind == "mono":
            table, _ = score_mono(engine, shard(rows), first_docs(shard(rows), DOCS), LIMITS)
            names, values = table["query_id"].to_pylist(), table["score"].to_numpy()
            return {name: values[[each == name for each in names]].tobytes() for name in set(names)}
        mono = [
            {
                "query_id": query_id,
                "doc_id": doc_id,
                "segment": 0,
                "rank": rank,
                "score": -float(rank),
            }
            for query_id, _, docs in rows
            for rank, doc_id in enumerate(docs, start=1)
        ]
        table, _ = score_duo(
            engine,
            shard(rows),
            best_docs(pa.Table.from_pylist(mono, schemas.MONO), DOCS),
            LIMITS,
            None,
            0,
        )
        return {
            row["query_id"]: np.array(row["scores"], np.float32).tobytes()
            for row in table.to_pylist()
        }


@cache
def _alone(collection: _Collection, dtype: str) -> dict[str, bytes]:
    """The scores of each query in a shard of its own, an input at a time."""
    engine = _engine(collection.folder, collection.kind, dtype, 1, 1)
    return {
        key: bits
        for query in range(QUERIES)
        for key, bits in collection.scores(engine, [query]).items()
    }


@pytest.fixture(scope="module", params=["mono", "duo"])
def collection(request: pytest.FixtureRequest, text: list[int]) -> _Collection:
    """Lengths from 3 tokens to the limit."""
    rows = []
    for query in range(QUERIES):
        docs = {f"d{doc}": text[doc : doc + (query * 31 + doc * 17) % 90] for doc in range(DOCS)}
        rows.append((f"q{query}", text[query * 7 : query * 7 + query], docs))
    return _Collection(request.getfixturevalue(f"{request.param}_checkpoint"), request.param, rows)


@pytest.mark.parametrize("dtype", slow_but(1, ["float32", "bfloat16"]))
@given(
    order=st.permutations(range(QUERIES)),
    borders=st.sets(st.integers(1, QUERIES - 1)),
    setting=st.sampled_from(list(product((1, 3), (1, 200, 4096)))),
)
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_score_does_not_depend_on_its_shard(collection, dtype, order, borders, setting):
    cuts = [0, *sorted(borders), QUERIES]
    shards = [order[start:end] for start, end in pairwise(cuts)]
    engine = _engine(collection.folder, collection.kind, dtype, *setting)
    found = {
        key: bits for queries in shards for key, bits in collection.scores(engine, queries).items()
    }
    assert found == _alone(collection, dtype)
    assert len(set(found.values())) == QUERIES
