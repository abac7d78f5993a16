"""`prefix: shared`: what is before a topic's docs is computed once."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from beamrank.errors import PreflightError
from models.checkpoints.checkpoint import resolve_checkpoint
from models.reranker import Reranker
from tests.contrib.generators.cases import GENERATORS, prompt_ids, save_generator, wanted_answers
from tests.support.changed_files import edit_json
from tests.support.models.tokenizers import TEXTS
from tests.support.oracle import assert_parity
from tests.support.processes import succeed
from tests.support.runs import PlannedRun, assert_same_bytes, run_bytes, run_here
from tests.support.small_collection import DOCS, TOPICS, SmallCollection
from tests.support.tiers import slow_but

_QUERIES = ("what is the capital of France?", "the dog")
_PAIRS = [(query, text.strip()) for query in _QUERIES for text in TEXTS[:9] if text.strip()]
_WINDOWS = {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1}


def _reranker(folder: str, name: str, dtype: str = "float32", **options: Any) -> Reranker:
    given = {"truncation": "paper", "max_query_length": 40, "max_length": 512, "prefix": "shared"}
    given |= GENERATORS[name].options
    return Reranker(folder, "mono", dtype=dtype, device="cpu", **given | options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "config"),
    slow_but(
        3,
        [
            ("mxbai v2", _WINDOWS),
            ("Qwen3", {}),
            ("Gemma", {}),
            ("mxbai v2", {}),
            ("Qwen3", _WINDOWS),
            ("Qwen3 tied", {}),
        ],
    ),
)
def test_shared_prefix_scores_as_in_transformers(name, config, tmp_path):
    folder, case = save_generator(tmp_path, name, **config), GENERATORS[name]
    wanted = wanted_answers(folder, case, prompt_ids(folder, case, _PAIRS))
    assert np.std(wanted) > 0.1
    scores = _reranker(folder, name).score(_PAIRS)
    assert_parity(scores.tolist(), wanted)
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=1e-4)


def _before(reranker: Reranker, queries: Sequence[str]) -> list[int]:
    """How many tokens are before a doc of each query."""
    template = reranker.engine.checkpoint.architecture.template(reranker.tokenizer.special)
    ids = reranker.tokenizer.encode_queries(queries, 512).ids.to_pylist()
    return [template.query_special_tokens + len(query) for query in ids]


def test_prefix_goes_through_the_model_once_a_topic(tmp_path, monkeypatch):
    folder = save_generator(tmp_path, "Qwen3")
    embed, sizes = torch.nn.Embedding.forward, list[int]()

    def counted(table: torch.nn.Embedding, ids: torch.Tensor) -> torch.Tensor:
        sizes.append(ids.numel())
        return embed(table, ids)

    monkeypatch.setattr(torch.nn.Embedding, "forward", counted)
    whole = sum(map(len, prompt_ids(folder, GENERATORS["Qwen3"], _PAIRS)))
    docs = len(_PAIRS) // len(_QUERIES)
    for prefix in ("none", "shared"):
        reranker = _reranker(folder, "Qwen3", threads=1, prefix=prefix)
        sizes.clear()
        reranker.score(_PAIRS)
        before = _before(reranker, _QUERIES)
        assert min(before) > 30
        assert sum(sizes) == whole - (prefix == "shared") * sum(before) * (docs - 1)


@pytest.mark.parametrize("dtype", slow_but(1, ["bfloat16", "float32"]))
def test_score_with_a_shared_prefix_has_the_same_bits_beside_others(dtype, tmp_path):
    folder = save_generator(tmp_path, "Qwen3")
    one, two = (_reranker(folder, "Qwen3", dtype, threads=threads) for threads in (1, 2))
    together = two.score(_PAIRS)
    one.engine.token_budget = 300
    assert one.score(_PAIRS[::-1]).tolist() == together[::-1].tolist()
    assert [float(one.score([pair])[0]) for pair in _PAIRS[::3]] == together[::3].tolist()


def test_doc_at_the_end_of_a_prompt_has_one_token_of_its_own(tmp_path):
    folder = save_generator(tmp_path, "Qwen3")
    case = replace(GENERATORS["Qwen3"], prompt="{}\n{}")
    reranker = _reranker(folder, "Qwen3", prompt={"text": "{{ query }}\n{{ doc }}"})
    pairs = [("a wok", ""), ("a wok", "A pan."), ("a", "")]
    wanted = wanted_answers(folder, case, prompt_ids(folder, case, pairs))
    assert_parity(reranker.score(pairs).tolist(), wanted)


def test_shared_prefix_decides_the_digest_and_none_does_not(tmp_path):
    folder, options = save_generator(tmp_path, "Qwen3"), GENERATORS["Qwen3"].options
    given = [options, *({**options, "prefix": prefix} for prefix in ("none", "shared"))]
    left_out, none, shared = (
        resolve_checkpoint(folder, "mono", options=each).digest for each in given
    )
    assert none == left_out != shared


def test_model_that_reads_both_ways_shares_no_prefix(tmp_path):
    folder = save_generator(tmp_path / "mono", "monoT5")
    collection = _collection(tmp_path, folder, "monoT5", "shared")
    with pytest.raises(PreflightError, match=r"T5ForConditionalGeneration .*`prefix`") as raised:
        collection.plan()
    assert raised.value.exit_code == 3
    folder = save_generator(tmp_path / "qwen", "Qwen3")
    edit_json(tmp_path / "qwen" / "config.json", is_causal=False)
    with pytest.raises(PreflightError, match=r"Qwen3ForCausalLM .*`prefix`"):
        _reranker(folder, "Qwen3")


def _collection(folder: Path, checkpoint: str, name: str, prefix: str) -> SmallCollection:
    docs = {doc_id: text[:40].strip() for doc_id, text in DOCS.items()}
    collection = SmallCollection(folder, docs, shards=2).given_run()
    options = {**GENERATORS[name].options, "prefix": prefix}
    collection.keys["mono"] = {"checkpoint": checkpoint, "k": 5, **options}
    return collection


@pytest.mark.slow
def test_run_with_a_shared_prefix_is_the_same_for_any_shards_and_reuses_its_own_scores(tmp_path):
    collection = _collection(tmp_path, save_generator(tmp_path / "mono", "Qwen3"), "Qwen3", "none")
    none = run_here(collection.path, tmp_path / "none")
    shared = ["mono.prefix=shared"]
    first = run_here(collection.path, tmp_path / "first", shared)
    assert _reused(first) == 0
    assert first.plan.stage("mono").keys != none.plan.stage("mono").keys
    for number in range(2):
        share = ("--only", f"{number}/2", "--output", tmp_path / "only", "--set", *shared)
        succeed("run", collection.path, *share)
    assert_same_bytes(tmp_path / "only", tmp_path / "first")
    other = ["shards=5", "threads=1", f"reuse=[{tmp_path / 'none'}]", *shared]
    five = run_here(collection.path, tmp_path / "five", other)
    assert _reused(five) == 0
    assert run_bytes(tmp_path / "five") == run_bytes(tmp_path / "first")
    assert run_bytes(tmp_path / "five") != run_bytes(tmp_path / "none")
    more = ["shards=3", "mono.k=7", f"reuse=[{tmp_path / 'first'}]", *shared]
    deeper = run_here(collection.path, tmp_path / "deeper", more)
    assert _reused(deeper) == 5 * len(TOPICS)
    assert "All agree. " in succeed("audit", tmp_path / "deeper").stdout
    run_here(collection.path, tmp_path / "alone", ["shards=3", "mono.k=7", *shared])
    assert run_bytes(tmp_path / "alone") == run_bytes(tmp_path / "deeper")


def _reused(run: PlannedRun) -> int:
    manifest = run.plan.seal("mono")
    assert manifest is not None
    return int(manifest.total("reused"))
