import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForSequenceClassification

from beamrank.errors import PreflightError
from models.architectures.families import TOKEN_TYPES
from models.checkpoints.checkpoint import resolve_checkpoint
from models.training.initial_model import Start, save_checkpoint
from models.training.states import candidate_folder, candidate_hashes, publish
from tests.support.changed_files import edit_json
from tests.support.refusals import refuses
from tests.support.training import WORDS, logits_of, save_start, save_tokenizer

_CLS, _SEP, _BLUE, _SKY, _RED = (
    WORDS.index(word) for word in ("[CLS]", "[SEP]", "blue", "sky", "red")
)


@pytest.fixture
def encoder(tmp_path: Path) -> str:
    return save_start(tmp_path / "start")


def save_mono(start_folder: str, folder: Path, weights: str = "float32") -> str:
    save_checkpoint(
        Start(start_folder, 32).model("mono", 2, 0.1, True), start_folder, str(folder), weights
    )
    return str(folder)


@pytest.mark.parametrize(("kind", "labels"), [("mono", 2), ("mono", 1), ("duo", 2)])
def test_saved_model_gives_equal_logits_in_transformers(kind, labels, encoder, tmp_path):
    model = Start(encoder, 32).model(kind, labels, 0.1, True)
    save_checkpoint(model, encoder, str(tmp_path / "saved"), "float32")
    ids, types = [_CLS, _SKY, _SEP, _BLUE, _SEP], [0, 0, 0, 1, 1]
    if kind == "duo":
        ids, types = [*ids, _RED, _SEP], [*types, 2, 2]
    found, wanted = logits_of(str(tmp_path / "saved"), model, ids, types)
    assert found.shape == (1, labels)
    assert torch.equal(found, wanted)
    checkpoint = resolve_checkpoint(str(tmp_path / "saved"), kind)
    architecture = checkpoint.architecture
    assert (architecture.num_labels, architecture.tensors[TOKEN_TYPES][0]) == (
        labels,
        3 if kind == "duo" else 2,
    )


@pytest.mark.parametrize("weights", ["float32", "float16"])
def test_saved_model_has_its_tied_decoder_once(weights, encoder, tmp_path):
    save_checkpoint(
        Start(encoder, 32).masked_model(0.1, True), encoder, str(tmp_path / "saved"), weights
    )
    names = load_file(tmp_path / "saved" / "model.safetensors").keys()
    assert "bert.embeddings.word_embeddings.weight" in names
    assert not [name for name in names if "decoder" in name]


def test_save_checkpoint_draws_no_random_numbers(encoder, tmp_path):
    model, before = Start(encoder, 32).model("mono", 2, 0.1, True), torch.get_rng_state()
    save_checkpoint(model, encoder, str(tmp_path / "saved"), "float16")
    assert torch.equal(torch.get_rng_state(), before)
    weights = load_file(tmp_path / "saved" / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float16}
    assert len({path.stat().st_mode for path in (tmp_path / "saved").iterdir()}) == 1


def test_start_keeps_a_head_that_fits(encoder, tmp_path):
    mono = save_mono(encoder, tmp_path / "mono")
    head = load_file(Path(mono) / "model.safetensors")["classifier.weight"]
    assert torch.equal(Start(mono, 32).model("mono", 2, 0.1, True).classifier.weight, head)
    assert Start(mono, 32).model("mono", 1, 0.1, True).classifier.weight.shape == (1, 32)


def test_start_with_reversed_labels_is_refused(encoder, tmp_path):
    """As a run refuses it: its head would be trained, and published, upside down."""
    folder = Path(save_mono(encoder, tmp_path / "mono"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {"id2label": {"0": "relevant", "1": "not_relevant"}})
    )
    with pytest.raises(PreflightError, match="id2label"):
        resolve_checkpoint(str(folder), "mono")
    start = Start(str(folder), 32)
    for kind in ("mono", "duo"):
        with pytest.raises(PreflightError, match="id2label"):
            start.model(kind, 2, 0.1, True)
    assert start.model("mono", 1, 0.1, True).config.id2label == {0: "relevant"}
    assert start.masked_model(0.1, True)
    assert Start(str(folder), 32, random_weights=True).model("mono", 2, 0.1, True)


def test_duo_from_a_mono_gets_a_third_token_type(encoder, tmp_path):
    mono = save_mono(encoder, tmp_path / "mono")
    rows = Start(mono, 32).model("duo", 2, 0.1, True).bert.embeddings.token_type_embeddings.weight
    assert rows.shape == (3, 32)
    assert torch.linalg.norm(rows[2] - rows[1]).item() == pytest.approx(1.0, rel=1e-5)
    assert rows.requires_grad


def test_duo_of_2019_with_two_token_types_gets_zeros(encoder, tmp_path):
    folder = Path(save_mono(encoder, tmp_path / "duo"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"type_vocab_size": 3}))
    rows = (
        Start(str(folder), 32)
        .model("duo", 2, 0.1, True)
        .bert.embeddings.token_type_embeddings.weight
    )
    assert rows[2].abs().sum() == 0
    assert rows[:2].abs().sum() > 0


def test_start_freezes_word_embeddings_and_sets_dropout(encoder):
    model = Start(encoder, 32).model("mono", 2, 0.25, False)
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    assert frozen == ["bert.embeddings.word_embeddings.weight"]
    assert {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)} == {
        0.25
    }


def test_random_start_has_the_weights_of_berts_initializer(encoder):
    (Path(encoder) / "model.safetensors").unlink()
    start = Start(encoder, 32, random_weights=True)
    models = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        models.append(start.masked_model(0.1, True).state_dict())
    for name, weight in models[0].items():
        assert torch.equal(weight, models[1][name])
        if name.endswith("LayerNorm.weight"):
            assert (weight == 1).all()
        elif name.endswith("bias"):
            assert not weight.any()
        elif weight.numel() > 500:
            # A normal distribution of .1, cut off at .2, has a standard deviation of .088.
            assert weight.abs().max() <= 0.2
            assert weight.std().item() == pytest.approx(0.088, rel=0.1)
            assert not torch.equal(weight, models[2][name])
    assert start.model("duo", 2, 0.1, True).bert.embeddings.token_type_embeddings.weight.shape == (
        3,
        32,
    )


def test_random_start_ignores_weights(encoder):
    known = Start(encoder, 32).masked_model(0.1, True).bert.pooler.dense.weight
    random = Start(encoder, 32, random_weights=True)
    assert not torch.equal(random.masked_model(0.1, True).bert.pooler.dense.weight, known)
    digest = random.digest
    (Path(encoder) / "model.safetensors").unlink()
    assert Start(encoder, 32, random_weights=True).digest == digest != ""
    with refuses(PreflightError, "no-weights"):
        Start(encoder, 32)


def drop_a_layer(folder):
    path = folder / "model.safetensors"
    weights = load_file(path)
    save_file(
        {name: weight for name, weight in weights.items() if "layer.1" not in name},
        path,
        {"format": "pt"},
    )


@pytest.mark.parametrize(
    ("spoil", "max_length", "message"),
    [
        (lambda folder: save_tokenizer(folder, [*WORDS, "stranger"]), 32, "29 ids"),
        (lambda folder: None, 64, r"32 positions .*64"),
        (drop_a_layer, 32, " 16 .* 36 "),
        (
            lambda folder: (folder / "config.json").write_text('{"model_type": "roberta"}'),
            32,
            "'roberta', not 'bert'",
        ),
        (
            lambda folder: (folder / "config.json").write_text('{"num_hidden_groups": 1}'),
            32,
            "'albert', not 'bert'",
        ),
    ],
)
def test_start_refuses_what_cannot_be_trained(spoil, max_length, message, encoder):
    spoil(Path(encoder))
    with pytest.raises(PreflightError, match=message):
        Start(encoder, max_length)


@pytest.mark.parametrize(
    ("sizes", "config", "tensor", "message"),
    [
        ({}, {"is_decoder": True}, None, "is_decoder"),
        ({}, {"position_embedding_type": "relative_key"}, None, "'relative_key'"),
        ({}, {"auto_map": {"AutoModel": "own--model.Own"}}, None, "auto_map"),
        ({}, {"num_hidden_layers": 1}, None, r"16 tensors .*encoder\.layer\.1\."),
        ({}, {}, "encoder.layer.0.attention.self.query.lora_A.weight", "1 tensors"),
        ({"type_vocab_size": 1}, {}, None, "1 token type"),
    ],
)
def test_start_that_no_run_could_score_is_refused(sizes, config, tensor, message, tmp_path):
    """As a run refuses it: transformers would leave parts out, or read another way, without a
    word.
    """
    folder = Path(save_start(tmp_path / "start", **sizes))
    (folder / "config.json").write_text(
        json.dumps(json.loads((folder / "config.json").read_text()) | config)
    )
    if tensor:
        weights = load_file(folder / "model.safetensors")
        save_file(
            weights | {tensor: torch.ones(4, 32)}, folder / "model.safetensors", {"format": "pt"}
        )
    with pytest.raises(PreflightError, match=message):
        Start(str(folder), 32)


def test_start_without_a_library_that_reads_it_is_refused(encoder):
    path = Path(encoder) / "config.json"
    quantized = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}
    edit_json(path, **quantized)
    with pytest.raises(PreflightError, match="bitsandbytes"):
        Start(encoder, 32).model("mono", 2, 0.1, True)


def test_new_and_unused_parts_of_a_start_are_said(encoder):
    """Without a pooler, as masked language models are saved, one of random weights is trained."""
    start = Start(encoder, 32)
    start.model("mono", 2, 0.1, True)
    assert not start.warnings
    start.masked_model(0.1, True)
    assert ["head of masked words is new" in line for line in start.warnings] == [True]
    path = Path(encoder) / "model.safetensors"
    weights = {name: weight for name, weight in load_file(path).items() if "pooler" not in name}
    save_file(weights | {"score.weight": torch.ones(1, 32)}, path, {"format": "pt"})
    start = Start(encoder, 32)
    start.model("mono", 2, 0.1, True)
    pooler, unused = start.warnings
    assert pooler.startswith("the pooler is new")
    assert "not used: 1 ('score.weight')" in unused


def test_start_accepts_padded_word_embeddings(tmp_path):
    assert Start(save_start(tmp_path / "padded", vocab_size=64), 32).tokenizer.vocab_size == len(
        WORDS
    )


def test_publish_replaces_an_earlier_checkpoint_only(encoder, tmp_path):
    output, candidate = tmp_path / "output", candidate_folder(str(tmp_path / "output"))
    for seed in (1, 2):
        torch.manual_seed(seed)
        model = BertForSequenceClassification(BertConfig.from_pretrained(encoder, num_labels=2))
        save_checkpoint(model, encoder, str(candidate), "float32")
        publish(str(output), candidate_hashes(str(output)))
        (output / "README.md").write_text("card")
    head = load_file(output / "model.safetensors")["classifier.weight"]
    assert torch.equal(head, model.classifier.weight)
    assert (output / "README.md").read_text() == "card"
    assert not candidate.exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_input_names": ["input_ids"]}, "model_input_names"),
        ({"tokenizer_class": "DistilBertTokenizer"}, "tokenizer_class"),
        ({"additional_special_tokens": ["[Q]"]}, r"'\[Q\]'"),
    ],
)
def test_start_whose_tokenizer_does_otherwise_than_bert_is_refused(settings, message, encoder):
    """The trained model would keep these files, and be scored on other inputs than it was trained
    on.
    """
    path = Path(encoder) / "tokenizer_config.json"
    edit_json(path, **settings)
    with pytest.raises(PreflightError, match=message):
        Start(encoder, 32)
