"""The rows of a given run that are a shard's: checked for duplicates, in their order, cut to the first docs."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.errors import PreflightError
from beamrank.formats.notes import counted
from beamrank.formats.runs import Ties
from beamrank.join.run_rows import ROWS
from beamrank.join.run_units import RunLayout
from beamrank.join.schemas import CANDIDATES

# The rows of the shuffle: those of a unit, with its number.
SENT = ROWS.insert(4, pa.field("unit", pa.int32(), nullable=False))


def sent(rows: pa.RecordBatch, unit: int) -> pa.RecordBatch:
    """Rows of a unit as `SENT`."""
    units = pa.array(np.full(len(rows), unit, np.int32))
    return pa.record_batch([*rows.columns[:4], units, rows.column(4)], schema=SENT)


@dataclass(frozen=True)
class ShardRun:
    """The candidates of a shard, `CANDIDATES` sorted by query_id and rank, and what was found.

    Attributes:
        candidates: those of the shard's topics.
        counts: how many rows are tied, have a rank that disagrees, or are of queries that are no topics.
        foreign: the place, by unit and position, and the id of the first of those queries.
    """

    candidates: pa.Table
    counts: dict[str, int]
    foreign: tuple[tuple[int, int], str] | None


def in_place_order(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """The rows of a shard, by unit and place: batches of a unit hold its rows in order, and come in any."""

    def key(batch: pa.RecordBatch) -> tuple[int, ...]:
        positions = batch.column("position")
        return batch.column("unit")[0].as_py(), positions[0].as_py(), positions[-1].as_py()

    return pa.Table.from_batches(sorted((batch for batch in batches if len(batch)), key=key), SENT).combine_chunks()


def order_shard(
    rows: pa.Table,
    query_ids: Collection[str],
    depth: int,
    layout: RunLayout,
    ties: Ties,
    where: Callable[[int, int], tuple[str, str]],
) -> ShardRun:
    """Puts a shard's rows in their order: by score, descending, then by rank and place, or by doc_id, descending.

    Args:
        rows: `SENT`, by place; queries that are no topics are checked and counted too.
        query_ids: the shard's topics.
        depth: how many docs of a topic are kept.
        layout: of the run.
        ties: how tied scores are ordered.
        where: the file of a row and its place in it, by the number of its unit and its position.

    Raises:
        PreflightError: a query has a doc twice.
    """
    _check_duplicates(rows, where)
    rows = _ranked(rows) if layout.listed else rows
    by_rank = not layout.has_scores or (ties == "rank" and layout.has_ranks)
    keys = [("query_id", "ascending"), *([("score", "descending")] if layout.has_scores else [])]
    keys.append(("rank", "ascending") if by_rank else ("doc_id", "descending"))
    rows = rows.take(pc.sort_indices(rows, sort_keys=keys))
    starts, same = _queries(rows)
    ranks = rows["rank"].to_numpy()
    scores = rows["score"].to_numpy() if layout.has_scores else -ranks.astype(np.float32)
    values = scores if layout.has_scores else ranks
    tied = int(np.count_nonzero(same & (values[1:] == values[:-1])))
    has_both = layout.has_scores and layout.has_ranks
    is_topic = np.asarray(pc.is_in(rows["query_id"], pa.array(sorted(query_ids), pa.string())))
    foreign = rows.filter(pa.array(~is_topic)).sort_by([("unit", "ascending"), ("position", "ascending")])
    counts = {
        "without_ranks": 0 if layout.has_ranks else len(rows),
        "tied_scores": tied if layout.has_scores else 0,
        "tied_ranks": 0 if layout.has_scores else tied,
        "rank_disagreements": int(np.count_nonzero(same & (ranks[1:] <= ranks[:-1]))) if has_both else 0,
        "foreign_queries": pc.count_distinct(foreign["query_id"]).as_py(),
    }
    places = np.arange(len(ranks)) - starts
    kept = np.flatnonzero(is_topic & (places < depth))
    columns = [
        rows["query_id"].take(pa.array(kept)),
        rows["doc_id"].take(pa.array(kept)),
        pa.array((places[kept] + 1).astype(np.int32)),
        pa.array(scores[kept]),
    ]
    first = None
    if len(foreign):
        query_id, unit, position = (foreign[name][0].as_py() for name in ("query_id", "unit", "position"))
        first = (unit, position), query_id
    found = {name: count for name, count in counts.items() if count}
    return ShardRun(pa.Table.from_arrays(columns, schema=CANDIDATES), found, first)


def _queries(rows: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Of rows sorted by query: where the query of each begins, int64[n]; whether the next is its, bool[n - 1]."""
    query_ids = rows["query_id"].combine_chunks()
    same = np.asarray(pc.equal(query_ids[1:], query_ids[:-1]).to_numpy(zero_copy_only=False), np.bool_)
    begins = np.flatnonzero(np.concatenate([np.ones(min(len(rows), 1), np.bool_), ~same]))
    return np.repeat(begins, np.diff([*begins, len(rows)])), same


def _ranked(rows: pa.Table) -> pa.Table:
    """Listed candidates with their order as rank; one without a score has minus the rank."""
    rows = rows.take(pc.sort_indices(rows, sort_keys=[("query_id", "ascending")]))
    ranks = np.arange(len(rows)) - _queries(rows)[0] + 1
    scores = pc.coalesce(rows["score"], pa.array(-ranks.astype(np.float32)))
    return rows.set_column(2, ROWS.field("rank"), pa.array(ranks)).set_column(3, ROWS.field("score"), scores)


def _check_duplicates(rows: pa.Table, where: Callable[[int, int], tuple[str, str]]) -> None:
    keys = rows.select(["query_id", "doc_id"])
    pairs = keys.group_by(["query_id", "doc_id"]).aggregate([([], "count_all")])
    if len(pairs) == len(rows):
        return
    repeated = len(rows) - len(pairs)
    seen: dict[tuple[Any, ...], int] = {}
    for at, pair in enumerate(zip(*(column.to_pylist() for column in keys.columns), strict=True)):
        first = seen.setdefault(pair, at)
        if first != at:
            units, positions = rows["unit"], rows["position"]
            before, here = (where(units[each].as_py(), positions[each].as_py()) for each in (first, at))
            raise _duplicate(pair, before, here, repeated)


def _duplicate(pair: tuple[str, str], first: tuple[str, str], second: tuple[str, str], count: int) -> PreflightError:
    already = f"already {'on' if first[1].startswith('line') else 'at'} {first[1]}"
    of_file = "" if first[0] == second[0] else f" of {first[0]}"
    return PreflightError(
        f"{second[0]} is not a valid run: {counted(count, 'duplicate')}\n  {second[1]}: query {pair[0]!r} has doc "
        f"{pair[1]!r} {already}{of_file}. Remove one of the rows"
    )
