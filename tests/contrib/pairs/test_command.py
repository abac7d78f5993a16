"""`beamrank score`: pairs and triples are scored, resumed after a kill, and refused before anything
starts.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from beamrank.demo.collection import demo_questions, stdlib_docs
from models.reranker import Reranker
from tests.pipelines.runners.test_engines import get_engine
from tests.support.checkpoints import save_tiny
from tests.support.processes import beamrank, beamrank_here, refused, succeed
from tests.support.runs import committed, parts
from tests.support.small_collection import small_cascade


def _pairs(count: int) -> dict[str, list[str]]:
    """Real questions, each with several real passages; every passage is different."""
    docs = [
        f"{number} {doc.text}"
        for number, doc in zip(range(count), itertools.cycle(stdlib_docs()), strict=False)
    ]
    queries = [
        topic.text
        for _, topic in zip(range(count), itertools.cycle(demo_questions()), strict=False)
    ]
    return {"id": [f"pair {number}" for number in range(count)], "query": queries, "doc": docs}


def _write(path: Path, columns: dict[str, Any], row_group_size: int = 100) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return path


def _read(folder: str) -> pa.Table:
    """The scores in the folder that the command prints."""
    return pa.dataset.dataset(folder.strip()).to_table()


def test_inputs_that_differ_from_the_models_are_said_before_the_start(tmp_path):
    checkpoint = Path(save_tiny(tmp_path / "mono"))
    settings = {"truncation_side": "left", "model_max_length": 96}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(settings))
    pairs = _write(tmp_path / "in/a.parquet", _pairs(3))
    command = ["score", pairs, "--checkpoint", checkpoint, "--output", tmp_path / "out"]
    done = succeed(*command, "--dry-run")
    assert "96 tokens (model_max_length in tokenizer_config.json)" in done.stderr
    assert "(truncation_side left)" in done.stderr


def test_pairs_are_scored_in_their_order(tmp_path, checkpoints):
    pairs = _pairs(130)
    _write(tmp_path / "in/a.parquet", {name: values[:50] for name, values in pairs.items()}, 20)
    _write(tmp_path / "in/b.parquet", {name: values[50:] for name, values in pairs.items()})
    command = [
        "score",
        tmp_path / "in",
        "--checkpoint",
        checkpoints.mono,
        "--dtype",
        "float32",
        "--shard-rows",
        "32",
    ]
    dry = succeed(*command, "--output", tmp_path / "out", "--dry-run")
    assert json.loads(dry.stdout) == {
        "pairs": 130,
        "files": 2,
        "kind": "mono",
        "shards": 5,
        "remaining_shards": 5,
        "remaining_pairs": 130,
        "checkpoint": checkpoints.mono,
        "device": "cpu",
        "dtype": "float32",
    }
    assert not (tmp_path / "out").exists()
    done = succeed(*command, "--output", tmp_path / "out")
    scores = _read(done.stdout)
    assert scores["id"].to_pylist() == pairs["id"]
    wanted = Reranker(checkpoints.mono, dtype="float32").score(
        zip(pairs["query"], pairs["doc"], strict=True)
    )
    assert scores["score"].to_numpy().tolist() == wanted.tolist()
    again = beamrank_here(*command, "--output", tmp_path / "out")
    assert again.stdout == done.stdout
    assert "all 5 shards" in again.stderr
    (stage,) = json.loads(beamrank_here("status", tmp_path / "out", "--json").stdout)["stages"]
    assert (stage["stage"], stage["shards"], stage["done"], stage["inferences"]) == (
        "scores",
        5,
        5,
        130,
    )
    assert "all files verified" in beamrank_here("verify", tmp_path / "out").stderr
    assert beamrank_here("gc", tmp_path / "out", "--yes", "--min-age-hours", "0").stdout == ""


def test_triples_are_scored_by_a_duo_checkpoint(tmp_path, checkpoints):
    docs = _pairs(40)["doc"]
    triples = {
        "qid": list(range(40)),
        "question": ["sort a list"] * 40,
        "doc_i": docs,
        "doc_j": docs[::-1],
    }
    path = _write(tmp_path / "triples.parquet", triples | {"label": [0.5, None] * 20})
    command = ["score", path, "--checkpoint", checkpoints.duo, "--output", tmp_path / "out"]
    done = succeed(*command, "--columns", "id=qid,query=question", "--shard-rows", "16")
    types = {"id": pa.int64(), "score": pa.float32(), "label": pa.float64()}
    scores = _read(done.stdout)
    assert scores.schema.remove_metadata() == pa.schema(types)
    assert (scores["id"].to_pylist(), scores["label"].to_pylist()) == (
        triples["qid"],
        [0.5, None] * 20,
    )
    assert "all files verified" in beamrank_here("verify", tmp_path / "out").stderr


def test_scores_are_a_table_of_exactly_the_sealed_parts(tmp_path, checkpoints):
    """pandas, polars and DuckDB open the folder; what a job of more shards left there is
    removed.
    """
    pairs = _pairs(20)
    path = _write(tmp_path / "pairs.parquet", pairs)
    command = [
        "score",
        path,
        "--checkpoint",
        checkpoints.mono,
        "--output",
        tmp_path / "out",
        "--shard-rows",
    ]
    assert beamrank_here(*command, "4").returncode == 0
    done = beamrank_here(*command, "10")
    folder = done.stdout.strip()
    assert folder == str(tmp_path / "out/runs/scores.parquet")
    assert sorted(path.name for path in Path(folder).iterdir()) == [
        "_SUCCESS",
        "part-00000.parquet",
        "part-00001.parquet",
    ]
    wanted = _read(folder).to_pylist()
    assert [each["id"] for each in wanted] == pairs["id"]
    assert pd.read_parquet(folder).to_dict("records") == wanted
    assert pl.read_parquet(f"{folder}/*.parquet").to_dicts() == wanted
    assert len(duckdb.sql(f"SELECT * FROM '{folder}/*.parquet'").fetchall()) == 20
    (Path(folder) / "part-00001.parquet").write_bytes(b"other")
    (Path(folder) / "part-00002.parquet").touch()
    verified = beamrank_here("verify", tmp_path / "out")
    assert verified.returncode == 1
    assert "runs/scores.parquet/part-00001.parquet: " in verified.stdout
    assert "runs/scores.parquet/part-00002.parquet" in verified.stdout


@pytest.mark.slow
def test_new_files_are_scored_and_others_are_kept(tmp_path, checkpoints):
    pairs = _pairs(100)
    _write(tmp_path / "in/1.parquet", {name: values[:64] for name, values in pairs.items()})
    command = [
        "score",
        tmp_path / "in",
        "--checkpoint",
        checkpoints.mono,
        "--output",
        tmp_path / "out",
    ]
    command += ["--shard-rows", "32"]
    assert beamrank_here(*command).returncode == 0
    before = committed(tmp_path / "out")
    _write(tmp_path / "in/2.parquet", {name: values[64:] for name, values in pairs.items()})
    done = beamrank_here(*command)
    assert "2 of 4 shards" in done.stderr
    after = committed(tmp_path / "out")
    assert {name: after[name] for name in before} == before
    assert _read(done.stdout)["id"].to_pylist() == pairs["id"]
    _write(tmp_path / "in/1.parquet", {name: values[:64][::-1] for name, values in pairs.items()})
    done = beamrank_here(*command)
    assert "2 of 4 shards" in done.stderr
    assert _read(done.stdout)["id"].to_pylist() == pairs["id"][:64][::-1] + pairs["id"][64:]
    assert "all files verified" in beamrank_here("verify", tmp_path / "out").stderr


def test_rows_that_cannot_be_scored_are_reported(tmp_path, checkpoints):
    pairs = _pairs(30) | {"query": ["sort a list", " "] + ["sort a list"] * 28}
    path = _write(tmp_path / "pairs.parquet", pairs | {"doc": [None, *pairs["doc"][1:]]})
    command = [
        "score",
        path,
        "--checkpoint",
        checkpoints.mono,
        "--output",
        tmp_path / "out",
        "--max-bad-rows",
    ]
    assert "2 rows of 30 " in refused(*command, "1", code=1)
    assert not (tmp_path / "out/runs/scores.parquet").exists()
    done = beamrank_here(*command, "2")
    assert done.returncode == 0
    (rejects,) = (tmp_path / "out/rejects").iterdir()
    rows = [
        (each["kind"], each["file"], each["reason"]) for each in pq.read_table(rejects).to_pylist()
    ]
    assert rows == [
        ("pairs", str(path), "the row has no `doc`"),
        ("pairs", str(path), "the row has a query without text"),
    ]
    assert "2 rows of 30 " in done.stderr
    assert _read(done.stdout)["score"].null_count == 2
    assert "2 bad rows" in beamrank_here("status", tmp_path / "out").stdout


def test_score_ends_at_the_shard_with_too_many_bad_rows(tmp_path, checkpoints):
    pairs = _pairs(30) | {"query": [" "] * 2 + ["sort a list"] * 28}
    first = _write(tmp_path / "a.parquet", pairs)
    second = _write(tmp_path / "b.parquet", _pairs(30))
    model, output = ["--checkpoint", checkpoints.mono], ["--output", tmp_path / "out"]
    succeed("score", first, *model, *output, "--max-bad-rows", "2")
    command = ["score", first, second, *model, *output, "--max-bad-rows"]
    assert "2 rows of 30 " in refused(*command, "1", code=1)
    (stage,) = json.loads(beamrank_here("status", tmp_path / "out", "--json").stdout)["stages"]
    assert (stage["shards"], stage["done"]) == (2, 1)
    done = succeed(*command, "2")
    assert _read(done.stdout).num_rows == 60


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["embed", pytest.param("prism", marks=pytest.mark.go)])
def test_engines_write_the_same_scores(tmp_path, checkpoints, runner):
    get_engine(runner)
    path = _write(tmp_path / "pairs.parquet", _pairs(100))
    command = [
        "score",
        path,
        "--checkpoint",
        checkpoints.mono,
        "--max-length",
        "128",
        "--shard-rows",
        "30",
    ]
    assert beamrank_here(*command, "--output", tmp_path / "local").returncode == 0
    done = beamrank(*command, "--output", tmp_path / "out", "--runner", runner)
    assert done.returncode == 0, done.stderr
    assert parts(tmp_path / "out") == parts(tmp_path / "local")
    assert len(parts(tmp_path / "out")) == 4


def test_a_run_and_scores_are_not_confused(tmp_path, checkpoints):
    path, output = _write(tmp_path / "pairs.parquet", _pairs(5)), tmp_path / "out"
    assert (
        beamrank_here(
            "score", path, "--checkpoint", checkpoints.mono, "--output", output
        ).returncode
        == 0
    )
    for command in (["inspect"], ["report"], ["aggregate", "--aggregation", "sum"]):
        refused = beamrank_here(command[0], output, *command[1:])
        assert refused.returncode == 3
        assert "without topics and rankings" in refused.stderr
    planned = succeed("plan", small_cascade(tmp_path).path, "--output", output)
    assert "holds scores of `beamrank score`, which stay" in planned.stdout


def test_a_cascade_has_no_stage_of_pairs(tmp_path):
    collection = small_cascade(tmp_path)
    del collection.keys["duo"]
    collection.keys["cascade"] = [{"mono": collection.keys.pop("mono")}, "pairs"]
    assert "`cascade`" in refused("run", collection.path, code=2)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--max-length", "4"], 2, "input.max_length: "),
        (["--max-length", "513"], 3, "512 positions"),
        (["--truncation", "no"], 2, "input.truncation: "),
        (["--dtype", "int3"], 2, "dtype: "),
        (["--backend", "no"], 2, "auto, openvino, torch, not 'no'"),
        (["--shard-rows", "0"], 2, "shard_rows: "),
        (["--columns", "query"], 2, "--columns 'query'"),
        (["--columns", "query=a,doc=a"], 2, "--columns 'query=a,doc=a'"),
        (["--columns", "query=none"], 3, "`none`"),
        (["--output", ""], 2, "output: "),
        (["--", "--no_such_flag"], 2, "no_such_flag"),
        (
            ["--runner", "dataflow"],
            3,
            "PAIRS (",
        ),
    ],
)
def test_wrong_options_are_refused(tmp_path, checkpoints, options, code, message):
    path = _write(tmp_path / "pairs.parquet", _pairs(5))
    checkpoint = ["--checkpoint", checkpoints.mono, "--output", tmp_path / "out"]
    refused = beamrank_here("score", path, *checkpoint, *options)
    assert refused.returncode == code
    assert message in refused.stderr
    assert not (tmp_path / "out").exists()


def test_wrong_input_is_refused_before_anything_starts(tmp_path, checkpoints):
    def refused(
        pairs: Path, checkpoint: str = checkpoints.mono, output: Path = tmp_path / "out"
    ) -> str:
        done = beamrank_here("score", pairs, "--checkpoint", checkpoint, "--output", output)
        assert done.returncode == 3
        assert not output.exists()
        return done.stderr

    path = _write(tmp_path / "in/pairs.parquet", _pairs(5))
    assert "no file of pairs" in refused(tmp_path / "none.parquet")
    assert "no checkpoint folder" in refused(path, str(tmp_path / "no-model"))
    would_be_read = "what is written there would be read as pairs"
    assert would_be_read in refused(path.parent, output=path.parent / "out")
    beside = beamrank_here(
        "score",
        path.parent / "*.parquet",
        "--checkpoint",
        checkpoints.mono,
        "--output",
        path.parent,
    )
    assert beside.returncode == 3
    assert would_be_read in beside.stderr
    assert list(path.parent.iterdir()) == [path]
    assert "needs the columns" in refused(
        _write(tmp_path / "other.parquet", {"id": [1], "text": ["x"]})
    )
