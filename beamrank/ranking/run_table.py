"""Runs as tables: the rankings of a stage with the stage that each doc's place comes from, and its own scores."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beamrank.formats.run_writer import RUN_TABLE, scores_of_query
from beamrank.join.schemas import candidates_table
from beamrank.ranking.rankings import Ranking, Rankings


def run_table(rankings: Rankings, stages: Mapping[str, Sequence[str]]) -> Any:
    """The table of some rankings.

    Args:
        rankings: of a shard.
        stages: see `ranked_by`.

    Returns:
        A table of `RUN_TABLE`.

    Raises:
        DataError: a score is not finite in float32.
    """
    doc_ids, counts = [each.doc_ids for each in rankings.values()], [len(each.doc_ids) for each in rankings.values()]
    scores = [scores_of_query(query_id, each.scores.tolist()) for query_id, each in rankings.items()]
    table = candidates_table(list(rankings), doc_ids, scores)
    raw = np.concatenate([np.empty(0), *(each.scores for each in rankings.values())])
    scored = np.repeat([each.scored for each in rankings.values()], counts)
    columns = [
        *table.columns,
        pa.array([stage for query_id in rankings for stage in stages[query_id]], pa.string()),
        pa.array(raw, mask=table["rank"].to_numpy() > scored),
    ]
    return pa.table(columns, schema=RUN_TABLE)


def ranked_by(stage: str, rankings: Rankings, before: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """The stage that each doc's place comes from, by query_id: the one that scored it last.

    Args:
        stage: the one that gives the rankings.
        rankings: of a shard.
        before: of the docs of the stage before, by query_id and doc_id.
    """

    def of_query(query_id: str, ranking: Ranking) -> list[str]:
        tail = ranking.doc_ids[ranking.scored :]
        return [stage] * ranking.scored + [before[query_id][doc_id] for doc_id in tail]

    return {query_id: of_query(query_id, ranking) for query_id, ranking in rankings.items()}
