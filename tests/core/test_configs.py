"""Every configuration that the project ships can be loaded."""

from pathlib import Path

import pytest

from beamrank.config.run import load_config
from beamrank.evaluation.measures import parse_measures
from models.training.config import load_train_config

_ROOT = Path(__file__).resolve().parents[2]
_TRAINING = _ROOT / "configs/train.yaml"
_CONFIGS = sorted({*_ROOT.glob("configs/*.yaml"), *_ROOT.glob("examples/*/config.yaml")} - {_TRAINING})


def test_there_are_configurations():
    names = {path.name for path in _CONFIGS}
    assert {"msmarco-passage.yaml", "beir.yaml", "trec-car.yaml", "own-run.yaml", "config.yaml"} <= names


@pytest.mark.parametrize("path", _CONFIGS, ids=lambda path: str(path.relative_to(_ROOT)))
def test_a_configuration_is_sound(path):
    config = load_config(str(path))
    assert parse_measures(config.measures)
    assert config.mono is not None
    assert not {config.corpus.path, config.topics.path, config.output} & {"", str(_ROOT)}
    assert Path(config.output).is_relative_to(_ROOT)


def test_the_training_configuration_is_sound():
    config = load_train_config(str(_TRAINING), "mono")
    assert config.data.corpus is not None
    assert Path(config.data.corpus.path).is_file()
    assert Path(config.output).is_relative_to(_ROOT)
