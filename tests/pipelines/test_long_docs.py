"""Docs longer than an input, through the whole run: no score of a doc is that of its head alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from beamrank.config import load_config
from beamrank.plan import Plan
from beamrank.topics import read_topics
from models.engine import InputLimits
from models.training.config import ChunksConfig
from models.training.encoding import InputEncoder
from models.training.start import Start, save_checkpoint
from models.training.tasks import Scorer
from tests.models.bert import MINILM
from tests.pipelines.cascades import read_trec, run_here, write_config

_LENGTH = 48
_LIMITS = InputLimits("original", 16, _LENGTH)


@pytest.fixture(scope="session")
def long_docs(corpus: dict[str, str]) -> dict[str, str]:
    """Eight docs of some hundred words, two shorter ones, and one of no word."""
    texts = [corpus[doc_id] for doc_id in sorted(corpus)]
    long = {f"long{number}": " ".join(texts[number * 6 : number * 6 + 6]) for number in range(8)}
    return long | {"short0": "a stack of paths", "short1": texts[-1], "empty": "."}


@pytest.fixture(scope="session")
def given(
    tmp_path_factory: pytest.TempPathFactory,
    long_docs: dict[str, str],
    topics: dict[str, str],
    mono_checkpoint: str,
    duo_checkpoint: str,
) -> Path:
    """A configuration with a given run, so that nothing needs Java."""
    folder = tmp_path_factory.mktemp("long")
    some = dict(list(topics.items())[:4])
    path = write_config(folder, long_docs, some, mono_checkpoint, duo_checkpoint)
    values = yaml.safe_load(path.read_text())
    for key in ("index", "bm25", "duo"):
        values.pop(key)
    rows = [
        f"{query_id} Q0 {doc_id} {rank} {-rank} given\n"
        for query_id in some
        for rank, doc_id in enumerate(long_docs, 1)
    ]
    (folder / "given.trec").write_text("".join(rows))
    values["candidates"] = {"run": "given.trec", "k": len(long_docs)}
    values["mono"]["k"] = len(long_docs)
    values["input"] = {"max_query_length": 16, "max_length": _LENGTH}
    path.write_text(yaml.safe_dump(values))
    return path


def _parts(plan: Plan, stage: str) -> list[dict]:
    manifest = plan.finished(stage)
    assert manifest is not None
    return [row for each in manifest.receipts for row in plan.folder(stage).read_part(each).to_pylist()]


def test_a_checkpoint_that_reads_chunks(given: Path, long_docs: dict[str, str], tmp_path: Path) -> None:
    start = Start(str(MINILM), _LENGTH)
    torch.manual_seed(0)
    model = start.model("mono", 1, 0.0, False, ChunksConfig(count=16, pooling="max"))
    model.bert.encoder.layer = model.bert.encoder.layer[:1]
    model.config.num_hidden_layers = 1
    for weight in (model.bert.pooler.dense.weight, model.classifier.weight):
        torch.nn.init.normal_(weight, std=0.5)
    save_checkpoint(model, start.folder, str(tmp_path / "chunked"), "float32")
    plan, _ = run_here(given, tmp_path / "out", [f"mono.checkpoint={tmp_path / 'chunked'}"])
    assert plan.of_kind("tokenize")[0].keys["max_doc_tokens"] == 16 * _LENGTH
    manifest = plan.finished("mono")
    assert manifest is not None
    assert manifest.total("inferences") == 4 * 16 * len(long_docs)
    rows = _parts(plan, "mono")
    assert {row["segment"] for row in rows} == {0}
    some = [row for row in rows if row["query_id"] == rows[0]["query_id"]]
    query = dict(read_topics(load_config(str(given)).topics))[rows[0]["query_id"]]
    score = Scorer(model.eval(), InputEncoder(start.tokenizer, _LIMITS, 4096, 16), "cpu", torch.float32)
    with torch.inference_mode():
        wanted = score([(query, long_docs[row["doc_id"]]) for row in some]).tolist()
    assert np.std(wanted) > 0.01
    assert [row["score"] for row in some] == pytest.approx(wanted, abs=2e-5)
    best = max(some, key=lambda row: row["score"])
    assert read_trec(tmp_path / "out/runs/mono.trec")[best["query_id"]][0] == best["doc_id"]
