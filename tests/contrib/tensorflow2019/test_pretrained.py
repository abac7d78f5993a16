"""Pre-trained BERTs that TensorFlow wrote become folders with the outputs of BERT's own code, and
trainings' starts.
"""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray
from safetensors.numpy import load_file
from transformers import BertForMaskedLM, BertForPreTraining

from beamrank.errors import PreflightError
from beamrank.notes import SILENT
from contrib.tensorflow2019.commands import convert
from contrib.tensorflow2019.source import find_source
from models.training.config import Kind
from models.training.initial_model import Start
from models.training.trainer import train
from tests import ROOT
from tests.support.models import tensorflow1
from tests.support.models.tensorflow1 import (
    IDS,
    OUTPUTS,
    TYPES,
    copy_checkpoint,
    copy_pretrained,
    pretrained_outputs,
)
from tests.support.progress import RecordedProgress
from tests.support.services import environments
from tests.support.training import make_session


def _convert(original: Path, output: Path, next_sentence: bool = True) -> tuple[Start, list[str]]:
    progress = RecordedProgress()
    command = "beamrank convert bert original"
    folder, digest = convert(
        "bert", find_source(str(original)), str(output), command, progress, next_sentence
    )
    assert Start(folder, 1).digest == digest
    return Start(folder, 1), progress.notes


@pytest.fixture
def original(tmp_path: Path) -> Path:
    copy_pretrained(tmp_path / "original")
    return tmp_path / "original"


def _outputs(folder: str) -> dict[str, NDArray[np.float32]]:
    model = BertForPreTraining.from_pretrained(folder).eval()
    inputs = {"input_ids": torch.tensor([IDS]), "token_type_ids": torch.tensor([TYPES])}
    with torch.inference_mode():
        found = model(**inputs, output_hidden_states=True)
    parts = {
        "hidden": found.hidden_states[-1],
        "words": found.prediction_logits,
        "next": found.seq_relationship_logits,
    }
    return {name: part[0].numpy() for name, part in parts.items()}


def test_converted_bert_has_the_outputs_of_the_original(original, tmp_path):
    start, notes = _convert(original, tmp_path / "converted")
    found, wanted = _outputs(start.folder), pretrained_outputs(IDS, TYPES)
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-5)
        assert values.std() > 0.1
    config = json.loads((tmp_path / "converted/config.json").read_text())
    assert (config["architectures"], config["model_type"]) == (["BertForPreTraining"], "bert")
    assert "46 variables, 0 of them for training alone" in notes[0]
    assert start.digest == Start(str(tmp_path / "converted"), 24).digest
    card = (tmp_path / "converted/README.md").read_text()
    for part in (
        "pipeline_tag: fill-mask",
        "the heads of masked words and of next sentences",
        "    beamrank convert bert",
    ):
        assert part in card


def test_next_sentence_head_is_dropped_by_name(original, tmp_path):
    start, notes = _convert(original, tmp_path / "converted", next_sentence=False)
    assert (
        "without cls/seq_relationship/output_bias, cls/seq_relationship/output_weights" in notes[0]
    )
    assert not [
        name
        for name in load_file(f"{start.folder}/model.safetensors")
        if "seq_relationship" in name
    ]
    assert json.loads((tmp_path / "converted/config.json").read_text())["architectures"] == [
        "BertForMaskedLM"
    ]
    model = BertForMaskedLM.from_pretrained(start.folder).eval()
    with torch.inference_mode():
        found = model(input_ids=torch.tensor([IDS]), token_type_ids=torch.tensor([TYPES])).logits[0]
    np.testing.assert_allclose(found, pretrained_outputs(IDS, TYPES)["words"], rtol=0, atol=1e-5)
    assert "without that of next sentences" in (tmp_path / "converted/README.md").read_text()


def _train(kind: Kind, start: str, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    words = " ".join(tensorflow1.TOKENS[5:])
    (folder / "corpus.tsv").write_text(f"d0\t{words}\nd1\t{words} what is a word13\n")
    (folder / "triples.tsv").write_text("what is word12\tword12 word13\tword20 word21\n" * 8)
    data = (
        {"triples": "triples.tsv"}
        if kind == "mono"
        else {"corpus": {"path": "corpus.tsv", "format": "tsv"}}
    )
    document = {
        "start": start,
        "data": data,
        "input": {"max_query_length": 10, "max_length": 24},
        "optimizer": {"steps": 2, "batch_size": 4, "learning_rate": 1e-4},
        "output": kind,
    }
    (folder / f"{kind}.yaml").write_text(yaml.safe_dump(document))
    session = make_session(folder / f"{kind}.yaml", kind)
    model = session.model.state_dict()
    known = load_file(f"{start}/model.safetensors")
    for name in known if kind == "tcp" else [name for name in known if name.startswith("bert.")]:
        np.testing.assert_array_equal(model[name].numpy(), known[name])
    train(session, lambda: False, SILENT, "")
    return folder / kind


@pytest.mark.slow
def test_trainings_start_from_a_converted_bert(original, tmp_path):
    start, _ = _convert(original, tmp_path / "converted")
    _train("mono", start.folder, tmp_path / "plain")
    pretrained = _train("tcp", start.folder, tmp_path / "tcp")
    _train("mono", str(pretrained), tmp_path / "tcp")


def test_wrong_kinds_of_checkpoints_are_refused_with_the_right_command(original, tmp_path):
    with pytest.raises(
        PreflightError, match=r"output_weights .*output_bias.*`beamrank convert bert`"
    ):
        convert("mono", find_source(str(original)), str(tmp_path / "mono"), "", SILENT)
    copy_checkpoint(tmp_path / "ranker")
    with pytest.raises(PreflightError, match="`beamrank convert mono`"):
        _convert(tmp_path / "ranker", tmp_path / "bert")
    assert not (tmp_path / "bert").exists()


@pytest.mark.slow
def test_converted_bert_has_the_outputs_of_tensorflow(tmp_path):
    original = tmp_path / "original"
    copy_pretrained(original)
    command = [
        str(environments.tensorflow_python()),
        "-m",
        tensorflow1.__name__,
        str(original),
        "pretrained",
    ]
    environ = environments.environ(PYTHONPATH=str(ROOT))
    written = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environ)
    assert written.returncode == 0, written.stderr
    start, _ = _convert(original, tmp_path / "converted")
    found = _outputs(start.folder)
    with np.load(original / OUTPUTS) as wanted:
        assert set(wanted) == found.keys()
        for name, values in found.items():
            np.testing.assert_allclose(values, wanted[name], rtol=0, atol=1e-5)
