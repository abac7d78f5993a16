"""RR@10 against training pairs: trainings of a model that takes no time, and their picture."""

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.passage_length.medquad_training import prepare
from experiments.training_pairs.starts import Settings
from experiments.training_pairs.study import draw, measure
from tests.support.training import WORDS, save_medquad_archive, save_medquad_collection, save_start

_PAGE = """<div class="para-wrap"><pre>{}</pre>
<strong class="question">What is it?</strong><ol class="answers"><li class="answer">sky</li></ol></div>"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    start = save_start(tmp_path / "start", max_position_embeddings=64)
    return Settings(start, None, 2, 3, 192, 64, 0, 0, 1e-3, 48, 1e-3, 0, "float32")


@pytest.fixture
def folder(tmp_path: Path, settings: Settings) -> Path:
    archive = save_medquad_archive(tmp_path)
    save_medquad_collection(archive, tmp_path / "data")
    prepare(archive, None, settings.k, tmp_path / "data")
    return tmp_path / "data"


def test_training_pairs_study_measures_one_start(settings: Settings, folder: Path):
    found = measure(settings, folder, None, folder)
    assert list(found["curves"]) == ["plain"]
    assert [row["pairs"] for row in found["curves"]["plain"]] == [64, 128, 192]
    ((best),) = found["best"]
    assert (best["model"], best["against"]) == ("plain", "bm25")
    assert best["RR@10"] == max(row["RR@10"] for row in found["curves"]["plain"])
    assert best["difference"] == pytest.approx(best["RR@10"] - found["bm25"], abs=1e-3)
    assert found["topics"] > 2


@pytest.mark.slow
def test_training_pairs_study_compares_pretrainings_of_a_start_that_it_makes(
    settings, folder, tmp_path
):
    for split, text in (("train", "the sky is blue"), ("dev", "the grass is green")):
        (tmp_path / f"{split}.html").write_text(_PAGE.format(text))
    with tarfile.open(tmp_path / "squad.tar.gz", "w:gz") as tar:
        for split in ("train", "dev"):
            tar.add(tmp_path / f"{split}.html", f"squad/{split}/page.html")
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    changed = replace(settings, start=None, pairs=64, general_steps=2, pretraining=1)
    for _ in range(2):
        found = measure(changed, folder, tmp_path / "squad.tar.gz", tmp_path / "vocab.txt")
        assert list(found["curves"]) == ["plain", "general", "tcp"]
    assert [(row["model"], row["against"]) for row in found["best"]] == [
        *((name, "bm25") for name in ("plain", "general", "tcp")),
        ("tcp", "plain"),
        ("tcp", "general"),
    ]
    measured = {row["model"]: row["RR@10"] for row in found["best"]}
    assert found["best"][4]["difference"] == pytest.approx(
        measured["tcp"] - measured["general"], abs=1e-3
    )
    corpora = {
        name: (folder / f"{name}.yaml").read_text()
        for name in ("made", "made-further", "pretrained")
    }
    assert [name for name, text in corpora.items() if "squad" in text] == ["made", "made-further"]
    assert json.loads((folder / "pretrained/config.json").read_text())["architectures"] == [
        "BertForPreTraining"
    ]
    losses = [
        (folder / name / "training/curve.csv").read_text() for name in ("plain", "general", "tcp")
    ]
    assert len(set(losses)) == 3


def test_training_pairs_picture_is_deterministic(tmp_path: Path):
    rows = [{"pairs": 64, "RR@10": 0.4}, {"pairs": 128, "RR@10": 0.5}]
    results = {"bm25": 0.3, "topics": 20, "curves": {"plain": rows, "tcp": rows[:1]}}
    for name in ("one", "again"):
        draw(results, tmp_path / f"{name}.svg")
    draw(results | {"curves": {"plain": rows}}, tmp_path / "plain.svg")
    one, again, plain = (
        (tmp_path / f"{name}.svg").read_bytes() for name in ("one", "again", "plain")
    )
    assert one == again
    assert b"pre-training first" in one
    assert b"pre-training first" not in plain
