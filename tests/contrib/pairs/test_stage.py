"""The stage that scores pairs and triples gives the scores of a `Reranker`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beamrank.commit.receipts import Receipt, StageFolder
from beamrank.commit.shards import ShardTask
from beamrank.commit.stage import described
from beamrank.errors import ConfigError, DataError
from beamrank.storage.digested import RowRange, digest_file
from contrib.pairs.config import ScoreConfig
from contrib.pairs.stage import ScorePairs
from contrib.pairs.tables import find_pairs
from models.checkpoints.checkpoint import resolve_checkpoint
from models.reranker import Reranker
from models.scoring.backends.torch import TorchBackend
from models.stages.attempt import run_shard
from models.stages.core import open_stage
from tests.support.refusals import refuses

QUERY = "how do crusts stay crisp"
DOCS = ["Open the oven door for the last minutes.", "", "Store bread in paper " * 30, "crusts"]


def _write(path: Path, **columns: Any) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


def _stage(url: str, checkpoint: str, **options: Any) -> ScorePairs:
    config = ScoreConfig(
        pairs=(url,), checkpoint=checkpoint, output="out", dtype="float32", **options
    )
    file = find_pairs([url], config.columns)[0]
    device = TorchBackend.resolve("cpu", "float32")
    return ScorePairs.of_files(config, file, resolve_checkpoint(checkpoint, file.kind), device)


def _run(
    stage: ScorePairs, url: str, start: int, end: int, folder: Path
) -> tuple[Receipt, pa.Table]:
    task = ShardTask(
        StageFolder(str(folder)), 3, "1" * 64, rows=RowRange(digest_file(url), start, end)
    )
    receipt = run_shard(stage, task).receipt
    assert receipt is not None
    return receipt, task.folder.read_part(receipt)


def test_pairs_have_the_scores_of_a_reranker(tmp_path, checkpoints):
    url = _write(
        tmp_path / "pairs.parquet",
        label=[0, 1, 0, 1],
        qid=[4, 3, 2, 1],
        query=[QUERY] * 4,
        doc=DOCS,
    )
    stage = _stage(url, checkpoints.mono, columns={"id": "qid"})
    receipt, table = _run(stage, url, 1, 4, tmp_path)
    types = {"id": pa.int64(), "score": pa.float32(), "label": pa.int64()}
    assert table.schema.remove_metadata() == pa.schema(types)
    assert table.schema.metadata[b"beamrank.schema"] == b"scores/1"
    assert stage.record().schema == described(table.schema)
    assert open_stage([stage.record()], "scores") == stage
    assert table.select(["id", "label"]).to_pydict() == {"id": [3, 2, 1], "label": [1, 0, 1]}
    wanted = Reranker(checkpoints.mono, dtype="float32").score([(QUERY, doc) for doc in DOCS[1:]])
    assert table["score"].to_numpy().tolist() == wanted.tolist()
    assert (receipt.rows, receipt.bad_rows) == (3, 0)
    assert {name: receipt.counts[name] for name in ("queries", "candidates", "inferences")} == {
        "queries": 1,
        "candidates": 3,
        "inferences": 3,
    }


def test_triples_have_the_scores_of_a_reranker(tmp_path, checkpoints):
    triples = {"doc_i": DOCS, "doc_j": DOCS[::-1]}
    url = _write(tmp_path / "triples.parquet", id=list("abcd"), query=[QUERY] * 4, **triples)
    _, table = _run(_stage(url, checkpoints.duo), url, 0, 4, tmp_path)
    rows = zip([QUERY] * 4, DOCS, DOCS[::-1], strict=True)
    wanted = Reranker(checkpoints.duo, "duo", dtype="float32").score(rows)
    assert table["id"].to_pylist() == list("abcd")
    assert table["score"].to_numpy().tolist() == wanted.tolist()


def test_limits_decide_truncation_and_digest(tmp_path, checkpoints):
    url = _write(tmp_path / "pairs.parquet", id=[1], query=[QUERY], doc=[DOCS[2]])
    limits = {"truncation": "paper", "max_query_length": 4, "max_length": 20}
    stage = _stage(url, checkpoints.mono, input=limits)
    receipt, table = _run(stage, url, 0, 1, tmp_path)
    wanted = Reranker(checkpoints.mono, dtype="float32", **limits).score([(QUERY, DOCS[2])])  # type: ignore[arg-type]
    assert table["score"].to_numpy().tolist() == wanted.tolist()
    assert (
        receipt.counts["truncated_queries"],
        receipt.counts["truncated_docs"],
        receipt.counts["tokens"],
    ) == (
        1,
        1,
        20,
    )
    assert stage.keys != _stage(url, checkpoints.mono).keys
    assert open_stage([stage.record()], "scores") == stage


def test_a_changed_file_is_not_committed(tmp_path, checkpoints):
    url = _write(tmp_path / "pairs.parquet", id=[1, 2], query=[QUERY] * 2, doc=DOCS[:2])
    task = ShardTask(
        StageFolder(str(tmp_path / "out")), 0, "1" * 64, rows=RowRange(digest_file(url), 0, 2)
    )
    stage = _stage(url, checkpoints.mono)
    _write(tmp_path / "pairs.parquet", id=[1, 2], query=[QUERY] * 2, doc=DOCS[1:3])
    with refuses(DataError, "changed", file=url):
        run_shard(stage, task)
    assert not (tmp_path / "out").exists()


def test_triples_are_refused_where_limits_are_for_pairs(tmp_path, checkpoints):
    url = _write(tmp_path / "t.parquet", id=[1], query=[QUERY], doc_i=["x"], doc_j=["y"])
    with pytest.raises(ConfigError, match="`hf`"):
        _stage(url, checkpoints.duo, input={"truncation": "hf"})


def test_tokenizer_decides_the_bytes(tmp_path, checkpoints):
    stage = _stage(
        _write(tmp_path / "pairs.parquet", id=[1], query=[QUERY], doc=DOCS[:1]), checkpoints.mono
    )
    assert stage.keys != replace(stage, tokenizer_digest="0" * 64).keys
