"""Cross-encoders that sentence-transformers saves as modules, and text through them and through
plain classifiers.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder
from transformers import AutoConfig, AutoModel, BertTokenizer

from beamrank.errors import PreflightError
from models.checkpoints.checkpoint import resolve_checkpoint
from models.reranker import Reranker
from tests import ROOT
from tests.support.changed_files import edit_json
from tests.support.checkpoints import MINILM
from tests.support.models.families import CASES, randomize
from tests.support.models.published import PUBLISHED, compare, save_modules, save_published
from tests.support.oracle import assert_parity
from tests.support.tiers import slow_but

_QUERY = "who wrote the oldest code of the standard library"
_TEXTS = [
    "the library of Alexandria",
    "code",
    "Guido van Rossum wrote it. " * 12,
    "naïve Ωmega 東京 read the standard",
]
_PAIRS = [(_QUERY, text) for text in _TEXTS]
_IDS = {"pad_token_id": 0, "cls_token_id": 101, "sep_token_id": 102}
_ROWS = 30522


def _config(name: str) -> dict[str, Any]:
    return {**CASES[name].config, "vocab_size": _ROWS, "max_position_embeddings": 128, **_IDS}


def _save_encoder(folder: Path, name: str) -> None:
    torch.manual_seed(0)
    model = AutoModel.from_config(AutoConfig.for_model(CASES[name].model_type, **_config(name)))
    randomize(model)
    model.save_pretrained(folder)
    BertTokenizer.from_pretrained(MINILM).save_pretrained(folder)


def _save_modules(
    folder: Path, name: str = "modernbert cls", pooling: str = "cls", outputs: int = 1
) -> CrossEncoder:
    _save_encoder(folder / "model", name)
    save_modules(folder / "model", pooling, outputs)
    return CrossEncoder(str(folder / "model"), device="cpu")


def _reranker(folder: Path) -> Reranker:
    return Reranker(
        str(folder),
        dtype="float32",
        device="cpu",
        truncation="hf",
        max_query_length=32,
        max_length=64,
    )


def _predicted(model: CrossEncoder) -> list[float]:
    model.max_seq_length = 64
    logits = torch.tensor(model.predict(_PAIRS, activation_fn=torch.nn.Identity())).reshape(
        len(_PAIRS), -1
    )
    return (logits[:, -1] - logits[:, 0] if logits.shape[1] == 2 else logits[:, 0]).tolist()


@pytest.mark.parametrize(
    ("name", "pooling", "outputs"),
    [
        ("modernbert cls", "cls", 1),
        ("modernbert mean", "mean", 2),
        ("bert", "cls", 2),
        ("electra", "mean", 1),
        ("distilbert", "cls", 1),
    ],
)
def test_modules_score_as_in_sentence_transformers(name, pooling, outputs, tmp_path):
    wanted = _predicted(_save_modules(tmp_path, name, pooling, outputs))
    assert torch.tensor(wanted).std() > 0.1
    assert_parity(_reranker(tmp_path / "model").score(_PAIRS).tolist(), wanted)


@pytest.mark.parametrize("name", slow_but(4, PUBLISHED))
def test_published_form_scores_as_in_sentence_transformers(name, tmp_path):
    found, wanted = compare(save_published(tmp_path, name))
    assert torch.tensor(wanted).std() > 0.1
    assert_parity(found, wanted)


def test_page_has_a_row_for_each_published_form():
    page = (ROOT / "docs/reference/checkpoints.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.*?)` \| `(.*?)` \| \de-0\d \|", page, re.MULTILINE)
    assert {(name, form.model_type) for name, form in PUBLISHED.items()} <= {*rows}


@pytest.mark.parametrize("mode", ["cls", "mean"])
def test_modules_of_older_versions_are_read(mode, tmp_path):
    wanted = _predicted(_save_modules(tmp_path, pooling=mode))
    key = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}[mode]
    config = {"word_embedding_dimension": 36, key: True, "pooling_mode_max_tokens": False}
    (tmp_path / "model/1_Pooling/config.json").write_text(json.dumps(config))
    weights = tmp_path / "model/4_Dense/model.safetensors"
    torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
    weights.unlink()
    assert_parity(_reranker(tmp_path / "model").score(_PAIRS).tolist(), wanted)


def test_digest_covers_the_modules(tmp_path):
    _save_modules(tmp_path)
    folder = tmp_path / "model"
    seen = {resolve_checkpoint(str(folder), "mono").digest}
    for name in ("2_Dense", "3_LayerNorm", "4_Dense"):
        path = folder / name / "model.safetensors"
        save_file({key: value + 1 for key, value in load_file(path).items()}, path)
        seen.add(resolve_checkpoint(str(folder), "mono").digest)
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode": "mean"}')
    seen.add(resolve_checkpoint(str(folder), "mono").digest)
    assert len(seen) == 5


@pytest.mark.parametrize(
    ("module", "changes", "message"),
    slow_but(
        4,
        [
            ("1_Pooling", {"pooling_mode": "max"}, r"1_Pooling .*'max'; .*cls, mean"),
            ("1_Pooling", {"pooling_mode": ["cls", "mean"]}, r"1_Pooling .*'cls, mean'"),
            ("2_Dense", {"use_residual": True}, r"2_Dense .*residual"),
            ("2_Dense", {"activation_function": "os.system"}, r"2_Dense .*'os\.system'"),
            ("2_Dense", {"in_features": 35}, "2_Dense .*35 .*36"),
            ("2_Dense", {"out_features": 25}, "3_LayerNorm .*24 .*25"),
            ("2_Dense", {"bias": "no"}, r"2_Dense/config.json .*bias"),
            ("2_Dense", {"bias": True}, r" 1 .* \d+ .*2_Dense/linear\.bias"),
            ("3_LayerNorm", {"dimension": 0}, r"3_LayerNorm/config.json .*dimension"),
            ("4_Dense", {"module_output_name": None}, "4_Dense .*'sentence_embedding' .*None"),
            ("4_Dense", {"out_features": 3}, r"4_Dense .*3"),
            ("4_Dense", {"activation_function": "torch.nn.modules.activation.Tanh"}, "tanh"),
        ],
    ),
    ids=str,
)
def test_modules_that_are_not_known_are_refused(module, changes, message, tmp_path):
    _save_modules(tmp_path)
    path = tmp_path / "model" / module / "config.json"
    edit_json(path, **changes)
    with pytest.raises(PreflightError, match=message):
        resolve_checkpoint(str(tmp_path / "model"), "mono")


def test_module_outside_of_the_checkpoint_is_refused(tmp_path):
    _save_modules(tmp_path)
    path = tmp_path / "model/modules.json"
    path.write_text(path.read_text().replace("2_Dense", "../2_Dense"))
    with pytest.raises(PreflightError, match=r"modules\.json .*path"):
        resolve_checkpoint(str(tmp_path / "model"), "mono")


def test_model_in_a_folder_of_its_own_is_refused(tmp_path):
    """The model beside modules.json may be another."""
    _save_modules(tmp_path)
    path = tmp_path / "model/modules.json"
    path.write_text(path.read_text().replace('"path": ""', '"path": "0_Transformer"'))
    with pytest.raises(PreflightError, match=r"modules\.json .*0_Transf"):
        resolve_checkpoint(str(tmp_path / "model"), "mono")


def test_default_prompt_is_refused_unless_it_is_empty(tmp_path):
    _save_modules(tmp_path)
    path = tmp_path / "model/config_sentence_transformers.json"
    edit_json(path, prompts={"q": "?"}, default_prompt_name="q")
    with pytest.raises(PreflightError, match=r"'\?'"):
        resolve_checkpoint(str(tmp_path / "model"), "mono")
    edit_json(path, prompts={"q": ""})
    wanted = _predicted(CrossEncoder(str(tmp_path / "model"), device="cpu"))
    assert_parity(_reranker(tmp_path / "model").score(_PAIRS).tolist(), wanted)


@pytest.mark.parametrize("lowers", [True, False])
def test_modules_that_lower_the_case_of_texts_score_so_or_are_refused(lowers, tmp_path):
    """sentence-transformers puts a normalizer before the tokenizer's, which an uncased BERT's has
    already.
    """
    _save_modules(tmp_path, "bert")
    folder = tmp_path / "model"
    path = folder / "sentence_bert_config.json"
    edit_json(path, do_lower_case=True)
    if not lowers:
        content = json.loads((folder / "tokenizer.json").read_text())
        content["normalizer"]["lowercase"] = False
        (folder / "tokenizer.json").write_text(json.dumps(content))
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(
            json.dumps({**settings, "do_lower_case": False})
        )
        with pytest.raises(
            PreflightError, match=r"do_lower_case True .*sentence_bert_config\.json"
        ):
            _reranker(folder)
    else:
        wanted = _predicted(CrossEncoder(str(folder), device="cpu"))
        assert_parity(_reranker(folder).score(_PAIRS).tolist(), wanted)
