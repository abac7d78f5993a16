"""The example of the README, command by command."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.cascades import beamrank_here, read_trec, run_bytes

_EXAMPLE = Path(__file__).resolve().parents[2] / "examples/own_corpus"


def _done(*arguments: str | Path) -> str:
    result = beamrank_here(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.jvm
def test_the_example_runs_as_the_readme_says(tmp_path: Path) -> None:
    folder = tmp_path / "bread"
    shutil.copytree(_EXAMPLE, folder, ignore=shutil.ignore_patterns("index", "out*", ".index*"))
    config, out, qrels = folder / "config.yaml", folder / "out", folder / "qrels.txt"

    planned = json.loads(_done("plan", config, "--json"))
    assert (planned["topics"], planned["stages"][-1]["inferences"]) == (6, 6 * 5 * 4)
    assert planned["join_passes"] == 1
    assert "6 topics in 1 shard;" in _done("plan", config)
    assert not out.exists()

    header, *rows = (line.split("\t") for line in _done("run", config).splitlines())
    assert header == ["run", "RR@10", "nDCG@10", "R@12"]
    assert [row[0] for row in rows] == ["bm25", "mono", "duo-sum"]
    assert [row[-1] for row in rows] == ["1.0000"] * 3
    assert sorted(run_bytes(out)) == ["bm25.trec", "duo-sum.trec", "mono.trec"]

    assert json.loads(_done("verify", out, "--json"))["findings"] == []
    assert _done("gc", out, "--dry-run") == ""
    stages = json.loads(_done("status", out, "--json"))["stages"]
    assert all(stage["done"] == stage["shards"] == 1 for stage in stages)

    written = _done("aggregate", out, "--aggregation", "min,binary,sym_sum", "--k1", "3").splitlines()
    assert [Path(path).name for path in written] == ["duo-min-k3.trec", "duo-binary-k3.trec", "duo-sym_sum-k3.trec"]
    mono, duo = read_trec(out / "runs/mono.trec"), read_trec(Path(written[0]))
    assert {query_id: doc_ids[3:] for query_id, doc_ids in duo.items()} == {
        query_id: doc_ids[3:] for query_id, doc_ids in mono.items()
    }
    measured = json.loads(_done("eval", written[0], "--qrels", qrels, "--json"))
    assert measured["queries"] == 6
    assert 0 < measured["measures"]["RR@10"] <= 1
