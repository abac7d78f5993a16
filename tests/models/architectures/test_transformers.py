"""Classifiers without an architecture here score through transformers, as transformers scores whole
pairs of texts.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from beamrank.errors import PreflightError
from models.checkpoints.checkpoint import resolve_checkpoint
from models.reranker import Reranker
from tests.support.changed_files import edit_json
from tests.support.models.families import SIZES, random_model
from tests.support.models.tokenizers import TEXTS, save_tokenizer
from tests.support.oracle import assert_parity
from tests.support.refusals import refuses
from tests.support.tiers import slow_but

_VOCABULARY = 720
_POSITIONS = 64
_NO_LIMIT = 1 << 24
_DEBERTA: dict[str, Any] = {
    **SIZES,
    "vocab_size": _VOCABULARY,
    "max_position_embeddings": _POSITIONS,
    "relative_attention": True,
}
_DEBERTA |= {
    "position_biased_input": False,
    "pos_att_type": ["p2c", "c2p"],
    "type_vocab_size": 0,
    "pad_token_id": 0,
}
_V3 = {"position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
# The tokenizer, the model_type, its configuration and its positions.
_CASES: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "deberta-v3": ("deberta-v2", "deberta-v2", {**_DEBERTA, **_V3, "num_labels": 1}, _POSITIONS),
    "deberta-v2 two logits": (
        "deberta-v2",
        "deberta-v2",
        {**_DEBERTA, "type_vocab_size": 2},
        _POSITIONS,
    ),
    "deberta": ("deberta-v2", "deberta", {**_DEBERTA, "num_labels": 1}, _POSITIONS),
    "albert": (
        "bert",
        "albert",
        {
            **SIZES,
            "vocab_size": _VOCABULARY,
            "max_position_embeddings": _POSITIONS,
            "embedding_size": 20,
        },
        _POSITIONS,
    ),
    "mpnet": (
        "xlm-roberta",
        "mpnet",
        {
            **SIZES,
            "vocab_size": _VOCABULARY,
            "max_position_embeddings": _POSITIONS,
            "num_labels": 1,
        },
        _POSITIONS - 2,
    ),
    # Its files name the tensors otherwise than its model.
    "gte": (
        "xlm-roberta",
        "gte",
        {**SIZES, "vocab_size": _VOCABULARY, "max_position_embeddings": _POSITIONS, "num_labels": 1}
        | {"hidden_size": 48, "num_attention_heads": 4, "position_embedding_type": "rope"},
        _POSITIONS,
    ),
    # It reads its last token, and would add an embedding for a token type.
    "gpt2": (
        "xlm-roberta",
        "gpt2",
        {
            "n_embd": 36,
            "n_layer": 2,
            "n_head": 3,
            "n_positions": _POSITIONS,
            "vocab_size": _VOCABULARY,
        }
        | {"num_labels": 1, "pad_token_id": None},
        _POSITIONS,
    ),
    # Positions that are relative to others have no limit.
    "t5": (
        "xlm-roberta",
        "t5",
        {"d_model": 36, "d_kv": 12, "d_ff": 50, "num_layers": 2, "num_heads": 3}
        | {"vocab_size": _VOCABULARY, "eos_token_id": 2, "pad_token_id": 1, "num_labels": 1}
        | {"decoder_start_token_id": 1},
        _NO_LIMIT,
    ),
    "bloom": (
        "xlm-roberta",
        "bloom",
        {"hidden_size": 36, "n_layer": 2, "n_head": 3, "vocab_size": _VOCABULARY, "num_labels": 1}
        | {"pad_token_id": 1},
        _NO_LIMIT,
    ),
    "funnel": (
        "bert",
        "funnel",
        {"d_model": 36, "n_head": 3, "d_head": 12, "d_inner": 50, "block_sizes": [2, 2]}
        | {"vocab_size": _VOCABULARY, "num_decoder_layers": 1, "num_labels": 1},
        _NO_LIMIT,
    ),
    # Activations that the encoder here does not compute.
    "bert silu": (
        "bert",
        "bert",
        {**SIZES, "vocab_size": _VOCABULARY, "max_position_embeddings": _POSITIONS}
        | {"hidden_act": "silu"},
        _POSITIONS,
    ),
    "roberta quick_gelu": (
        "xlm-roberta",
        "roberta",
        {**SIZES, "vocab_size": _VOCABULARY, "max_position_embeddings": _POSITIONS + 2}
        | {"hidden_act": "quick_gelu", "pad_token_id": 1, "type_vocab_size": 1},
        _POSITIONS,
    ),
    "distilbert relu": (
        "bert",
        "distilbert",
        {"dim": 36, "n_layers": 2, "n_heads": 3, "hidden_dim": 50, "vocab_size": _VOCABULARY}
        | {"max_position_embeddings": _POSITIONS, "activation": "relu", "num_labels": 1},
        _POSITIONS,
    ),
    "modernbert relu": (
        "bert",
        "modernbert",
        {**SIZES, "vocab_size": _VOCABULARY, "max_position_embeddings": _POSITIONS}
        | {**dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0)}
        | {"cls_token_id": None, "sep_token_id": None, "hidden_activation": "relu"}
        | {"num_labels": 1}
        | {"position_embedding_type": "rope"},
        _POSITIONS,
    ),
}
_PAIRS = [(query, doc) for query in TEXTS[:4] for doc in TEXTS[1:7] if doc.strip()]


def _save(folder: Path, name: str = "deberta-v3") -> str:
    tokenizer, model_type, config, _ = _CASES[name]
    random_model(model_type, **config).save_pretrained(folder)
    return save_tokenizer(tokenizer, folder)


def _edit(folder: str, **changes: Any) -> str:
    path = Path(folder) / "config.json"
    edit_json(path, **changes)
    return folder


def _reranker(folder: str, dtype: str, max_length: int = _POSITIONS, threads: int = 2) -> Reranker:
    options: dict[str, Any] = {"truncation": "hf", "max_query_length": 16, "max_length": max_length}
    return Reranker(folder, dtype=dtype, device="cpu", threads=threads, **options)


def _wanted(folder: str, length: int) -> list[float]:
    """The log-odds of transformers, of each pair of texts on its own."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    scores = []
    for pair in _PAIRS:
        inputs = tokenizer(*pair, truncation=True, max_length=length, return_tensors="pt")
        with torch.inference_mode():
            logits = model(**inputs).logits[0]
        scores.append(float(logits[-1] - logits[0]) if len(logits) == 2 else float(logits[0]))
    return scores


@pytest.mark.parametrize("name", slow_but(6, _CASES))
def test_pairs_of_texts_score_as_in_transformers(name, tmp_path, caplog):
    folder, positions = _save(tmp_path, name), _CASES[name][-1]
    assert resolve_checkpoint(folder, "mono").architecture.positions == positions
    length = min(positions, _POSITIONS)
    wanted = _wanted(folder, length)
    assert np.std(wanted) > 0.2
    ours = _reranker(folder, "float32", max_length=length)
    assert "through transformers" in caplog.text
    assert "slower" in caplog.text
    assert_parity(ours.score(_PAIRS).tolist(), wanted)


def test_loading_leaves_the_bars_of_transformers_as_they_were(tmp_path, monkeypatch):
    # Another test of this process may have turned them off.
    monkeypatch.setattr(logging, "_tqdm_active", True)
    _reranker(_save(tmp_path), "float32").score(_PAIRS[:1])
    assert logging.is_progress_bar_enabled()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_deberta_score_has_the_same_bits_beside_others(dtype, tmp_path):
    folder = _save(tmp_path)
    one, two = (_reranker(folder, dtype, threads=threads) for threads in (1, 2))
    together = two.score(_PAIRS)
    assert one.score(_PAIRS[::-1]).tolist() == together[::-1].tolist()
    assert [float(one.score([pair])[0]) for pair in _PAIRS[::5]] == together[::5].tolist()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_model_that_computes_only_in_float32_is_refused_in_another_dtype(dtype, tmp_path):
    with pytest.raises(PreflightError, match=rf"deberta in {dtype} .*float32"):
        _reranker(_save(tmp_path, "deberta"), dtype)


def test_deberta_in_bfloat16_stays_near_without_ties(tmp_path):
    folder = _save(tmp_path)
    exact, scores = (_reranker(folder, dtype).score(_PAIRS) for dtype in ("float32", "bfloat16"))
    assert np.sqrt(np.square(scores - exact).mean()) < 0.3 * exact.std()
    assert len(np.unique(scores)) == len(np.unique(exact))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"auto_map": {"AutoConfig": "theirs.Theirs"}}, "auto_map"),
        ({"_attn_implementation": "org/kernel"}, "'_attn_implementation'"),
        (
            {"quantization_config": {"quant_method": "awq"}},
            "'quantization_config' .*'awq'.*`endpoint`",
        ),
        ({"architectures": ["DebertaV2ForMaskedLM"]}, "DebertaV2ForMaskedLM"),
        ({"position_embedding_type": "rope"}, "position_embedding_type 'rope'"),
        ({"num_hidden_layers": 4}, r" 16 .*deberta.encoder.layer.3"),
        ({"num_hidden_layers": 10**9}, "ValueError: 1000000000 layers"),
        ({"num_hidden_layers": "three"}, "transformers"),
        ({"vocab_size": 9}, r"word_embeddings.weight .*\(720, 36\), .*\(9, 36\)"),
        ({"max_position_embeddings": 1 << 30}, "max_position_embeddings 1073741824"),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, r"id2label|linear|\(3, "),
    ],
    ids=str,
)
def test_unusable_configuration_is_refused_with_the_reason(changes, message, tmp_path):
    folder = _save(tmp_path)
    with pytest.raises(PreflightError, match=message):
        resolve_checkpoint(_edit(folder, **changes), "mono")


@pytest.mark.parametrize(
    ("model_type", "message"),
    [
        # XMOD wants a language with each input.
        ("xmod", "ValueError: "),
        # CANINE hashes characters: transformers has no table of embeddings of it to give, and
        # raises this error, which beamrank quotes.
        ("canine", "NotImplementedError: .*get_input_embeddings"),
    ],
)
def test_model_that_does_not_read_tokens_alone_is_refused(model_type, message, tmp_path):
    random_model(
        model_type, **SIZES, vocab_size=_VOCABULARY, max_position_embeddings=_POSITIONS
    ).save_pretrained(tmp_path)
    with pytest.raises(PreflightError, match=message):
        resolve_checkpoint(save_tokenizer("xlm-roberta", tmp_path), "mono")


def test_missing_classifier_is_refused(tmp_path):
    path = Path(_save(tmp_path)) / "model.safetensors"
    kept = {
        name: each for name, each in load_file(path).items() if not name.startswith("classifier")
    }
    save_file(kept, path, metadata={"format": "pt"})
    with pytest.raises(PreflightError, match=r"classifier\.weight"):
        resolve_checkpoint(str(tmp_path), "mono")


def test_weights_of_a_wrapper_are_refused_by_their_names(tmp_path):
    path = Path(_save(tmp_path)) / "model.safetensors"
    wrapped = {f"_orig_mod.{name}": each for name, each in load_file(path).items()}
    save_file(wrapped, path, metadata={"format": "pt"})
    with pytest.raises(PreflightError, match=r"_orig_mod\.classifier\.weight"):
        resolve_checkpoint(str(tmp_path), "mono")


def test_duo_through_transformers_is_refused(tmp_path):
    with pytest.raises(PreflightError, match="mono"):
        resolve_checkpoint(_save(tmp_path), "duo")


def test_tokenizer_without_a_layout_of_pairs_is_refused(tmp_path):
    folder = Path(_save(tmp_path))
    save_tokenizer("qwen2", folder)
    with refuses(PreflightError, "unknown-layout"):
        resolve_checkpoint(str(folder), "mono")
    (folder / "tokenizer.json").write_text("{}")
    with refuses(PreflightError, "tokenizer"):
        resolve_checkpoint(str(folder), "mono")
