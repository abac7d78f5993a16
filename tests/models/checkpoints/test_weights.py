"""Weights in every form that transformers loads: names of 2018, several files with an index, and
adapters.
"""

import gc
import json
import tracemalloc
from pathlib import Path

import fsspec
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from beamrank.errors import PreflightError
from models.checkpoints.checkpoint import load_weights, resolve_checkpoint
from models.checkpoints.files import weight_files
from models.training.initial_model import Start
from tests.support.checkpoints import save_tiny
from tests.support.models.families import save_case

_FORMATS = ["safetensors", "bin"]


def _save(
    folder: Path, tensors: dict[str, torch.Tensor], form: str, name: str | None = None
) -> None:
    if form == "bin":
        torch.save(tensors, folder / (name or "pytorch_model.bin"))
    else:
        save_file(tensors, folder / (name or "model.safetensors"))


def _split(folder: Path, form: str, parts: int = 3) -> None:
    """Divides model.safetensors into several files with an index, as transformers does with a large
    model.
    """
    whole = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    stem = "pytorch_model" if form == "bin" else "model"
    mapped: dict[str, str] = {}
    for part in range(parts):
        name = f"{stem}-{part + 1:05}-of-{parts:05}.{form}"
        some = {tensor: whole[tensor] for tensor in list(whole)[part::parts]}
        _save(folder, some, form, name)
        mapped |= dict.fromkeys(some, name)
    whole_name = "pytorch_model.bin" if form == "bin" else "model.safetensors"
    (folder / f"{whole_name}.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": mapped})
    )


def _equal(folder: str, wanted: dict[str, torch.Tensor]) -> bool:
    found = load_weights(resolve_checkpoint(folder, "mono"))
    return found.keys() == wanted.keys() and all(
        torch.equal(found[name], wanted[name]) for name in wanted
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_each_dtype_is_read_at_any_place_of_the_file(tmp_path, dtype):
    folder, path = save_tiny(tmp_path), tmp_path / "model.safetensors"
    wanted = {name: tensor.to(dtype) for name, tensor in load_file(path).items()}
    save_file(wanted, path, metadata={"format": "pt"})
    # Old files have headers of any length, which leaves the values unaligned.
    size, data = int.from_bytes(path.read_bytes()[:8], "little"), path.read_bytes()[8:]
    path.write_bytes((size + 1).to_bytes(8, "little") + data[:size] + b" " + data[size:])
    assert _equal(folder, {name: tensor.float() for name, tensor in wanted.items()})


def test_reading_weights_again_takes_no_more_memory(tmp_path):
    checkpoint = resolve_checkpoint(save_tiny(tmp_path), "mono")
    load_weights(checkpoint)
    tracemalloc.start()
    for _ in range(30):
        load_weights(checkpoint)
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 30 * 16 * len(checkpoint.architecture.tensors)


@pytest.mark.parametrize("form", _FORMATS)
@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "distilbert"])
def test_names_of_the_first_conversions_are_read(tmp_path, family, form):
    folder = save_case(tmp_path, family)
    wanted = load_weights(resolve_checkpoint(folder, "mono"))
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    for new, old in (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")):
        tensors = {name.replace(new, old): tensor for name, tensor in tensors.items()}
    assert any(name.endswith("LayerNorm.gamma") for name in tensors)
    _save(tmp_path, tensors, form)
    assert _equal(folder, wanted)
    ours, theirs = wanted, AutoModelForSequenceClassification.from_pretrained(folder).state_dict()
    assert all(torch.equal(theirs[name], tensor) for name, tensor in ours.items())


def test_tensor_under_both_of_its_names_is_refused(tmp_path):
    folder = save_tiny(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "bert.embeddings.LayerNorm"
    save_file({**tensors, f"{name}.gamma": torch.zeros(32)}, tmp_path / "model.safetensors")
    with pytest.raises(PreflightError, match=rf"{name}\.weight "):
        resolve_checkpoint(folder, "mono")


@pytest.mark.parametrize("form", _FORMATS)
def test_weights_in_several_files_are_read_and_hashed(tmp_path, form):
    folder = save_tiny(tmp_path)
    wanted = load_weights(resolve_checkpoint(folder, "mono"))
    _split(tmp_path, form)
    checkpoint = resolve_checkpoint(folder, "mono")
    assert _equal(folder, wanted)
    assert len(checkpoint.weights) == 4
    assert {Path(file.url).name for file in checkpoint.files} >= set(checkpoint.weights)
    assert checkpoint.weights_bytes > sum(4 * tensor.numel() for tensor in wanted.values())
    Start(folder, 8).model("mono", 2, 0.0, True)
    last = tmp_path / checkpoint.weights[-1]
    last.write_bytes(last.read_bytes()[:-1] + b"\1")
    assert resolve_checkpoint(folder, "mono").digest != checkpoint.digest


def test_formats_are_preferred_as_by_transformers(tmp_path):
    save_tiny(tmp_path)
    whole = load_file(tmp_path / "model.safetensors")
    _split(tmp_path, "safetensors")
    _save(tmp_path, whole, "bin")
    assert weight_files(str(tmp_path))[0] == "model.safetensors.index.json"
    _save(tmp_path, whole, "safetensors")
    assert weight_files(str(tmp_path)) == ("model.safetensors",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "weight_map"),
        ('{"weight_map": {"a": "../x"}}', r"weight_map.a"),
        ('{"weight_map": {"a": "/etc/passwd"}}', r"weight_map.a"),
        ('{"weight_map": []}', r"index\.json .*weight_map"),
        ("[", "JSON"),
        ('{"weight_map": {}}', r"index\.json"),
        ('{"weight_map": {"a": "model-00009-of-00009.safetensors"}}', "00009-of-00009"),
        ('{"weight_map": {"a": "model-00001-of-00003.safetensors"}}', r"index\.json .* a, "),
    ],
)
def test_index_that_does_not_fit_is_refused(tmp_path, content, message):
    folder = save_tiny(tmp_path)
    _split(tmp_path, "safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(PreflightError, match=message):
        resolve_checkpoint(folder, "mono")


@pytest.mark.parametrize("form", _FORMATS)
def test_weights_in_several_files_are_copied_from_a_store(tmp_path, monkeypatch, form):
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "cache"))
    folder = save_tiny(tmp_path / "saved")
    _split(tmp_path / "saved", form)
    wanted = resolve_checkpoint(folder, "mono")
    if form == "safetensors":
        _save(
            tmp_path / "saved",
            {"unread": torch.zeros(9)},
            "bin",
            "pytorch_model-00001-of-00001.bin",
        )
    memory = fsspec.filesystem("memory")
    memory.put(folder, "/parts/model", recursive=True)
    try:
        checkpoint = resolve_checkpoint("memory://parts/model", "mono")
    finally:
        memory.rm("/parts", recursive=True)
    assert (checkpoint.digest, checkpoint.weights) == (wanted.digest, wanted.weights)
    assert not list(Path(checkpoint.folder).glob("*-00001-of-00001.bin"))


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside a model"])
def test_adapter_is_refused(tmp_path, alone):
    folder = str(tmp_path) if alone else save_tiny(tmp_path)
    (tmp_path / "adapter_config.json").write_text(
        '{"peft_type": "LORA", "base_model_name_or_path": "bert-base"}'
    )
    (tmp_path / "adapter_model.safetensors").touch()
    for load in (lambda: resolve_checkpoint(folder, "mono"), lambda: Start(folder, 8)):
        with pytest.raises(PreflightError, match=r"PEFT.*merge_and_unload"):
            load()


def test_adapter_at_a_store_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("BEAMRANK_CACHE", str(tmp_path / "cache"))
    memory = fsspec.filesystem("memory")
    memory.pipe("/adapters/lora/adapter_config.json", b"{}")
    try:
        with pytest.raises(PreflightError, match="PEFT"):
            resolve_checkpoint("memory://adapters/lora", "mono")
    finally:
        memory.rm("/adapters", recursive=True)
