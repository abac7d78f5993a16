"""Checkpoints that are malformed: a PreflightError at once, never a traceback, and nothing large is
made.
"""

import contextlib
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from beamrank.errors import PreflightError
from models.checkpoints.checkpoint import resolve_checkpoint
from models.tokenizers.library import load_tokenizer
from models.training.initial_model import Start
from tests.support.changed_files import edit_json
from tests.support.checkpoints import save_tiny
from tests.support.refusals import refuses

_DEEP = 200_000
_OTHERS: tuple[Any, ...] = ([], {}, [[]], {"a": 1}, "x", -1, 1.5, 1e300, 10**30)
MALFORMED = [
    "",
    "{",
    "[]",
    "1",
    "null",
    '"x"',
    "[" * _DEEP,
    '{"a":' * _DEEP,
    "9" * 5000,
    '{"a": NaN}',
    "\0",
    "\xff",
]
_SIZES = (
    "num_hidden_layers",
    "num_attention_heads",
    "hidden_size",
    "intermediate_size",
    "vocab_size",
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(save_tiny(tmp_path_factory.mktemp("tiny"), vocab_size=4))


@pytest.fixture
def folder(tiny: Path, tmp_path: Path) -> Path:
    for path in tiny.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def _resolve(folder: str) -> object:
    return resolve_checkpoint(folder, "mono")


def _configs() -> Iterator[tuple[str, Any]]:
    for key in (*_SIZES, "max_position_embeddings", "layer_norm_eps", "hidden_act", "model_type"):
        yield from ((key, other) for other in _OTHERS)
        yield key, float("inf")
    yield from ((key, large) for key in _SIZES for large in (10**7, 10**12, 0))
    yield from (
        ("id2label", other)
        for other in (*_OTHERS, ["a", "b"], {"x": "a", "1": "b"}, {"0": [], "1": {}})
    )
    yield from (("position_embedding_type", other) for other in _OTHERS)
    yield "is_decoder", [1]


@pytest.mark.timeout(10)
@pytest.mark.parametrize(("key", "value"), list(_configs()), ids=str)
def test_malformed_config_is_refused(folder, key, value):
    path = folder / "config.json"
    edit_json(path, **{key: value})
    with pytest.raises(PreflightError) as refusal:
        resolve_checkpoint(str(folder), "mono")
    assert len(str(refusal.value)) < 1000
    if key in (*_SIZES, "max_position_embeddings", "layer_norm_eps", "model_type"):
        with pytest.raises(PreflightError):
            Start(str(folder), 8)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "name", ["config.json", "modules.json", "tokenizer_config.json", "tokenizer.json"]
)
@pytest.mark.parametrize("text", MALFORMED, ids=lambda each: each[:8])
def test_file_that_is_not_its_json_is_refused(folder, name, text):
    (folder / name).write_bytes(text.encode("latin-1"))
    if (name, text) == ("modules.json", "[]"):
        return
    load = load_tokenizer if name.startswith("tokenizer") else _resolve
    with pytest.raises(PreflightError) as refusal:
        load(str(folder))
    assert len(str(refusal.value)) < 1000


def test_config_that_is_a_folder_is_refused(folder):
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    with pytest.raises(PreflightError, match=r"config\.json"):
        resolve_checkpoint(str(folder), "mono")


@pytest.mark.parametrize(
    "text", ["{}", "[1]", "[[]]", '[{"type": 1}]', '[{"idx": 0}]', '{"type": "x"}']
)
def test_malformed_modules_are_refused(folder, text):
    (folder / "modules.json").write_text(text)
    with pytest.raises(PreflightError, match=r"modules\.json"):
        resolve_checkpoint(str(folder), "mono")


def _save(folder: Path, weights: dict[str, torch.Tensor], pickled: bool) -> None:
    if pickled:
        (folder / "model.safetensors").unlink()
        torch.save(weights, folder / "pytorch_model.bin")
    else:
        save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize(
    "name",
    ["classifier.weight", "bert.embeddings.token_type_embeddings.weight", "bert.pooler.dense.bias"],
)
@pytest.mark.parametrize("shape", [(), (0,), (2,), (2, 32, 1), (0, 0)], ids=str)
@pytest.mark.parametrize("pickled", [False, True])
def test_tensors_of_other_dimensions_are_refused(folder, name, shape, pickled):
    weights = load_file(folder / "model.safetensors") | {name: torch.zeros(shape)}
    _save(folder, weights, pickled)
    with pytest.raises(PreflightError):
        resolve_checkpoint(str(folder), "mono")


@pytest.mark.parametrize(
    "kind", [torch.int8, torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn], ids=str
)
@pytest.mark.parametrize("pickled", [False, True])
def test_quantized_weights_are_refused(folder, kind, pickled):
    """Without their scales they would be other weights, and give scores without an error."""
    weights = load_file(folder / "model.safetensors")
    weights["classifier.weight"] = weights["classifier.weight"].to(kind)
    _save(folder, weights, pickled)
    with pytest.raises(PreflightError, match=r"classifier\.weight .*float16"):
        resolve_checkpoint(str(folder), "mono")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80",
        b"PK\x03\x04",
        b"\x80\x02]q\x00.",
        b"\x80\x02K\x01.",
        b"\x80\x02}q\x00X\x01\x00\x00\x00aK\x01s.",
        b"\xff" * 99,
    ],
)
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_weights_of_other_bytes_are_refused(folder, name, content):
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(content)
    with refuses(PreflightError, "damaged", file=name):
        resolve_checkpoint(str(folder), "mono")


def test_weights_header_nested_too_deep_is_refused(folder):
    header = b'{"a":' * _DEEP
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with refuses(PreflightError, "damaged", file="model.safetensors"):
        resolve_checkpoint(str(folder), "mono")


_NO_CONFIGURATION = (
    *product(
        ("tokenizer_class", "do_lower_case", "strip_accents", "unk_token", "sep_token"),
        ([], [[]], {"a": 1}, {"content": []}, 10**30),
    ),
    # For transformers, the text "false" is true.
    *product(("do_lower_case", "strip_accents", "tokenize_chinese_chars"), ("false", "no", 0)),
)


@pytest.mark.parametrize(("key", "value"), _NO_CONFIGURATION, ids=str)
def test_malformed_tokenizer_configuration_is_refused(folder, key, value):
    (folder / "tokenizer_config.json").write_text(json.dumps({key: value}))
    with pytest.raises(PreflightError, match=rf"tokenizer_config\.json .*{key}"):
        load_tokenizer(str(folder))


@pytest.mark.parametrize(
    "key", ["id2label", "num_labels", "dtype", "pad_token_id", "classifier_dropout"]
)
@pytest.mark.parametrize("value", [[], "x", 10**9], ids=str)
@pytest.mark.timeout(10)
def test_start_takes_no_other_types(folder, key, value):
    """What training sets itself is not asked of the file; a billion labels would be a billion
    names.
    """
    path = folder / "config.json"
    edit_json(path, **{key: value})
    with contextlib.suppress(PreflightError):
        Start(str(folder), 8)
