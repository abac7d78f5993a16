"""Weights that the model of config.json would leave out: its scores would be those of another model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from beamrank.errors import PreflightError
from models.checkpoints.checkpoint import resolve_checkpoint
from tests.support.models.families import save_case


def _edit(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    weights = folder / "model.safetensors"
    save_file({**load_file(weights), **tensors}, weights)


@pytest.mark.parametrize(
    ("name", "config", "tensors", "unread"),
    [
        ("bert", {"num_hidden_layers": 2}, [], r"bert\.encoder\.layer\.2\."),
        ("xlm-roberta", {"num_hidden_layers": 1}, [], r"roberta\.encoder\.layer\.1\."),
        ("distilbert", {"n_layers": 1}, [], r"distilbert\.transformer\.layer\.1\."),
        ("modernbert biases", {"attention_bias": False}, [], r"attn\.Wo\.bias"),
        ("modernbert biases", {"norm_bias": False}, [], r"norm\.bias"),
        ("modernbert biases", {"classifier_bias": False}, [], r"head\.dense\.bias"),
        ("bert", {}, ["bert.encoder.layer.0.attention.self.distance_embedding.weight"], "distance_embedding"),
        ("roberta", {}, ["roberta.encoder.layer.1.output.adapters.a.adapter_down.0.weight"], "adapter_down"),
        ("electra", {}, ["electra.encoder.layer.0.attention.self.query.lora_A.default.weight"], "lora_A"),
    ],
)
def test_weights_that_config_does_not_call_for_are_refused(tmp_path, name, config, tensors, unread):
    folder = save_case(tmp_path, name)
    resolve_checkpoint(folder, "mono")
    _edit(tmp_path, config, {each: torch.ones(3, 3) for each in tensors})
    with pytest.raises(PreflightError, match=rf"tensors .*{unread}"):
        resolve_checkpoint(folder, "mono")


def test_tensors_of_other_heads_are_left_out(tmp_path):
    folder = save_case(tmp_path, "bert")
    names = ["cls.predictions.bias", "cls.seq_relationship.weight", "bert.embeddings.position_ids"]
    _edit(tmp_path, {}, {name: torch.ones(3) for name in names})
    resolve_checkpoint(folder, "mono")
    folder = save_case(tmp_path / "roberta", "roberta")
    names = ["roberta.pooler.dense.weight", "roberta.pooler.dense.bias", "lm_head.bias"]
    _edit(tmp_path / "roberta", {}, {name: torch.ones(3) for name in names})
    resolve_checkpoint(folder, "mono")
