from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, BertModel

from beamrank.errors import PreflightError
from models.checkpoints import resolve_checkpoint
from models.training.distill import Recipe, duo_loss, mono_loss, start_duo, start_mono, train
from models.training.encoding import Layout
from models.training.mining import Group

_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "green", "blue", "what", "is", "sky", "grass"]


@pytest.fixture
def start(tmp_path: Path) -> str:
    """The folder of a tiny BERT."""
    torch.manual_seed(0)
    folder = tmp_path / "start"
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "initializer_range": 0.1,
    }
    BertModel(BertConfig(vocab_size=len(_WORDS), max_position_embeddings=32, **shape)).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordPiece({word: number for number, word in enumerate(_WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(_WORDS[:5])
    tokenizer.save(str(folder / "tokenizer.json"))
    folder.joinpath("vocab.txt").write_text("\n".join(_WORDS) + "\n", encoding="utf-8")
    folder.joinpath("tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}', encoding="utf-8")
    return str(folder)


@pytest.fixture
def groups() -> list[Group]:
    """Four groups: the sky is blue and the grass green."""
    sky = Group("what is sky", ["blue", "red", "green", "red red"], np.array([0.9, 0.2, 0.1, 0.1], np.float32), True)
    grass = Group("what is grass", ["green", "red", "blue", "red red"], np.array([0.8, 0.2, 0.1, 0], np.float32), True)
    return [sky, grass] * 2


def score(folder: str, layout: Layout, *texts: str) -> float:
    model = BertForSequenceClassification.from_pretrained(folder, dtype=torch.float32).train(False)
    ids, types = layout.lay_out(*texts)
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types])).logits[0]
    return float(logits[1] - logits[0])


def test_mono_learns_a_few_groups_and_duo_goes_on_from_it(start, groups, tmp_path):
    layout, recipe, mono = Layout(start, 8), Recipe(steps=200, learning_rate=1e-3), str(tmp_path / "mono")
    train(start_mono(start), layout, groups, mono_loss(recipe), recipe, mono)
    assert score(mono, layout, "what is sky", "blue") > score(mono, layout, "what is sky", "green") + 3
    assert score(mono, layout, "what is grass", "green") > score(mono, layout, "what is grass", "blue") + 3
    assert resolve_checkpoint(mono, "mono").num_labels == 2
    assert {weight.dtype for weight in load_file(tmp_path / "mono" / "model.safetensors").values()} == {torch.float16}

    layout, duo = Layout(mono, 8), str(tmp_path / "duo")
    train(start_duo(mono), layout, groups, duo_loss(recipe), recipe, duo)
    assert score(duo, layout, "what is sky", "blue", "green") > 1
    assert score(duo, layout, "what is sky", "green", "blue") < -1
    assert resolve_checkpoint(duo, "duo").shape.token_types == 3


def test_the_seed_decides_the_weights(start, groups, tmp_path):
    weights = []
    for name in ("first", "second"):
        torch.manual_seed(5)
        recipe = Recipe(steps=5, save_seconds=0.0 if name == "first" else 1e9)
        train(start_mono(start), Layout(start, 8), groups, mono_loss(recipe), recipe, str(tmp_path / name))
        weights.append(load_file(tmp_path / name / "model.safetensors"))
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_inputs_are_laid_out_as_the_papers_have_them(start):
    cls, sep = _WORDS.index("[CLS]"), _WORDS.index("[SEP]")
    blue, green, sky = (_WORDS.index(word) for word in ("blue", "green", "sky"))
    ids, types = Layout(start, 1).lay_out("sky", "blue red", "green")
    assert ids == [cls, sky, sep, blue, sep, green, sep]
    assert types == [0, 0, 0, 1, 1, 2, 2]


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(PreflightError, match=r"tokenizer\.json is not there"):
        Layout(str(tmp_path), 8)
