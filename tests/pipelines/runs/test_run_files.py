"""The notes and measures that are written with the runs, and the errors of an unfinished plan."""

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from beamrank.commit.receipts import Manifest, Receipt
from beamrank.config.run import RunConfig
from beamrank.errors import PreflightError
from beamrank.evaluation.evaluate import Evaluator
from beamrank.formats.qrels import qrels_of
from pipelines.console.progress import ConsoleProgress
from pipelines.console.tables import count_lines
from pipelines.runs.run_file import parse_run_file
from pipelines.runs.run_files import MOST_IN_JSON, measure_files, write_runs
from tests.support.models.stages import a_stage
from tests.support.outputs import make_plan, seal_stage

_DUO = a_stage("duo")


def _manifest(stage: str, *counts: dict[str, int], examples: tuple[str, ...] = ()) -> Manifest:
    receipts = (
        Receipt(shard, "", "", "", 0, 1, 0, 1.0, each, examples)
        for shard, each in enumerate(counts)
    )
    return Manifest(stage, "", tuple(receipts))


@pytest.mark.parametrize(
    ("stage", "counts", "line"),
    [
        (
            "mono",
            [
                {"truncated_docs": 1000, "candidates": 20_000},
                {"truncated_docs": 234, "candidates": 30_000},
            ],
            "mono: 1,234 of 50,000 query-document pairs (2.5 %) had their doc truncated",
        ),
        (
            "duo",
            [{"truncated_docs": 1, "candidates": 5000}],
            "duo: 1 of 5,000 query-document pairs (less than 0.1 %) had their doc truncated",
        ),
        (
            "mono",
            [{"truncated_queries": 2, "queries": 16}],
            "mono: 2 of 16 queries (12.5 %) were truncated",
        ),
        (
            "tokenize",
            [{"truncated_docs": 3, "distinct_docs": 12}],
            "tokenize: 3 of 12 docs (counted once for each shard that needs them) (25.0 %) were "
            "truncated",
        ),
        # One receipt lacks the total.
        (
            "mono",
            [{"truncated_docs": 4}, {"truncated_docs": 1, "candidates": 9}],
            "mono: 5 query-document pairs had their doc truncated",
        ),
        ("mono", [{"truncated_docs": 0, "candidates": 9, "halvings": 0}], None),
    ],
)
def test_count_is_reported_with_its_unit_and_share(stage, counts, line):
    assert list(count_lines(_manifest(stage, *counts))) == ([] if line is None else [line])


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("duo-sum.trec", ("sum", None, None, "trec")),
        ("duo-sym_sum-k5.msmarco.tsv", ("sym_sum", 5, None, "msmarco")),
        ("duo-sample-m3-s-2.trec", ("sample", None, (3, -2), "trec")),
        ("duo-min-k2-m4-s7.trec", ("min", 2, (4, 7), "trec")),
    ],
)
def test_name_of_an_aggregated_run_reads_back(base, expected):
    aggregation, k, drawn, run_format = expected
    file = parse_run_file([_DUO], base, in_parts=False)
    assert file is not None
    assert (file.base, file.stage, file.run_format, file.k) == (base, "duo", run_format, k)
    assert dict(file.variant) == {"aggregation": aggregation, "drawn": drawn}
    assert replace(_DUO, **dict(file.variant)).varied_run_name(k) == file.name


@pytest.mark.parametrize(
    "base", ["mono.trec", "duo.trec", "duo-mean.trec", "duo-sum.txt", "duo-sum-k.trec"]
)
def test_name_of_another_file_is_not_an_aggregated_run(base):
    assert parse_run_file([_DUO], base, in_parts=False) is None


def test_missing_docs_are_named():
    manifest = _manifest(
        "tokenize",
        {"missing_docs": 1, "distinct_docs": 3},
        examples=("doc 'd' is not in the corpus",),
    )
    (line,) = count_lines(manifest)
    assert line.startswith("tokenize: 1 of 4 docs")
    assert line.endswith("(first: doc 'd' is not in the corpus)")


@pytest.mark.parametrize(
    ("finished", "message"),
    [
        (["retrieve"], "tokenize-0a1b2c3d, mono .*--stage tokenize, .*--stage mono, .*mono=null"),
        (["retrieve", "tokenize-0a1b2c3d"], "^mono .*--stage mono, "),
    ],
)
def test_runs_of_an_unfinished_plan_name_missing_stages(tmp_path, finished, message):
    plan = make_plan(str(tmp_path))
    for stage in finished:
        seal_stage(plan, stage)
    with pytest.raises(PreflightError, match=message):
        write_runs(plan, _CONFIG, ConsoleProgress(quiet=True))
    assert not (tmp_path / "runs").exists()


_CONFIG = RunConfig.model_validate(
    {
        "corpus": {"path": "c", "format": "tsv"},
        "topics": {"path": "t", "format": "tsv"},
        "index": {"path": "i"},
        "mono": {"checkpoint": "x", "k": 5},
        "output": "o",
    }
)


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
    files = measure_files(few)
    assert json.loads(files["measures.json"] or b"") == {
        "bm25": {"RR@10": 1 / 3, "NumRel": 3.0},
        "mono": {"RR@10": 2 / 3, "NumRel": 3.0},
        "per_query": {run: dict(each.per_query) for run, each in few.items()},
    }
    assert files["per-query.parquet"] is None
    files = measure_files(many)
    assert json.loads(files["measures.json"] or b"") == {
        run: each.means for run, each in many.items()
    }
    table = pq.read_table(pa.BufferReader(files["per-query.parquet"]))
    assert table.schema.metadata == {b"beamrank.schema": b"per_query/1"}
    assert table.column_names == ["query_id", "run", "measure", "value"]
    assert len(table) == 6 * 4
    best = table.filter((pc.field("run") == "bm25") & (pc.field("value") == 0.5))
    assert best["query_id"].to_pylist() == ["q1", "q2"]
