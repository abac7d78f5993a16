"""What sentence-transformers reads beside a model is followed, changes nothing, or is refused."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import CrossEncoder
from transformers import BertTokenizer

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import Truncation
from models.checkpoints.checkpoint import resolve_checkpoint
from models.reranker import Reranker
from tests.support.changed_files import edit_json
from tests.support.checkpoints import MINILM
from tests.support.models.families import CASES, random_model
from tests.support.oracle import assert_parity
from tests.support.tiers import slow_but

_PAIRS = [
    ("who wrote the OLDEST code", text)
    for text in ("Guido van Rossum wrote it", "The Library of Alexandria", "naïve code " * 40)
]
_LENGTH = 64


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A classifier as sentence-transformers saves it, for inputs of so many tokens."""
    folder = tmp_path_factory.mktemp("settings")
    config = {**CASES["bert one logit"].config, "vocab_size": 30522, "type_vocab_size": 2}
    config |= {"pad_token_id": 0, "max_position_embeddings": 128}
    random_model("bert", **config).save_pretrained(folder / "classifier")
    BertTokenizer.from_pretrained(MINILM).save_pretrained(folder / "classifier")
    model = CrossEncoder(str(folder / "classifier"), device="cpu", max_length=_LENGTH)
    model.save_pretrained(str(folder / "model"))
    return folder / "model"


def _changed(saved: Path, folder: Path, name: str = "sentence_bert_config", **keys: Any) -> str:
    """A copy of the checkpoint with other keys in one of its JSON files."""
    for path in saved.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    path = folder / f"{name}.json"
    edit_json(path, **keys)
    return str(folder)


def _reranker(folder: str, max_length: int = _LENGTH, truncation: Truncation = "hf") -> Reranker:
    return Reranker(
        folder, dtype="float32", truncation=truncation, max_query_length=16, max_length=max_length
    )


@pytest.mark.parametrize(
    "keys",
    slow_but(
        3,
        [
            {},
            {"max_seq_length": _LENGTH, "do_lower_case": True},
            {"config_kwargs": {"hidden_act": "gelu_pytorch_tanh", "hidden_dropout_prob": 0.5}},
            {"config_args": {"num_labels": 1, "use_cache": False}},
            {"model_args": {"torch_dtype": "float32", "attn_implementation": "eager"}},
            {"tokenizer_args": {"do_lower_case": True, "model_max_length": _LENGTH}},
            {"processor_kwargs": {"truncation_side": "right", "padding_side": "right"}},
            {"processing_kwargs": {"text": {"padding": "max_length", "max_length": _LENGTH}}},
            {"processing_kwargs": {"common": {"truncation": True}, "image": {"size": 3}}},
            {"unpad_inputs": False, "query_length": 4, "document_length": 4},
        ],
    ),
    ids=str,
)
def test_settings_that_change_nothing_are_taken(saved, keys, tmp_path):
    folder = _changed(saved, tmp_path, **keys)
    theirs = CrossEncoder(folder, device="cpu", activation_fn=torch.nn.Identity())
    assert_parity(_reranker(folder).score(_PAIRS).tolist(), theirs.predict(_PAIRS).tolist())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"config_kwargs": {"hidden_act": "gelu"}}, "hidden_act 'gelu'.* config.json"),
        ({"config_args": {"num_hidden_layers": 2}}, "num_hidden_layers 2"),
        ({"config_kwargs": {"layer_types": ["a"]}}, "layer_types"),
        ({"tokenizer_args": {"strip_accents": False}}, "strip_accents False.* tokenizer_config"),
        ({"processor_kwargs": {"truncation_side": "left"}}, "truncation_side 'left'"),
        ({"processor_kwargs": {"sep_token": "[CLS]"}}, "sep_token '.CLS.'"),
        ({"model_kwargs": {"variant": "fp16"}}, "variant 'fp16'"),
        ({"model_args": {"quantization_config": {}}}, "quantization_config"),
        ({"tokenizer_name_or_path": "bert-base-cased"}, "'bert-base-cased'"),
        ({"processing_kwargs": {"text": {"truncation": "only_second"}}}, "truncation"),
        ({"processing_kwargs": {"common": {"add_special_tokens": False}}}, "add_special_tokens"),
        ({"processing_kwargs": {"text": {"return_token_type_ids": False}}}, "return_token"),
        (
            {"modality_config": {"text": {"method_output_name": ["hidden_states", 1]}}},
            "modality_config .*hidden_states",
        ),
        ({"of_a_later_version": 1}, "of_a_later_version: "),
        ({"max_seq_length": "long"}, "max_seq_length: "),
    ],
    ids=str,
)
def test_settings_that_change_scores_are_refused(saved, keys, message, tmp_path):
    with pytest.raises(PreflightError, match=f"sentence_bert_config.json.* {message}"):
        resolve_checkpoint(_changed(saved, tmp_path, **keys), "mono")


def test_settings_without_modules_are_not_read(saved, tmp_path):
    """As in sentence-transformers."""
    folder = _changed(saved, tmp_path, config_kwargs={"hidden_act": "gelu"}, max_seq_length=8)
    (tmp_path / "modules.json").unlink()
    theirs = CrossEncoder(folder, device="cpu", activation_fn=torch.nn.Identity())
    assert_parity(_reranker(folder).score(_PAIRS).tolist(), theirs.predict(_PAIRS).tolist())


@pytest.mark.parametrize("key", ["do_lower_case", "tokenizer_args", "processor_kwargs"])
@pytest.mark.parametrize("lowers", [True, False])
def test_case_of_texts_is_that_of_the_settings_or_refused(saved, key, lowers, tmp_path):
    value: Any = lowers if key == "do_lower_case" else {"do_lower_case": lowers}
    folder = _changed(saved, tmp_path, **{key: value})
    # False of the module means that it changes nothing; the tokenizer lowers the case.
    if lowers or key == "do_lower_case":
        _reranker(folder)
        return
    with pytest.raises(PreflightError, match="do_lower_case False"):
        _reranker(folder)


@pytest.mark.parametrize(
    ("keys", "max_length", "said"),
    [
        ({"max_seq_length": 32}, 64, r"32 tokens \(max_seq_length in sentence_bert_config.json\)"),
        ({"max_seq_length": 96}, 64, r"96 tokens \(max_seq_length"),
        ({"processor_kwargs": {"model_max_length": 32}}, 64, r"32 tokens \(processor_kwargs"),
        ({"tokenizer_args": {"model_max_length": 32}, "max_seq_length": 64}, 64, "32 tokens"),
        ({"processing_kwargs": {"text": {"max_length": 32}}}, 64, r"32 tokens \(processing_kwargs"),
        ({"max_seq_length": 64}, 64, None),
        ({}, 96, r"64 tokens \(model_max_length in tokenizer_config.json\), and input.max_length"),
        ({}, 64, None),
        # The tokenizer's own length is often that of the positions: fewer tokens are the user's.
        ({}, 32, None),
    ],
    ids=str,
)
def test_length_that_differs_is_said(saved, keys, max_length, said, tmp_path, caplog):
    _reranker(_changed(saved, tmp_path, **keys), max_length)
    assert bool(said) == ("was saved for inputs of" in caplog.text)
    assert re.search(said or "", caplog.text)


def test_side_that_is_cut_is_said(saved, tmp_path, caplog):
    folder = _changed(saved, tmp_path, "tokenizer_config", truncation_side="left")
    with pytest.raises(PreflightError, match="truncation_side left"):
        _reranker(folder)
    assert "truncation_side" not in caplog.text
    for truncation in ("original", "paper"):
        caplog.clear()
        _reranker(folder, truncation=truncation)
        assert "truncation_side left" in caplog.text
