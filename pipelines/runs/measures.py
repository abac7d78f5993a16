"""`measures.json`: the means of each run and the values of each topic; above 100,000 topics these are a table."""

import io
import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.commit.listing import RUNS
from beamrank.evaluation.evaluate import Evaluation
from beamrank.storage import files as storage

MEASURES, PER_QUERY = "measures.json", "per-query.parquet"
# More topics make a table: JSON of millions of values would have to be read whole.
MOST_IN_JSON = 100_000
_SCHEMA = pa.schema(
    {"query_id": pa.string(), "run": pa.string(), "measure": pa.string(), "value": pa.float64()},
    metadata={"beamrank.schema": "per_query/1"},
)


def write_measures(output: str, evaluations: Mapping[str, Evaluation]) -> None:
    """Writes the measures of runs, by their names."""
    table = storage.join(output, RUNS, PER_QUERY)
    if _are_many(evaluations):
        storage.replace(table, _table_content(evaluations))
    else:
        storage.remove(table)
    storage.replace(storage.join(output, RUNS, MEASURES), _json_content(evaluations))


def changed_measures(output: str, evaluations: Mapping[str, Evaluation]) -> Iterator[str]:
    """The files of `write_measures` that do not hold these measures."""
    if storage.read_bytes(storage.join(output, RUNS, MEASURES)) != _json_content(evaluations):
        yield MEASURES
    if _are_many(evaluations) and not _holds(storage.join(output, RUNS, PER_QUERY), evaluations):
        yield PER_QUERY


def _are_many(evaluations: Mapping[str, Evaluation]) -> bool:
    return any(len(each.per_query) > MOST_IN_JSON for each in evaluations.values())


def _json_content(evaluations: Mapping[str, Evaluation]) -> bytes:
    means: dict[str, Any] = {name: each.means for name, each in evaluations.items()}
    if not _are_many(evaluations):
        means["per_query"] = {name: dict(each.per_query.items()) for name, each in evaluations.items()}
    return json.dumps(means, indent=1).encode()


def _table_content(evaluations: Mapping[str, Evaluation]) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, _SCHEMA, compression="zstd") as writer:
        for group in _groups(evaluations):
            writer.write_table(group, len(group))
    return sink.getvalue()


def _groups(evaluations: Mapping[str, Evaluation]) -> Iterator[Any]:
    """The table, a row group for each run and measure, in the order of the topics."""
    for run, each in evaluations.items():
        values = each.per_query
        order = pa.array(values.order)
        query_ids = values.ids.take(order)
        for name in each.means:
            names = (pa.repeat(pa.scalar(label, pa.string()), len(order)) for label in (run, name))
            yield pa.table([query_ids, *names, pa.array(values.of(name)).take(order)], schema=_SCHEMA)


def _holds(table: str, evaluations: Mapping[str, Evaluation]) -> bool:
    try:
        with storage.open_binary(table) as source:
            file = pq.ParquetFile(source)
            stored = (file.read_row_group(group) for group in range(file.num_row_groups))
            pairs = zip_longest(stored, _groups(evaluations))
            return all(one is not None and one.equals(other, check_metadata=True) for one, other in pairs)
    except (FileNotFoundError, pa.ArrowException):
        return False
