"""What the files of a language model say of its prompt and its answers, as sentence-transformers
reads them; and what they do not say.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import CrossEncoder

from beamrank.errors import PreflightError
from contrib.generators.published import find_published, published
from models.checkpoints.checkpoint import resolve_checkpoint
from models.reranker import Reranker
from tests.contrib.generators.cases import (
    GENERATORS,
    prompt_ids,
    save_generator,
    save_modules,
    wanted_answers,
)
from tests.support.models.tokenizers import TEXTS
from tests.support.oracle import assert_parity

_ROLES = {
    role: (
        "{{ messages | selectattr('role', 'eq', 'ROLE') | map(attribute='content') | first }}"
    ).replace("ROLE", role)
    for role in ("query", "document")
}
_SYSTEM_USER = (
    f"<|im_start|>system\n{_ROLES['query']}<|im_end|>\n<|im_start|>user\n{_ROLES['document']}"
    '<|im_end|>\n<|im_start|>assistant{{ "\\n" }}'
)
_INSTRUCTED = (
    "<Instruct>: {% if messages[0].role == 'system' %}{{ messages[0].content }}{% else %}Find it"
    f"{{% endif %}}\n<Query>:{_ROLES['query']}\n<Document>: {_ROLES['document']}\nRelevance:"
)
_DOCS = [text.strip() for text in TEXTS[:9] if text.strip()]
_PAIRS = [(query, doc) for query in ("where is it?", "北京 and (p < 0.05)") for doc in _DOCS]


def _save(folder: Path, template: str = _SYSTEM_USER, *answers: str, **prompts: Any) -> str:
    """A random Qwen3 with a template, which answers yes or with others."""
    save_generator(folder, "Qwen3")
    vocabulary = transformers.AutoTokenizer.from_pretrained(folder).get_vocab()
    true, *false = (vocabulary[word] for word in answers or ("yes",))
    save_modules(folder, template, true, false[0] if false else None, **prompts)
    return str(folder)


def _change(folder: Path, name: str, **changes: Any) -> None:
    path = folder / name
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **changes}))


def _reranker(folder: str, **options: Any) -> Reranker:
    lengths: dict[str, Any] = {"truncation": "hf", "max_query_length": 32, "max_length": 128}
    return Reranker(folder, dtype="float32", device="cpu", **lengths | options)


def _predicted(folder: str, pairs: list[tuple[str, str]], **options: Any) -> list[float]:
    model = CrossEncoder(folder, device="cpu", model_kwargs={"dtype": torch.float32})
    model.max_seq_length = 128
    scores = model.predict(pairs, batch_size=1, activation_fn=torch.nn.Identity(), **options)
    return np.asarray(scores).tolist()


@pytest.mark.parametrize(
    ("template", "answers"),
    [
        (_SYSTEM_USER, ("yes",)),
        (_SYSTEM_USER, ("no", "yes")),
        (_SYSTEM_USER.replace("| first", "| first | trim"), ("yes", "no")),
        (_INSTRUCTED, ("1", "0")),
        ("{% for m in messages %}{{ m.content }}{{ ' , ' }}{% endfor %}", ("yes", "no")),
    ],
)
def test_modules_and_template_decide_the_score(template, answers, tmp_path):
    folder = _save(tmp_path, template, *answers)
    pairs = [*_PAIRS, (" padded ", "\n both \n"), (_PAIRS[0][0], " ".join(_DOCS) * 2)]
    # A line break between a doc that is cut and the end of a prompt is cut too.
    pairs = pairs[:-1] if "Document" in template else pairs
    wanted = _predicted(folder, pairs)
    assert np.std(wanted) > 0.1
    assert_parity(_reranker(folder).score(pairs).tolist(), wanted)


def test_default_prompt_is_the_instruction_of_the_template(tmp_path):
    prompts = {"query": "Find bread", "empty": ""}
    folder = _save(tmp_path, _INSTRUCTED, "yes", "no", prompts=prompts, default_prompt_name="query")
    assert_parity(_reranker(folder).score(_PAIRS).tolist(), _predicted(folder, _PAIRS))
    given = _reranker(folder, instruction="Find cats").score(_PAIRS).tolist()
    assert_parity(given, _predicted(folder, _PAIRS, prompt="Find cats"))
    digests = {resolve_checkpoint(folder, "mono").digest}
    for name in ("empty", None):
        _change(tmp_path, "config_sentence_transformers.json", default_prompt_name=name)
        digests.add(resolve_checkpoint(folder, "mono").digest)
        assert_parity(_reranker(folder).score(_PAIRS).tolist(), _predicted(folder, _PAIRS))
    assert len(digests) == 2
    _change(tmp_path, "config_sentence_transformers.json", default_prompt_name="absent")
    with pytest.raises(PreflightError, match="'absent'"):
        resolve_checkpoint(folder, "mono")


def test_words_and_template_are_in_the_digest(tmp_path):
    folder = _save(tmp_path, _SYSTEM_USER, "yes", "no")
    seen = {resolve_checkpoint(folder, "mono").digest}
    _change(tmp_path, "1_LogitScore/config.json", false_token_id=None)
    seen.add(resolve_checkpoint(folder, "mono").digest)
    (tmp_path / "chat_template.jinja").write_text(_INSTRUCTED)
    seen.add(resolve_checkpoint(folder, "mono").digest)
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("1_LogitScore/config.json", {"true_token_id": 10**6}, "1000000"),
        ("1_LogitScore/config.json", {"module_input_name": "x"}, "module_input_name"),
        ("1_LogitScore/config.json", {"true_token_id": None}, "true_token_id"),
        (
            "sentence_bert_config.json",
            {"modality_config": {"text": {}}},
            "does not say after which",
        ),
    ],
)
def test_modules_that_cannot_be_followed_are_refused(name, changes, message, tmp_path):
    folder = _save(tmp_path)
    _change(tmp_path, name, **changes)
    with pytest.raises(PreflightError, match=message):
        resolve_checkpoint(folder, "mono")


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (["temperature.TemperatureLogitScore"], "code of its own, which is never run"),
        (["logit_score.LogitScore"], "code of its own, which is never run"),
        (["sentence_transformers.models.Pooling"], "Transformer, Pooling"),
        ([], "with the modules Transformer of"),
    ],
)
def test_other_modules_after_a_language_model_are_refused(types, message, tmp_path):
    folder = _save(tmp_path)
    path = tmp_path / "modules.json"
    first, second = json.loads(path.read_text())
    path.write_text(json.dumps([first, *({**second, "type": each} for each in types)]))
    for options in ({}, GENERATORS["Qwen3"].options):
        with pytest.raises(PreflightError, match=message):
            resolve_checkpoint(folder, "mono", options=options)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (_SYSTEM_USER.replace("| first", "| first | upper"), "changes it"),
        (f"{_ROLES['document']} {_ROLES['query']}", "lacks a text or changes it"),
        (_ROLES["query"], "lacks a text"),
        (_SYSTEM_USER + "{{ strftime_now('%d') }}", "holds the date"),
        ("{{ messages[0].content[:9] }} {{ messages[1].content }}", "changes it"),
        ("{{ raise_exception('no such role') }}", "no such role"),
        ("{{ messages[0].content.__class__.__mro__ }}", "SecurityError"),
        ("{% for message in", "TemplateSyntaxError"),
        (f"{_ROLES['query']}{_ROLES['document']}", "no border between a text and what is beside"),
    ],
)
def test_template_that_is_no_fixed_text_around_texts_is_refused(template, message, tmp_path):
    with pytest.raises(PreflightError, match=message):
        resolve_checkpoint(_save(tmp_path, template), "mono")


def test_language_model_that_says_nothing_is_refused_until_the_user_does(tmp_path):
    folder = _save(tmp_path)
    for name in ("modules.json", "sentence_bert_config.json"):
        (tmp_path / name).unlink()
    answers = {"answers": ("yes", "no")}
    with pytest.raises(PreflightError, match="`answers`"):
        resolve_checkpoint(folder, "mono")
    # The template is in the folder; sentence-transformers takes yes and no for the answers.
    assert_parity(_reranker(folder, **answers).score(_PAIRS).tolist(), _predicted(folder, _PAIRS))
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(PreflightError, match="`answers`"):
        resolve_checkpoint(folder, "mono", options=answers)
    case = GENERATORS["Qwen3"]
    wanted = wanted_answers(folder, case, prompt_ids(folder, case, _PAIRS))
    found = _reranker(folder, **case.options, max_length=512).score(_PAIRS)
    assert_parity(found.tolist(), wanted)


@pytest.mark.parametrize("name", ["Portuguese monoT5", "mT5", "duoT5", "Qwen3"])
def test_hugging_face_id_decides_what_files_do_not_say(name, tmp_path, monkeypatch):
    case, commit = GENERATORS[name], "0" * 39 + "1"
    repository = tmp_path / f"models--{case.model.replace('/', '--')}"
    saved = save_generator(tmp_path / "saved", name)
    shutil.copytree(saved, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    texts = [(*pair, "a dog") for pair in _PAIRS] if case.kind == "duo" else _PAIRS
    lengths: Any = {"truncation": "paper", "max_query_length": 40, "max_length": 512}
    found = Reranker(case.model, case.kind, dtype="float32", device="cpu", **lengths)  # type: ignore[arg-type]
    wanted = wanted_answers(saved, case, prompt_ids(saved, case, texts))
    assert_parity(found.score(texts).tolist(), wanted)
    with pytest.raises(PreflightError, match="`answers`"):
        resolve_checkpoint(saved, case.kind)


def test_published_models_have_one_prompt_each():
    names = ["castorini/monot5-3b-msmarco-10k", "unicamp-dl/ptt5-base-en-pt-msmarco-100k-v2"]
    names += ["unicamp-dl/mt5-13b-mmarco-100k", "mixedbread-ai/mxbai-rerank-large-v2"]
    assert [find_published(f"{name}@abc").answers[0] for name in names] == [
        *("▁true", "▁sim", "▁true", "1"),
    ]
    assert find_published("someone/monot5-base") is None
    patterns = [pattern for row in published() for pattern in row.models]
    assert len(patterns) == len(set(patterns))
