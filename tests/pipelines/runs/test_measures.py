"""The files of measures: JSON with the values of each topic, and above 100,000 topics a table of them."""

import json

import pyarrow.compute as pc
import pyarrow.parquet as pq

from beamrank.evaluation.evaluate import Evaluator
from beamrank.formats.qrels import qrels_of
from pipelines.runs.measures import MOST_IN_JSON, changed_measures, write_measures


def _evaluations(topics):
    qrels = qrels_of({f"q{number}": {"d": 1} for number in range(topics)})
    found = {}
    for run, docs in (("bm25", ["x", "d"]), ("mono", ["d", "x"])):
        evaluator = Evaluator(qrels, ["RR@10", "NumRel"])
        evaluator.add((query_id, docs) for query_id in ("q2", "q1"))
        found[run] = evaluator.evaluation(by_id=True)
    return found


def test_values_of_many_topics_are_a_table(tmp_path):
    few, many = _evaluations(3), _evaluations(MOST_IN_JSON + 1)
    runs = tmp_path / "runs"
    write_measures(str(tmp_path), few)
    assert json.loads((runs / "measures.json").read_text()) == {
        "bm25": {"RR@10": 1 / 3, "NumRel": 3.0},
        "mono": {"RR@10": 2 / 3, "NumRel": 3.0},
        "per_query": {run: dict(each.per_query) for run, each in few.items()},
    }
    write_measures(str(tmp_path), many)
    means = {run: each.means for run, each in many.items()}
    assert json.loads((runs / "measures.json").read_text()) == means
    table = pq.read_table(runs / "per-query.parquet")
    assert table.schema.metadata == {b"beamrank.schema": b"per_query/1"}
    assert table.column_names == ["query_id", "run", "measure", "value"]
    assert len(table) == (MOST_IN_JSON + 1) * 4
    assert table.filter((pc.field("run") == "bm25") & (pc.field("value") == 0.5))["query_id"].to_pylist() == [
        "q1",
        "q2",
    ]
    assert list(changed_measures(str(tmp_path), many)) == []
    pq.write_table(table.slice(1), runs / "per-query.parquet")
    assert list(changed_measures(str(tmp_path), many)) == ["per-query.parquet"]
    write_measures(str(tmp_path), few)
    assert [each.name for each in runs.iterdir()] == ["measures.json"]
