"""A given run in the order in which the first stage takes it."""

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from beamrank.formats.columns import Columns
from beamrank.formats.rejects import Rejects
from beamrank.formats.run_order import Ties
from beamrank.formats.run_units import RunBatch, RunReader, digest_run
from beamrank.formats.schemas import Hints
from beamrank.join.run_shards import in_place_order, order_shard, routed


@dataclass(frozen=True)
class GivenOrder:
    """The docs and scores of each query, the counts of its one shard, and what the units told."""

    order: dict[str, list[str]]
    scores: dict[str, list[float]]
    counts: dict[str, int]
    batches: list[RunBatch]
    units: int
    rejects: Rejects


def read_given(
    path: Path | str,
    ties: Ties = "rank",
    unit_bytes: int = 1 << 20,
    max_bad_rows: int = 0,
    columns: Columns = MappingProxyType({}),
) -> GivenOrder:
    """Reads a run in units, whose batches come in any order, for one shard with all queries."""
    run = digest_run(str(path))
    reader = RunReader.of(run, Hints(columns))
    units = reader.units(run, unit_bytes)
    rejects = Rejects(reader.kind, max_bad_rows)
    batches = [
        (number, batch) for number, unit in enumerate(units) for batch in reader.read(unit, rejects)
    ]
    query_ids = {
        query_id for _, batch in batches for query_id in batch.rows.column("query_id").to_pylist()
    }
    rows = in_place_order([routed(batch.rows, number) for number, batch in batches[::-1]])
    found = order_shard(
        rows,
        query_ids,
        1 << 20,
        reader.layout,
        ties,
        lambda unit, position: reader.where(units[unit], position),
    )
    order: dict[str, list[str]] = {}
    scores: dict[str, list[float]] = {}
    for row in found.candidates.to_pylist():
        order.setdefault(row["query_id"], []).append(row["doc_id"])
        scores.setdefault(row["query_id"], []).append(row["score"])
    return GivenOrder(
        order, scores, found.counts, [batch for _, batch in batches], len(units), rejects
    )
