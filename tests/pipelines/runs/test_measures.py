"""The files of measures: JSON with the values of each topic, and above 100,000 topics a table of them."""

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beamrank.evaluation.evaluate import Evaluator
from beamrank.formats.qrels import qrels_of
from pipelines.runs.run_files import MOST_IN_JSON, measure_files


def _files(evaluations) -> dict[str, Any]:
    return measure_files(evaluations)


def _evaluations(topics):
    qrels = qrels_of({f"q{number}": {"d": 1} for number in range(topics)})
    found = {}
    for run, docs in (("bm25", ["x", "d"]), ("mono", ["d", "x"])):
        evaluator = Evaluator(qrels, ["RR@10", "NumRel"])
        evaluator.add((query_id, docs) for query_id in ("q2", "q1"))
        found[run] = evaluator.evaluation(by_id=True)
    return found


def test_values_of_many_topics_are_a_table(monkeypatch):
    assert MOST_IN_JSON == 100_000
    monkeypatch.setattr("pipelines.runs.run_files.MOST_IN_JSON", 5)
    few, many = _evaluations(3), _evaluations(6)
    files = _files(few)
    assert json.loads(files["measures.json"]) == {
        "bm25": {"RR@10": 1 / 3, "NumRel": 3.0},
        "mono": {"RR@10": 2 / 3, "NumRel": 3.0},
        "per_query": {run: dict(each.per_query) for run, each in few.items()},
    }
    assert files["per-query.parquet"] is None
    files = _files(many)
    assert json.loads(files["measures.json"]) == {run: each.means for run, each in many.items()}
    table = pq.read_table(pa.BufferReader(files["per-query.parquet"]))
    assert table.schema.metadata == {b"beamrank.schema": b"per_query/1"}
    assert table.column_names == ["query_id", "run", "measure", "value"]
    assert len(table) == 6 * 4
    best = table.filter((pc.field("run") == "bm25") & (pc.field("value") == 0.5))
    assert best["query_id"].to_pylist() == ["q1", "q2"]
