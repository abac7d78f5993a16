"""Checkpoints of known families that cannot be scored are refused by name, with the reason; and
their layouts.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import InputTemplate
from beamrank.records import SpecialTokens
from models.checkpoints.checkpoint import resolve_checkpoint
from tests.support.changed_files import edit_json
from tests.support.models.families import save_case

_SPECIAL = SpecialTokens(cls_id=1, sep_id=2, pad_id=0)


def _edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    edit_json(path, **changes)


def _add_tensors(folder: Path, names: list[str], shape: tuple[int, ...] = (3,)) -> None:
    weights = folder / "model.safetensors"
    save_file({**load_file(weights), **{name: torch.ones(shape) for name in names}}, weights)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("roberta", {"architectures": ["RobertaForMultipleChoice"]}, "RobertaForMultipleChoice"),
        ("roberta", {"auto_map": {"AutoModel": "x.Y"}}, "auto_map"),
        ("roberta", {"model_type": "new", "auto_map": {"AutoModel": "x.Y"}}, "'new'"),
        ("roberta", {"position_embedding_type": "alibi"}, "position_embedding_type 'alibi'"),
        ("roberta", {"position_embedding_type": "rope"}, "position_embedding_type 'rope'"),
        ("modernbert cls", {"position_embedding_type": "alibi"}, "position_embedding_type 'alibi'"),
        ("roberta", {"is_decoder": True}, "is_decoder"),
        ("roberta", {"pad_token_id": 49}, r"first 50 .*pad_token_id 49"),
        ("roberta", {"pad_token_id": -1}, "pad_token_id"),
        ("roberta", {"num_hidden_layers": 4}, r" 16 .*: roberta\.encoder\.layer\.3"),
        ("xlm-roberta", {"hidden_act": "theirs"}, "hidden_act 'theirs'"),
        ("xlm-roberta", {"max_position_embeddings": 99}, r"position_em.*\(50, 36\), .*\(99, 36\)"),
        ("electra", {"embedding_size": 36}, r"word_embeddings.*\(500, 20\), .*\(500, 36"),
        ("electra", {"num_attention_heads": 5}, "heads"),
        ("distilbert", {"dim": None}, ": dim"),
        ("distilbert", {"activation": "theirs"}, "activation 'theirs'"),
        ("modernbert cls", {"num_attention_heads": 4}, "9 dimensions"),
        ("modernbert cls", {"layer_types": ["full_attention"]}, "4 layers .*1 layer_types"),
        ("modernbert cls", {"layer_types": ["linear_attention"] * 4}, r"layer_types\.0"),
        ("modernbert cls", {"rope_scaling": {"rope_type": "yarn"}}, "yarn"),
        (
            "modernbert cls",
            {
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
                }
            },
            "'linear'",
        ),
        ("modernbert cls", {"rope_parameters": {"rope_theta": 1e4}}, "rope_parameters"),
        ("modernbert cls", {"classifier_pooling": "max"}, "classifier_pooling"),
        ("modernbert cls", {"classifier_activation": "theirs"}, "classifier_activation 'theirs'"),
        ("modernbert cls", {"local_attention": 1}, "local_attention"),
        ("modernbert cls", {"max_position_embeddings": 10**9}, "max_position_embeddings"),
        ("modernbert cls", {"norm_bias": True}, r"norm.bias"),
        ("modernbert cls", {"norm_eps": "x"}, "norm_eps"),
    ],
    ids=str,
)
def test_family_that_cannot_be_scored_is_refused(name, changes, message, tmp_path):
    save_case(tmp_path, name)
    _edit_config(tmp_path, **changes)
    with pytest.raises(PreflightError, match=message):
        resolve_checkpoint(str(tmp_path), "mono")


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("roberta", "classifier.out_proj.weight"),
        ("electra", "classifier.out_proj.weight"),
        ("distilbert", "classifier.weight"),
        ("modernbert cls", "classifier.weight"),
    ],
)
def test_family_without_a_classifier_is_refused(name, tensor, tmp_path):
    save_case(tmp_path, name)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    del weights[tensor]
    save_file(weights, path)
    with pytest.raises(PreflightError, match=tensor):
        resolve_checkpoint(str(tmp_path), "mono")


def test_input_longer_than_the_positions_is_refused(tmp_path):
    checkpoint = resolve_checkpoint(save_case(tmp_path, "xlm-roberta"), "mono")
    assert checkpoint.architecture.positions == 48
    checkpoint.check_length(48)
    with pytest.raises(PreflightError, match=r"48 positions .*input\.max_length is 49"):
        checkpoint.check_length(49)


@pytest.mark.parametrize(
    ("name", "mono", "duo", "types"),
    [
        ("roberta two types", ((2, 2), (2,)), ((2, 2), (2, 2), (2,)), (0, 0, 0)),
        ("distilbert", ((2,), (2,)), ((2,), (2,), (2,)), (0, 0, 0)),
        ("modernbert cls", ((2,), (2,)), ((2,), (2,), (2,)), (0, 0, 0)),
        ("electra same width", ((2,), (2,)), ((2,), (2,), (2,)), (0, 1, 2)),
    ],
)
def test_family_lays_texts_out_as_its_tokenizer(name, mono, duo, types, tmp_path):
    folder = save_case(tmp_path, name)
    pair = resolve_checkpoint(folder, "mono").architecture
    assert pair.template(_SPECIAL) == InputTemplate((1,), mono, types[:2], 0)
    triple = resolve_checkpoint(folder, "duo").architecture
    assert (triple.template(_SPECIAL).ends, triple.template(_SPECIAL).token_types) == (duo, types)
    assert pair.warnings == ()
    assert bool(triple.warnings) == (types == (0, 0, 0))


def test_electra_with_two_token_types_is_refused_as_duo(tmp_path):
    folder = save_case(tmp_path, "electra")
    with pytest.raises(PreflightError, match=r"2 token types, .*3 segments"):
        resolve_checkpoint(folder, "duo")


@pytest.mark.parametrize("name", ["roberta", "modernbert cls", "electra"])
def test_encoder_tensors_without_a_prefix_are_read(name, tmp_path):
    with_prefix = resolve_checkpoint(save_case(tmp_path, name), "mono").architecture.tensors
    path = tmp_path / "model.safetensors"
    prefix = {"roberta": "roberta.", "electra": "electra."}.get(name, "model.")
    save_file({name.removeprefix(prefix): value for name, value in load_file(path).items()}, path)
    tensors = resolve_checkpoint(str(tmp_path), "mono").architecture.tensors
    assert list(tensors) == [each.removeprefix(prefix) for each in with_prefix]


@pytest.mark.parametrize(
    ("name", "config", "tensors", "unread"),
    [
        ("bert", {"num_hidden_layers": 2}, [], r"bert\.encoder\.layer\.2\."),
        ("xlm-roberta", {"num_hidden_layers": 1}, [], r"roberta\.encoder\.layer\.1\."),
        ("distilbert", {"n_layers": 1}, [], r"distilbert\.transformer\.layer\.1\."),
        ("modernbert biases", {"attention_bias": False}, [], r"attn\.Wo\.bias"),
        ("modernbert biases", {"norm_bias": False}, [], r"norm\.bias"),
        ("modernbert biases", {"classifier_bias": False}, [], r"head\.dense\.bias"),
        (
            "bert",
            {},
            ["bert.encoder.layer.0.attention.self.distance_embedding.weight"],
            "distance_embedding",
        ),
        (
            "roberta",
            {},
            ["roberta.encoder.layer.1.output.adapters.a.adapter_down.0.weight"],
            "adapter_down",
        ),
        (
            "electra",
            {},
            ["electra.encoder.layer.0.attention.self.query.lora_A.default.weight"],
            "lora_A",
        ),
        ("bert", {}, ["classifier.modules_to_save.default.weight"], "modules_to_save"),
    ],
)
def test_weights_that_config_does_not_call_for_are_refused(tmp_path, name, config, tensors, unread):
    folder = save_case(tmp_path, name)
    resolve_checkpoint(folder, "mono")
    _edit_config(tmp_path, **config)
    _add_tensors(tmp_path, tensors, (3, 3))
    with pytest.raises(PreflightError, match=unread):
        resolve_checkpoint(folder, "mono")


def test_tensors_of_other_heads_are_left_out(tmp_path):
    folder = save_case(tmp_path, "bert")
    names = ["cls.predictions.bias", "cls.seq_relationship.weight", "bert.embeddings.position_ids"]
    _add_tensors(tmp_path, names)
    resolve_checkpoint(folder, "mono")
    folder = save_case(tmp_path / "roberta", "roberta")
    names = ["roberta.pooler.dense.weight", "roberta.pooler.dense.bias", "lm_head.bias"]
    _add_tensors(tmp_path / "roberta", names)
    resolve_checkpoint(folder, "mono")
