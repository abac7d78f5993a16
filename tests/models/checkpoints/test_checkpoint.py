import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from beamrank.errors import ConfigError, PreflightError
from models.checkpoints.checkpoint import load_weights, resolve_checkpoint
from tests.support.checkpoints import MINILM, save_tiny
from tests.support.refusals import refuses


def _edit_config(folder: Path, **changes: Any) -> str:
    path = folder / "config.json"
    values = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    return str(folder)


def _edit_weights(folder: Path, **changes: torch.Tensor | None) -> str:
    weights = {**load_file(folder / "model.safetensors"), **changes}
    save_file(
        {name: tensor for name, tensor in weights.items() if tensor is not None},
        folder / "model.safetensors",
    )
    return str(folder)


def _pickle(folder: Path, **options: Any) -> str:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin", **options)
    (folder / "model.safetensors").unlink()
    return str(folder)


def test_checkpoint_describes_its_files(tmp_path):
    folder = save_tiny(tmp_path, num_labels=1, max_position_embeddings=128)
    checkpoint = resolve_checkpoint(folder, "mono")
    assert (checkpoint.folder, checkpoint.reference, checkpoint.kind) == (folder, folder, "mono")
    architecture = checkpoint.architecture
    assert (architecture.num_labels, checkpoint.weights, architecture.warnings) == (
        1,
        ("model.safetensors",),
        (),
    )
    assert (architecture.positions, architecture.vocab_size) == (128, 1000)


def test_digest_covers_config_tokenizer_and_weights(tmp_path):
    folder = save_tiny(tmp_path)
    before = resolve_checkpoint(folder, "mono").digest
    (tmp_path / "README.md").write_text("a model")
    assert resolve_checkpoint(folder, "duo").digest == before
    seen = {before}
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nmore\n")
    seen.add(resolve_checkpoint(folder, "mono").digest)
    _edit_config(tmp_path, layer_norm_eps=1e-6)
    seen.add(resolve_checkpoint(folder, "mono").digest)
    _edit_weights(tmp_path, **{"classifier.bias": torch.ones(2)})
    seen.add(resolve_checkpoint(folder, "mono").digest)
    assert len(seen) == 4


@pytest.mark.parametrize(
    "options", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "2019"]
)
def test_pytorch_weights_are_read(tmp_path, options):
    wanted = load_weights(resolve_checkpoint(save_tiny(tmp_path), "mono"))
    checkpoint = resolve_checkpoint(_pickle(tmp_path, **options), "mono")
    assert checkpoint.weights == ("pytorch_model.bin",)
    found = load_weights(checkpoint)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_half_precision_weights_are_read_as_float32(tmp_path):
    save_tiny(tmp_path)
    halves = {
        name: tensor.half() for name, tensor in load_file(tmp_path / "model.safetensors").items()
    }
    weights = load_weights(resolve_checkpoint(_edit_weights(tmp_path, **halves), "mono"))
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_weights_that_are_not_finite_are_refused(tmp_path, value, dtype):
    save_tiny(tmp_path)
    weight = load_file(tmp_path / "model.safetensors")["bert.pooler.dense.weight"].to(dtype)
    weight[3, 4] = torch.finfo(dtype).max
    _edit_weights(tmp_path, **{"bert.pooler.dense.weight": weight})
    resolve_checkpoint(str(tmp_path), "mono").check_weights()
    weight[3, 5] = value
    checkpoint = resolve_checkpoint(
        _edit_weights(tmp_path, **{"bert.pooler.dense.weight": weight}), "mono"
    )
    with pytest.raises(PreflightError, match=r"bert\.pooler\.dense\.weight .*NaN"):
        load_weights(checkpoint)


class _Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("executed"),))


@pytest.mark.parametrize(
    "content",
    [
        lambda path, tensors: torch.save(tensors, path),
        lambda path, tensors: torch.save(tensors, path, _use_new_zipfile_serialization=False),
        lambda path, tensors: path.write_bytes(pickle.dumps(tensors, protocol=2)),
    ],
    ids=["zip", "2019", "plain"],
)
def test_pickled_code_is_refused(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    folder = _pickle(Path(save_tiny(tmp_path)))
    content(tmp_path / "pytorch_model.bin", {"classifier.weight": _Payload()})
    with pytest.raises(PreflightError, match=r"pytorch_model\.bin"):
        resolve_checkpoint(folder, "mono")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("told", [2, 3])
def test_duo_adds_a_row_of_zeros_to_two_segments(tmp_path, caplog, told):
    save_tiny(tmp_path)
    checkpoint = resolve_checkpoint(_edit_config(tmp_path, type_vocab_size=told), "duo")
    (warning,) = checkpoint.architecture.warnings
    assert "has token type embeddings for 2 segments, duoBERT's input has 3" in warning
    with caplog.at_level(logging.WARNING):
        load_weights(checkpoint)
    assert warning in caplog.messages


@pytest.mark.parametrize(
    "labels",
    [
        ("relevant", "not_relevant"),
        ("LABEL_1", "LABEL_0"),
        ("True", "False"),
        ("Positive", "other"),
        ("a", "Not Relevant"),
        ("entailment", "not-entailment"),
        ("paraphrase", "not_paraphrase"),
        ("answer", "no_answer"),
        ("sports", "non-sports"),
        ("correct", "in-correct"),
        ("is correct", "is incorrect"),
        ("helpful", "Unhelpful"),
        ("agree", "disagree"),
        ("POS", "other"),
        ("a", "neg"),
        ("a", "dissimilar"),
    ],
)
def test_reversed_id2label_is_refused(tmp_path, labels):
    save_tiny(tmp_path)
    with pytest.raises(PreflightError, match="id2label"):
        resolve_checkpoint(_edit_config(tmp_path, id2label=dict(enumerate(labels))), "mono")


@pytest.mark.parametrize(
    "labels",
    [
        ("not_paraphrase", "paraphrase"),
        ("neg", "pos"),
        ("unanswerable", "answerable"),
        ("not_relevant", "relevant"),
        ("LABEL_0", "LABEL_1"),
        ("a", "b"),
        None,
    ],
)
def test_other_id2label_is_accepted(tmp_path, labels):
    save_tiny(tmp_path)
    folder = _edit_config(tmp_path, id2label=labels and dict(enumerate(labels)))
    assert resolve_checkpoint(folder, "mono").architecture.num_labels == 2


@pytest.mark.parametrize(
    ("id2label", "label2id", "message"),
    [
        (["a", "b"], {"a": 0, "b": 1}, None),
        (["a", "b"], {"a": 1, "b": 0}, r"id2label .*label2id"),
        (["a", "b"], {"A": 0}, None),
        (["a", "b"], {"c": 0}, "label2id"),
        (["a", "b"], {"b": 2}, "label2id"),
        (None, {"relevant": 0, "other": 1}, "id2label"),
        (None, {"other": 0, "relevant": 1}, None),
        (None, {"relevant": "first"}, "label2id"),
    ],
    ids=str,
)
def test_labels_that_contradict_each_other_are_refused(tmp_path, id2label, label2id, message):
    save_tiny(tmp_path)
    names = id2label and dict(enumerate(id2label))
    folder = _edit_config(tmp_path, id2label=names, label2id=label2id)
    if message is None:
        assert resolve_checkpoint(folder, "mono").architecture.num_labels == 2
        return
    with pytest.raises(PreflightError, match=message):
        resolve_checkpoint(folder, "mono")


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        ("mono", {"type_vocab_size": 1}, r"1 token type, .*2 segments"),
        ("duo", {"type_vocab_size": 1}, r"1 token type, .*3 segments"),
        ("mono", {"num_labels": 3}, "3 labels"),
    ],
)
def test_model_of_other_sizes_is_refused(tmp_path, kind, config, message):
    with pytest.raises(PreflightError, match=message):
        resolve_checkpoint(save_tiny(tmp_path, **config), kind)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "whisper"}, "'whisper' .*'bert'"),
        ({"model_type": None}, "model_type None"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'"),
        ({"is_decoder": True}, "is_decoder"),
        ({"hidden_act": "theirs"}, "hidden_act 'theirs'"),
        ({"hidden_size": None}, "hidden_size: "),
        ({"num_attention_heads": 5}, r"2 layers .*5 heads .*32"),
        ({"num_hidden_layers": 3}, r" 16 .* 57 .*bert.encoder.layer.2"),
        ({"vocab_size": 999}, r"word_embeddings.weight .*\(1000, 32\), .*\(999, 32\)"),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, r"3 labels, .*2"),
    ],
    ids=str,
)
def test_checkpoint_of_another_model_is_refused_by_name(tmp_path, changes, message):
    save_tiny(tmp_path)
    with pytest.raises(PreflightError, match=message):
        resolve_checkpoint(_edit_config(tmp_path, **changes), "mono")


def test_head_without_a_pooler_is_refused(tmp_path):
    save_tiny(tmp_path)
    folder = _edit_weights(
        tmp_path, **{"bert.pooler.dense.weight": None, "bert.pooler.dense.bias": None}
    )
    with pytest.raises(PreflightError, match=r" 2 .* 41 .*: bert\.pooler\.dense\.weight"):
        resolve_checkpoint(folder, "mono")


def test_embedding_model_is_refused(tmp_path):
    with pytest.raises(PreflightError, match="Pooling, Normalize"):
        resolve_checkpoint(str(MINILM), "mono")
    for name in ("config.json", "vocab.txt", "model.safetensors"):
        (tmp_path / name).symlink_to(MINILM / name)
    with pytest.raises(PreflightError, match=r"classifier\.weight"):
        resolve_checkpoint(str(tmp_path), "mono")


def test_cross_encoder_of_sentence_transformers_is_accepted(tmp_path):
    save_tiny(tmp_path, num_labels=1)
    module = {
        "idx": 0,
        "name": "0",
        "path": "",
        "type": "sentence_transformers.base.modules.transformer.Transformer",
    }
    (tmp_path / "modules.json").write_text(json.dumps([module]))
    assert resolve_checkpoint(str(tmp_path), "mono").architecture.num_labels == 1


def test_folders_that_hold_no_checkpoint_are_refused(tmp_path):
    with pytest.raises(PreflightError, match=r"config\.json"):
        resolve_checkpoint(str(tmp_path), "mono")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(PreflightError, match=r"config\.json .*JSON"):
        resolve_checkpoint(str(tmp_path), "mono")
    save_tiny(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "tf_model.h5")
    with refuses(PreflightError, "no-weights"):
        resolve_checkpoint(str(tmp_path), "mono")
    (tmp_path / "model.safetensors").write_bytes(b"cut short")
    with refuses(PreflightError, "damaged", file="model.safetensors"):
        resolve_checkpoint(str(tmp_path), "mono")


def test_unknown_kind_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="'trio'"):
        resolve_checkpoint(save_tiny(tmp_path), "trio")
