"""A stage's input as the join leaves it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beamrank.commit import schemas
from beamrank.commit.schemas import Texts, candidates_table, tokenized_table
from beamrank.ranking.input_layout import InputTemplate
from beamrank.records import SpecialTokens
from models.architectures.families import bert_template
from models.scoring.duo import prepare_duo
from models.scoring.engine import Prepared, ScoringEngine, StageCounts
from models.scoring.mono import prepare_mono
from tests.support.checkpoints import SPECIAL

Row = tuple[str, Sequence[int], Mapping[str, Sequence[int]]]


def template(segments: int, special: SpecialTokens = SPECIAL) -> InputTemplate:
    """BERT's, around so many texts."""
    return bert_template(special, segments)


def shard(rows: Sequence[Row], special: SpecialTokens = SPECIAL) -> pa.Table:
    """A tokenized shard from (query_id, query tokens, doc tokens by doc_id in rank order)."""
    ids = {name: str(token_id) for name, token_id in special._asdict().items() if name != "fixed"}
    schema = schemas.tokenized(30522).with_metadata(ids)
    query_ids = [query_id for query_id, _, _ in rows]
    candidates = candidates_table(query_ids, [list(docs) for _, _, docs in rows])
    queries = pa.array([list(query) for _, query, _ in rows], schema.field("query_tokens").type)
    docs = pa.array([list(doc) for _, _, docs in rows for doc in docs.values()], queries.type)
    topics, texts = (Texts.of(each, list(map(str, each.to_pylist()))) for each in (queries, docs))
    return tokenized_table(schema, query_ids, topics, candidates, texts, np.arange(len(docs)))


def score_mono(engine: ScoringEngine, *arguments: Any) -> tuple[pa.Table, StageCounts]:
    """Scores what `prepare_mono` prepares."""
    return score_prepared(engine, prepare_mono(engine.checkpoint.architecture, *arguments))


def score_duo(engine: ScoringEngine, *arguments: Any) -> tuple[pa.Table, StageCounts]:
    """Scores what `prepare_duo` prepares."""
    return score_prepared(engine, prepare_duo(engine.checkpoint.architecture, *arguments))


def score_prepared(engine: ScoringEngine, prepared: Prepared) -> tuple[pa.Table, StageCounts]:
    """Scores all inputs."""
    return prepared.finish(engine.score(prepared.inputs))
