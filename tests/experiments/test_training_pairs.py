"""RR@10 against training pairs: both trainings of a model that takes no time, and their pictures."""

import json
from pathlib import Path

import pytest

from experiments.training_pairs.study import Settings, draw, measure
from tests.support.training import save_medquad_archive, save_medquad_collection, save_start


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    start = save_start(tmp_path / "start", max_position_embeddings=64)
    return Settings(start, None, 2, 3, 192, 64, 32, 48, 1e-3, 0, "float32")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_medquad_collection(save_medquad_archive(tmp_path), tmp_path / "data")
    return tmp_path / "data"


def test_training_pairs_study_trains_from_two_starts(settings: Settings, folder: Path):
    found = measure(settings, folder)
    for name in ("plain", "tcp"):
        assert [row["pairs"] for row in found["curves"][name]] == [64, 128, 192]
        assert (folder / name / "model.safetensors").is_file()
    assert json.loads((folder / "pretrained/config.json").read_text())["architectures"] == ["BertForPreTraining"]
    losses = [(folder / name / "training/curve.csv").read_text() for name in ("plain", "tcp")]
    assert losses[0] != losses[1]
    assert found["topics"] > 2
    assert [(row["model"], row["against"]) for row in found["best"]] == [
        ("plain", "bm25"),
        ("tcp", "bm25"),
        ("tcp", "plain"),
    ]
    plain, tcp, both = found["best"]
    assert plain["RR@10"] == max(row["RR@10"] for row in found["curves"]["plain"])
    assert plain["difference"] == pytest.approx(plain["RR@10"] - found["bm25"], abs=1e-3)
    assert both["difference"] == pytest.approx(tcp["RR@10"] - plain["RR@10"], abs=1e-3)


def test_training_pairs_picture_is_deterministic(tmp_path: Path):
    rows = [{"pairs": 64, "RR@10": 0.4}, {"pairs": 128, "RR@10": 0.5}]
    results = {"bm25": 0.3, "topics": 20, "curves": {"plain": rows, "tcp": rows[:1]}}
    for name in ("one", "again"):
        draw(results, ["plain", "tcp"], tmp_path / f"{name}.svg")
    draw(results, ["plain"], tmp_path / "plain.svg")
    one, again, plain = ((tmp_path / f"{name}.svg").read_bytes() for name in ("one", "again", "plain"))
    assert one == again
    assert b"pre-training first" in one
    assert b"pre-training first" not in plain
