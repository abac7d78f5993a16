"""Checkpoints that TensorFlow wrote become folders with the scores that BERT's own code
computes.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from beamrank.errors import ConfigError, PreflightError
from beamrank.notes import SILENT
from beamrank.ranking.input_layout import PackedInputs
from beamrank.records import SpecialTokens
from contrib.tensorflow2019.commands import convert
from contrib.tensorflow2019.source import check_vocabulary, find_source
from models.architectures.families import TOKEN_TYPES
from models.checkpoints.checkpoint import Checkpoint, resolve_checkpoint
from models.scoring.engine import ScoringEngine
from models.tokenizers.bert import load_bert
from tests.support.models.tables import template
from tests.support.models.tensorflow1 import TOKENS, copy_checkpoint, known_variables, logits
from tests.support.progress import RecordedProgress

# Query and docs as token ids; [CLS] is 2, [SEP] 3.
_TEXTS = ([5, 6, 7, 8], [7, 8, 9, 11, 20, 39], [10, 11, 12])


def _convert(kind: str, checkpoint: str, output: Path) -> tuple[Checkpoint, list[str]]:
    progress = RecordedProgress()
    command = f"beamrank convert {kind} model.ckpt-7"
    folder, digest = convert(kind, find_source(checkpoint), str(output), command, progress)
    found = resolve_checkpoint(folder, kind)
    assert found.digest == digest
    return found, progress.notes


def _input(segments: int) -> tuple[list[int], list[int]]:
    ids, types = [2], [0]
    for number, text in enumerate(_TEXTS[:segments]):
        ids += [*text, 3]
        types += [number] * (len(text) + 1)
    return ids, types


def _transformers_logits(folder: str, segments: int) -> list[float]:
    ids, types = _input(segments)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        found = model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types])).logits[0]
    return [float(each) for each in found]


def _engine_log_odds(checkpoint: Checkpoint, segments: int) -> float:
    tokens = np.concatenate([np.array(text, np.uint16) for text in _TEXTS])
    kept = np.array([[len(text) for text in _TEXTS[:segments]]])
    inputs = PackedInputs(
        tokens, np.cumsum(kept, axis=1) - kept, kept, template(segments, SpecialTokens(2, 3, 0))
    )
    return float(ScoringEngine(checkpoint, "cpu", "float32", 1, 1024).score(inputs).log_odds[0])


@pytest.mark.parametrize(("kind", "segments"), [("mono", 2), ("duo", 3)])
def test_converted_checkpoint_has_the_logits_of_the_original(kind, segments, tmp_path):
    checkpoint, _ = _convert(kind, copy_checkpoint(tmp_path / "original"), tmp_path / "converted")
    wanted = logits(known_variables(), *_input(segments))
    np.testing.assert_allclose(
        _transformers_logits(checkpoint.folder, segments), wanted, rtol=0, atol=1e-5
    )
    assert _engine_log_odds(checkpoint, segments) == pytest.approx(wanted[1] - wanted[0], abs=1e-5)
    assert abs(wanted[1] - wanted[0]) > 0.1
    assert checkpoint == resolve_checkpoint(str(tmp_path / "converted"), kind)
    assert checkpoint.architecture.warnings == ()
    assert checkpoint.architecture.tensors[TOKEN_TYPES][0] == segments


def test_token_types_decide_the_logits_of_duo():
    ids, types = _input(3)
    folded = [min(token_type, 1) for token_type in types]
    variables = known_variables()
    assert np.abs(logits(variables, ids, types) - logits(variables, ids, folded)).max() > 0.01


def test_conversion_reports_variables_and_warnings(tmp_path):
    checkpoint, notes = _convert(
        "duo", copy_checkpoint(tmp_path / "original"), tmp_path / "converted"
    )
    assert "124 variables, 83 of them for training alone" in notes[0]
    zeros = "The second doc gets a row of zeros"
    assert zeros in notes[1]
    card = (tmp_path / "converted" / "README.md").read_text()
    for part in ("duoBERT", "step 7,", zeros, "    beamrank convert duo model.ckpt-7\n"):
        assert part in card
    for name in (
        "model.ckpt-7.index",
        "model.ckpt-7.data-00002-of-00003",
        "bert_config.json",
        "vocab.txt",
    ):
        content = (tmp_path / "original" / name).read_bytes()
        assert f"| {name} | {len(content):,} | `{hashlib.sha256(content).hexdigest()}` |" in card
    config = json.loads((tmp_path / "converted" / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "not_relevant", "1": "relevant"}
    assert (config["type_vocab_size"], config["hidden_act"], config["layer_norm_eps"]) == (
        3,
        "gelu",
        1e-12,
    )
    weights = load_file(f"{checkpoint.folder}/model.safetensors")
    assert len({path.stat().st_mode for path in Path(checkpoint.folder).iterdir()}) == 1
    assert {values.dtype for values in weights.values()} == {np.dtype(np.float32)}


def test_saved_tokenizer_equals_transformers(tmp_path):
    checkpoint, _ = _convert("mono", copy_checkpoint(tmp_path / "original"), tmp_path / "converted")
    text = "What is a RANKINGS Café."
    plain = AutoTokenizer.from_pretrained(checkpoint.folder)
    found = plain(text, "word3")
    wanted = ["what", "is", "a", "ranking", "##s", "cafe", "."]
    assert plain.convert_ids_to_tokens(found["input_ids"]) == [
        "[CLS]",
        *wanted,
        "[SEP]",
        "word3",
        "[SEP]",
    ]
    assert found["token_type_ids"] == [0] * 9 + [1] * 2
    assert (len(plain), plain.model_max_length) == (len(TOKENS), 24)
    ids = load_bert(checkpoint.folder).encode([text], 24).ids[0].as_py()
    assert [TOKENS[token_id] for token_id in ids] == wanted


def test_failed_conversion_leaves_nothing(tmp_path):
    prefix = copy_checkpoint(tmp_path / "original")
    data = Path(f"{prefix}.data-00002-of-00003")
    data.write_bytes(data.read_bytes()[:1000])
    with pytest.raises(PreflightError, match=data.name):
        _convert("mono", prefix, tmp_path / "converted")
    assert [path.name for path in tmp_path.iterdir()] == ["original"]


def test_output_must_be_an_empty_folder(tmp_path):
    prefix = copy_checkpoint(tmp_path / "original")
    (tmp_path / "converted").mkdir()
    first, _ = _convert("mono", prefix, tmp_path / "converted")
    before = (tmp_path / "converted" / "model.safetensors").stat().st_mtime_ns
    with pytest.raises(PreflightError, match="converted"):
        _convert("duo", prefix, tmp_path / "converted")
    assert (tmp_path / "converted" / "model.safetensors").stat().st_mtime_ns == before
    assert _convert("mono", prefix, tmp_path / "again")[0].digest == first.digest
    with pytest.raises(ConfigError, match="--output"):
        convert("mono", find_source(prefix), "memory://converted", "", SILENT)


@pytest.mark.parametrize(
    "name", ["", "model.ckpt-7", "model.ckpt-7.index", "model.ckpt-7.data-00001-of-00003"]
)
def test_checkpoint_is_found_by_any_of_its_names(name, tmp_path):
    prefix = copy_checkpoint(tmp_path)
    found = find_source(f"{tmp_path}/{name}")
    assert (found.prefix, found.config) == (prefix, f"{tmp_path}/bert_config.json")
    assert (
        find_source(prefix, vocabulary=f"{tmp_path}/other.txt").vocabulary
        == f"{tmp_path}/other.txt"
    )


def test_folder_means_its_last_step(tmp_path):
    for step in (9_000, 100_000, 99_000):
        (tmp_path / f"model.ckpt-{step}.index").touch()
    assert find_source(str(tmp_path)).prefix == str(tmp_path / "model.ckpt-100000")


def test_missing_checkpoint_is_refused(tmp_path):
    with pytest.raises(PreflightError, match=r"\.index"):
        find_source(str(tmp_path))
    with pytest.raises(PreflightError, match=r"model\.ckpt-8\.index"):
        find_source(str(tmp_path / "model.ckpt-8"))
    for name in ("one", "other"):
        (tmp_path / f"{name}.ckpt.index").touch()
    with pytest.raises(PreflightError, match=r"one\.ckpt\.index, other\.ckpt\.index"):
        find_source(str(tmp_path))
    with pytest.raises(ConfigError, match=r"gs://bucket/model\.ckpt-1"):
        find_source("gs://bucket/model.ckpt-1")


def test_vocabulary_is_checked(tmp_path):
    path = tmp_path / "vocab.txt"

    def check(tokens: list[str], vocab_size: int) -> tuple[str, ...]:
        path.write_text("".join(f"{token}\n" for token in tokens))
        return check_vocabulary(str(path), vocab_size)

    assert check(TOKENS, len(TOKENS)) == ()
    (smaller,) = check(TOKENS, len(TOKENS) + 8)
    assert "has 40 tokens, and the checkpoint knows 48" in smaller
    (cased,) = check([*TOKENS[:-1], "Paris"], len(TOKENS))
    assert "set do_lower_case to false" in cased
    with pytest.raises(PreflightError, match=r"40 .*39"):
        check(TOKENS, len(TOKENS) - 1)
    with pytest.raises(PreflightError, match=r"\[CLS\], \[SEP\]"):
        check(["[PAD]", "[UNK]"], 40)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(PreflightError, match="UTF-8"):
        check_vocabulary(str(path), 40)
    path.unlink()
    with pytest.raises(PreflightError, match="--vocab"):
        check_vocabulary(str(path), 40)
