"""The rows of a given run that are a shard's: checked for duplicates, in their order, cut to the
first docs.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.schemas import CANDIDATES
from beamrank.errors import PreflightError
from beamrank.formats.id_places import repeated_rows
from beamrank.formats.run_order import RunLayout, Ties, order_rows, run_values
from beamrank.notes import counted

# The rows of the shuffle, of a unit of the run, with its number.
ROUTED = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("rank", pa.int64()),
        pa.field("score", pa.float32()),
        pa.field("place", pa.int64(), nullable=False),
        pa.field("unit", pa.int32(), nullable=False),
    ]
)


def routed(rows: pa.RecordBatch, unit: int) -> pa.RecordBatch:
    """Rows of a unit as `ROUTED`."""
    return pa.record_batch(
        [*rows.columns, pa.array(np.full(len(rows), unit, np.int32))], schema=ROUTED
    )


@dataclass(frozen=True)
class ShardRun:
    """The candidates of a shard, `CANDIDATES` sorted by query_id and rank, and what was found.

    Attributes:
        candidates: the candidates of the shard's topics.
        counts: how many rows are tied, have a rank that disagrees, or are of queries that are no
            topics.
        foreign: the id of the first of those queries.
    """

    candidates: pa.Table
    counts: dict[str, int]
    foreign: str | None


def in_place_order(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """The rows of a shard, by unit and place: batches of a unit hold its rows in order, and come in
    any.
    """

    def key(batch: pa.RecordBatch) -> tuple[int, ...]:
        positions = batch.column("place")
        return batch.column("unit")[0].as_py(), positions[0].as_py(), positions[-1].as_py()

    return pa.Table.from_batches(
        sorted((batch for batch in batches if len(batch)), key=key), ROUTED
    ).combine_chunks()


def order_shard(
    rows: pa.Table,
    query_ids: Collection[str],
    depth: int,
    layout: RunLayout,
    ties: Ties,
    where: Callable[[int, int], tuple[str, str]],
) -> ShardRun:
    """Puts a shard's rows in their order (`order_rows`), and keeps the first `depth` docs of its
    topics.

    Queries that are no topics are checked and counted. `rows` are `ROUTED`, by place, `query_ids`
    the shard's topics; `where` gives the file of a row and its place in it, by the number of its
    unit and its position.

    Raises:
        PreflightError: a query has a doc twice.
    """
    repeated = repeated_rows(rows["query_id"], rows["doc_id"])
    if repeated:
        places = rows.select(["unit", "place"]).take(pa.array(repeated[0]))
        (url, here), (first_url, there) = map(where, *places.to_pydict().values())
        query_id, doc_id = (rows[name][repeated[0][0]].as_py() for name in ("query_id", "doc_id"))
        raise PreflightError(
            f"{url} is not a valid run: {counted(len(repeated), 'duplicate')}\n  {here}: query "
            f"{query_id!r} has doc {doc_id!r} already "
            f"{'on' if there.startswith('line') else 'at'} "
            f"{there}{'' if first_url == url else f' of {first_url}'}. Remove one of the rows"
        )
    ordered = order_rows(_ranked(rows) if layout.listed else rows, "query_id", layout, ties)
    rows, places = ordered.rows, ordered.places
    is_topic = np.asarray(pc.is_in(rows["query_id"], pa.array(sorted(query_ids), pa.string())))
    foreign = rows.filter(pa.array(~is_topic)).sort_by(
        [("unit", "ascending"), ("place", "ascending")]
    )
    counts = {
        "without_ranks": 0 if layout.has_ranks else len(rows),
        "tied_scores" if layout.has_scores else "tied_ranks": ordered.tied,
        "rank_disagreements": int(ordered.disagreements.sum()),
        "foreign_queries": pc.count_distinct(foreign["query_id"]).as_py(),
    }
    kept = np.flatnonzero(is_topic & (places < depth))
    ids = rows.select(["query_id", "doc_id"]).take(pa.array(kept))
    ranks, scores = (places[kept] + 1).astype(np.int32), run_values(ordered, layout)[kept]
    columns = [*ids.columns, pa.array(ranks), pa.array(scores)]
    candidates = pa.Table.from_arrays(columns, schema=CANDIDATES)
    first = foreign["query_id"][0].as_py() if len(foreign) else None
    return ShardRun(candidates, {name: count for name, count in counts.items() if count}, first)


def _ranked(rows: pa.Table) -> pa.Table:
    """Listed candidates with their order as rank; one without a score has minus the rank."""
    rows = rows.take(pc.sort_indices(rows, sort_keys=[("query_id", "ascending")]))
    codes = rows["query_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    ranks = np.arange(len(rows)) - np.searchsorted(codes, codes) + 1
    scores = pc.coalesce(rows["score"], pa.array(-ranks.astype(np.float32)))
    return rows.set_column(2, ROUTED.field("rank"), pa.array(ranks)).set_column(
        3, ROUTED.field("score"), scores
    )
