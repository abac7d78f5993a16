"""Classifiers whose tokenizer has a chat template read it, as in sentence-transformers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder
from transformers import BertTokenizer

from beamrank.errors import PreflightError
from models.checkpoints.checkpoint import resolve_checkpoint
from models.reranker import Reranker
from tests.support.changed_files import edit_json
from tests.support.checkpoints import MINILM
from tests.support.models.families import CASES, random_model
from tests.support.models.tokenizers import TEXTS, save_tokenizer
from tests.support.oracle import assert_parity
from tests.support.refusals import refuses

_CHAT = (
    "{% for m in messages %}{% if m.role == 'query' %}Query: {{ m.content }}"
    "{% elif m.role == 'document' %} Document: {{ m.content }}"
    "{% else %}{{ m.content }}. {% endif %}{% endfor %}"
)
_STRUCTURED = "{% for m in messages %}{{ m.role }}: {{ m.content[0].text }}[SEP]{% endfor %}"
_PAIRS = [(query, text.strip()) for query in ("where is it?", "the dog") for text in TEXTS[:8]]


def _save_bert(folder: Path, template: str = _CHAT) -> str:
    config = {**CASES["bert one logit"].config, "vocab_size": 30522}
    random_model("bert", **{**config, "max_position_embeddings": 128}).save_pretrained(folder)
    BertTokenizer.from_pretrained(MINILM).save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(template)
    return str(folder)


def _save_llama(folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    save_tokenizer("qwen2", folder)
    sizes = {"hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 3}
    sizes |= {"num_key_value_heads": 3, "intermediate_size": 50, "vocab_size": 1200}
    sizes |= {"num_labels": 1, "max_position_embeddings": 512}
    model = random_model("llama", **sizes)
    model.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    edit_json(path, chat_template=_CHAT)
    return str(folder)


def _reranker(folder: str, **options: Any) -> Reranker:
    lengths: dict[str, Any] = {"truncation": "hf", "max_query_length": 32, "max_length": 128}
    return Reranker(folder, dtype="float32", device="cpu", **lengths, **options)


def _predicted(folder: str, **options: Any) -> list[float]:
    model = CrossEncoder(folder, device="cpu")
    model.max_seq_length = 128
    scores = model.predict(_PAIRS, batch_size=1, activation_fn=torch.nn.Identity(), **options)
    return np.asarray(scores).tolist()


@pytest.mark.parametrize("template", [_CHAT, _STRUCTURED])
def test_bert_reads_its_chat_template(template, tmp_path):
    folder = _save_bert(tmp_path, template)
    wanted = _predicted(folder)
    assert np.std(wanted) > 0.1
    assert_parity(_reranker(folder).score(_PAIRS).tolist(), wanted)


def test_classifier_through_transformers_reads_its_chat_template(tmp_path):
    folder = _save_llama(tmp_path)
    wanted = _predicted(folder)
    assert np.std(wanted) > 0.1
    assert_parity(_reranker(folder).score(_PAIRS).tolist(), wanted)


def test_instruction_is_the_system_message_of_a_classifier(tmp_path):
    folder = _save_bert(tmp_path)
    given = _reranker(folder, instruction="Find bread").score(_PAIRS).tolist()
    assert_parity(given, _predicted(folder, prompt="Find bread"))
    (tmp_path / "chat_template.jinja").write_text(_STRUCTURED.replace("messages", "messages[-2:]"))
    with pytest.raises(PreflightError, match="instruction"):
        _reranker(folder, instruction="Find bread")


def test_saved_modality_decides_whether_a_template_is_read(tmp_path):
    folder = _save_bert(tmp_path / "bert")
    CrossEncoder(folder, device="cpu").save_pretrained(str(tmp_path / "saved"))
    saved = str(tmp_path / "saved")
    assert_parity(_reranker(saved).score(_PAIRS).tolist(), _predicted(saved))
    path = tmp_path / "saved/sentence_bert_config.json"
    content = json.loads(path.read_text())
    del content["modality_config"]["message"]
    path.write_text(json.dumps(content))
    plain = _predicted(saved)
    assert_parity(_reranker(saved).score(_PAIRS).tolist(), plain)
    assert np.abs(np.subtract(plain, _predicted(folder))).max() > 0.01


@pytest.mark.parametrize(
    "template", ["{{ messages[0].content | lower }}{{ messages[1].content }}", "{% if", "none"]
)
def test_template_of_a_classifier_that_cannot_be_followed_is_refused(template, tmp_path):
    for save in (_save_bert, _save_llama):
        folder = save(tmp_path / save.__name__)
        (Path(folder) / "chat_template.jinja").write_text(template)
        with refuses(PreflightError, "prompt"):
            resolve_checkpoint(folder, "mono")


def test_chat_template_is_in_the_digest_and_no_duo_reads_it(tmp_path):
    folder = _save_bert(tmp_path)
    before = resolve_checkpoint(folder, "mono").digest
    (tmp_path / "chat_template.jinja").write_text(_STRUCTURED)
    assert resolve_checkpoint(folder, "mono").digest != before
    with refuses(PreflightError, "prompt"):
        resolve_checkpoint(folder, "duo")
