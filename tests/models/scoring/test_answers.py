"""Answers of earlier shards: the same bits as without them, and no inference for what is known."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beamrank.commit import schemas
from beamrank.ranking.input_layout import InputLimits, SegmentRule
from models.scoring.answers import Answered, Answers, Contents
from models.scoring.duo import known_duo, prepare_duo
from models.scoring.engine import Prepared, ScoringEngine, StageCounts, no_scores
from models.scoring.mono import known_mono, prepare_mono
from models.stages.compute import ShardInputs
from tests.support.models.tables import Row, score_duo, score_mono, shard
from tests.support.rankings import best_docs, first_docs

LIMITS = InputLimits("paper", 16, 96)
RULES = [None, SegmentRule(20, 10, 4), SegmentRule(30, 15, 3)]
QUERIES = 5

# Of some queries: the number of each, with its docs in rank order.
Drawn = dict[int, list[int]]
drawn_shards = st.dictionaries(
    st.integers(0, QUERIES - 1), st.lists(st.integers(0, 11), max_size=6, unique=True), min_size=1
)
quick = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def doc_texts(text: list[int]) -> list[list[int]]:
    """Texts of many lengths; the last two are the same within the limit of an input."""
    texts = [text[doc * 5 : doc * 5 + (doc * 23) % 110] for doc in range(11)]
    return [*texts, [*text[:90], 7], [*text[:90], 8]]


def _rows(
    drawn: Drawn, doc_texts: Sequence[Sequence[int]], text: Sequence[int], renamed: int
) -> list[Row]:
    """A shard's rows; with `renamed`, doc_ids name other texts than in other shards."""
    return [
        (
            f"q{query}",
            text[query * 7 : query * 7 + 3 + query],
            {f"d{doc - renamed}": doc_texts[doc] for doc in docs},
        )
        for query, docs in sorted(drawn.items())
    ]


def _as_mono(rows: Sequence[Row]) -> pa.Table:
    ranked = [
        {"query_id": query_id, "doc_id": doc_id, "segment": 0, "rank": rank, "score": -float(rank)}
        for query_id, _, docs in rows
        for rank, doc_id in enumerate(docs, start=1)
    ]
    return pa.Table.from_pylist(ranked, schemas.MONO)


def _score(
    prepared: Prepared, known: Iterable[Answers], engine: ScoringEngine | None = None
) -> tuple[pa.Table, StageCounts]:
    """What a stage does; without an engine, everything must be known."""
    inputs = ShardInputs(0, lambda _: pytest.fail("a part is read"), earlier=known)
    answered = Answered.of(prepared, inputs.find)
    assert engine is not None or not len(answered.rest)
    return answered.finish(no_scores(0) if engine is None else engine.score(answered.rest))


def _mono_answers(tokens: pa.Table, part: pa.Table, rule: SegmentRule | None = None) -> Answers:
    return known_mono(part, Contents.of(tokens, instructed=False), LIMITS.max_length, rule)


def _duo_answers(tokens: pa.Table, part: pa.Table) -> Answers:
    return known_duo(part, tokens, LIMITS.max_length)


def _assert_same(found: tuple[pa.Table, StageCounts], fresh: tuple[pa.Table, StageCounts]) -> None:
    """The same rows to the bit; what was not scored was reused."""
    table, counts = found
    assert _bits(table) == _bits(fresh[0])
    assert counts.inferences + counts.reused == fresh[1].inferences
    assert counts.duplicate_inputs == fresh[1].duplicate_inputs


def _bits(table: pa.Table) -> list[object]:
    """Columns as lists; NaN equals itself as bits."""
    return [
        [
            np.array(cell, np.float32).tobytes() if name in ("score", "scores") else cell
            for cell in column.to_pylist()
        ]
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]


@given(
    earlier=st.lists(drawn_shards, max_size=2),
    now=drawn_shards,
    k=st.integers(1, 6),
    data=st.data(),
)
@quick
def test_known_mono_scores_are_those_of_the_engine(
    mono_engine, doc_texts, text, earlier, now, k, data
):
    model = mono_engine.checkpoint.architecture
    known = []
    for drawn in earlier:
        tokens = shard(_rows(drawn, doc_texts, text, data.draw(st.integers(0, 1))))
        then, rule = (
            first_docs(tokens, data.draw(st.integers(1, 6))),
            data.draw(st.sampled_from(RULES)),
        )
        part, _ = score_mono(mono_engine, tokens, then, LIMITS, rule)
        known.append(_mono_answers(tokens, part, rule))
    tokens, rule = shard(_rows(now, doc_texts, text, 0)), data.draw(st.sampled_from(RULES))
    fresh = score_mono(mono_engine, tokens, first_docs(tokens, k), LIMITS, rule)
    prepared = prepare_mono(model, tokens, first_docs(tokens, k), LIMITS, rule)
    _assert_same(_score(prepared, known, mono_engine), fresh)
    found = _score(prepared, [_mono_answers(tokens, fresh[0], rule)])
    _assert_same(found, fresh)
    assert found[1].inferences == 0


@given(
    earlier=st.lists(drawn_shards, max_size=2),
    now=drawn_shards,
    k=st.integers(1, 6),
    data=st.data(),
)
@quick
def test_known_duo_scores_are_those_of_the_engine(
    duo_engine, doc_texts, text, earlier, now, k, data
):
    model = duo_engine.checkpoint.architecture
    asked = st.tuples(st.none() | st.integers(1, 3), st.integers(0, 1))
    known = []
    for drawn in earlier:
        rows = _rows(drawn, doc_texts, text, data.draw(st.integers(0, 1)))
        duo, _ = score_duo(
            duo_engine, shard(rows), best_docs(_as_mono(rows), k), LIMITS, *data.draw(asked)
        )
        known.append(_duo_answers(shard(rows), duo))
    rows, sample = _rows(now, doc_texts, text, 0), data.draw(asked)
    fresh = score_duo(duo_engine, shard(rows), best_docs(_as_mono(rows), k), LIMITS, *sample)
    prepared = prepare_duo(model, shard(rows), best_docs(_as_mono(rows), k), LIMITS, *sample)
    _assert_same(_score(prepared, known, duo_engine), fresh)
    found = _score(prepared, [_duo_answers(shard(rows), fresh[0])])
    _assert_same(found, fresh)
    assert found[1].inferences == 0


def test_known_scores_are_read_only_while_an_input_is_missing(mono_engine, text):
    model = mono_engine.checkpoint.architecture
    rows = [
        (f"q{number}", text[:4], {"d": text[end : end + 9]}) for number, end in pairwise(range(3))
    ]
    tokens = shard(rows)
    table, _ = score_mono(mono_engine, tokens, first_docs(tokens, 5), LIMITS)

    def known():
        yield _mono_answers(tokens, table)
        pytest.fail("everything is known, and a second part is read")

    found, counts = _score(prepare_mono(model, tokens, first_docs(tokens, 5), LIMITS), known())
    assert found.equals(table)
    assert (counts.inferences, counts.reused, counts.tokens) == (0, 2, 0)


def test_engine_scores_only_what_no_part_has(mono_engine, text):
    tokens = shard([("q", text[:4], {"d1": text[5:9], "d2": text[9:20]})])
    first = shard([("q", text[:4], {"d1": text[5:9]})])
    table, _ = score_mono(mono_engine, first, first_docs(first, 5), LIMITS)
    model = mono_engine.checkpoint.architecture
    marked = dict.fromkeys(_mono_answers(first, table), 123.5)
    found, counts = _score(
        prepare_mono(model, tokens, first_docs(tokens, 5), LIMITS), [marked], mono_engine
    )
    fresh, _ = score_mono(mono_engine, tokens, first_docs(tokens, 5), LIMITS)
    assert found["score"].to_pylist() == [123.5, fresh["score"][1].as_py()]
    assert (counts.inferences, counts.reused) == (1, 1)
