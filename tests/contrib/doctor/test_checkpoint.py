"""The checks of a checkpoint, on copies of the embedded pair and of random models that are
changed.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from contrib.doctor.checkpoint import NOTE, OK, WRONG, Checked, check_checkpoint, triples
from tests import ROOT
from tests.contrib.generators.cases import GENERATORS, save_generator
from tests.support.checkpoints import LETTERS, save_tiny


@pytest.fixture
def copy(tmp_path) -> Path:
    """The embedded mono, to be changed."""
    return shutil.copytree(ROOT / "models/embedded/mono", tmp_path / "copy")


def _change(folder: Path, part: str, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    changed_tensors = {
        name: change(tensor) if part in name else tensor for name, tensor in tensors.items()
    }
    assert any(part in name for name in tensors)
    save_file(changed_tensors, folder / "model.safetensors", {"format": "pt"})


def test_triples_are_forty_queries_with_two_texts_each():
    rows = triples()
    assert len({query for query, _, _ in rows}) == 40
    assert len({text for _, *both in rows for text in both}) == 80


def test_reversed_head_is_found(copy):
    _change(copy, "classifier", torch.neg)
    finding = Checked(str(copy), "mono").answers()
    assert (finding.state, finding.figures["accuracy"]) == (WRONG, 0)
    assert "labels are reversed" in finding.found


@pytest.mark.slow
def test_head_of_zeros_ties_all_inputs(copy):
    _change(copy, "classifier", torch.zeros_like)
    checked = Checked(str(copy), "mono")
    assert (checked.ties().state, checked.ties().figures["distinct"]) == (WRONG, 1)
    assert "never trained to rank" in checked.answers().found


@pytest.mark.slow
def test_pooler_that_another_library_drops_is_found(copy):
    checked = Checked(str(copy), "mono")
    assert checked.against_transformers().state == OK
    # The scores are those of the pooler that transformers no longer finds.
    _change(copy, "pooler", torch.zeros_like)
    finding = checked.against_transformers()
    assert finding.state == WRONG
    assert finding.figures["largest_difference"] > 1


def test_tokenizer_without_the_words_of_texts_is_found(tmp_path):
    special, _ = Checked(save_tiny(tmp_path / "letters", LETTERS[:8]), "mono").layout()
    assert special.state == WRONG
    assert special.figures["unknown"] > 0.5


@pytest.mark.slow
def test_tokenizer_that_cuts_beginnings_is_noted(copy):
    checked = Checked(str(copy), "mono")
    assert checked.truncation().state == OK
    settings = json.loads((copy / "tokenizer_config.json").read_text())
    (copy / "tokenizer_config.json").write_text(json.dumps(settings | {"truncation_side": "left"}))
    finding = Checked(str(copy), "mono").truncation()
    assert finding.state == NOTE
    assert "truncation_side left" in finding.found
    assert finding.figures["end"] == finding.figures["without"] < finding.figures["beginning"]


def test_shorter_length_of_the_model_is_noted(copy):
    settings = json.loads((copy / "tokenizer_config.json").read_text())
    (copy / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 32}))
    finding = Checked(str(copy), "mono").truncation()
    assert (finding.state, "for inputs of 32 tokens" in finding.found) == (NOTE, True)


def test_duo_is_asked_in_both_orders(tmp_path):
    checked = Checked(save_tiny(tmp_path / "duo", None, type_vocab_size=3), "duo")
    special, _ = checked.layout()
    assert special.found.startswith("[CLS] query [SEP] doc_i [SEP] doc_j [SEP], token types 0 1 2")
    assert checked.against_transformers().state == OK
    assert 0.2 < checked.answers().figures["accuracy"] < 0.8


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mono", "duo"])
def test_embedded_pair_ranks_as_it_should(kind):
    findings = {finding.check: finding for finding in check_checkpoint(f"embedded:{kind}", kind)}
    assert [finding for finding in findings.values() if finding.state == WRONG] == []
    assert findings["answers"].figures["accuracy"] == 1
    assert findings["transformers"].figures["largest_difference"] < 0.1


@pytest.mark.slow
def test_language_model_has_a_prompt_and_two_words(tmp_path):
    folder = save_generator(tmp_path, "monoT5")
    checked = Checked(folder, "mono", GENERATORS["monoT5"].options)
    _, prompt = checked.layout()
    # The small vocabulary lacks two capitals.
    assert prompt.found == "<unk>uery: query Document: doc <unk>elevant:</s>"
    assert checked.labels().figures["words"] == ["▁false", "▁true"]
    assert checked.against_transformers().state == OK
