"""The commands of docs/guide/reproduce.md: each is parsed; each configuration is read and checked
with small files.
"""

import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import cbor2
import pytest
from typer.testing import CliRunner

from beamrank.config.load import load_config
from beamrank.config.run import RunConfig
from beamrank.config.yaml import read_document
from beamrank.formats.corpora import list_units, read_unit
from beamrank.formats.qrels import read_qrels
from contrib.papers.collection import wikipassageqa_configs
from models.training.config import TrainConfig, load_train_config
from pipelines.cli import app
from pipelines.plan.make_plan import chosen_topics, planned
from tests import ROOT
from tests.support.docs.examples import Example, parse
from tests.support.training import save_start

_PAGE = (ROOT / "docs/guide/reproduce.md").read_text(encoding="utf-8")
COMMANDS = sorted(
    {re.sub(r"\s+", " ", found) for found in re.findall(r"`(beamrank [^`]*)`", _PAGE)}
)
_QUERY, _OTHER = "what is the sky", "what is the grass"
_PASSAGES = {"11": "the sky is blue", "12": "the grass is green", "13": "the sea is teal"}
_TOP1000 = "".join(f"1\t{doc_id}\t{_QUERY}\t{text}\n" for doc_id, text in _PASSAGES.items())
_CAR_QRELS = "benchmarkY1/benchmarkY1-test/test.pages.cbor-hierarchical.qrels"
_FILES = {
    "data/msmarco-passage/collection.tsv": "".join(
        f"{doc_id}\t{text}\n" for doc_id, text in _PASSAGES.items()
    ),
    "data/msmarco-passage/queries.dev.small.tsv": f"1\t{_QUERY}\n2\t{_OTHER}\n",
    "data/msmarco-passage/qrels.dev.small.tsv": "1\t0\t11\t1\n2\t0\t12\t1\n",
    "data/msmarco-passage/top1000.dev.tsv": _TOP1000,
    "data/msmarco-passage/triples.train.small.tsv": f"{_QUERY}\tthe sky is blue\tthe sea is teal\n"
    * 300,
    f"data/trec-car/{_CAR_QRELS}": "enwiki:Sky/Blue%20light 0 11 1\n",
    "data/trec-car/train/fold-0-base.train.cbor-hierarchical.qrels": "enwiki:The%20sky 0 11 "
    "1\nenwiki:Grass 0 12 1\n",
    "data/trec-car/train/fold-4-base.train.cbor-hierarchical.qrels": "enwiki:The%20sea 0 13 1\n",
    "out/trec-car-train/runs/bm25.trec": "".join(
        f"enwiki:The%20sky Q0 {doc} {doc} -{doc} t\n" for doc in _PASSAGES
    ),
    "out/trec-car-dev/runs/bm25.trec": "".join(
        f"enwiki:The%20sea Q0 {doc} {doc} -{doc} t\n" for doc in _PASSAGES
    ),
    "out/msmarco-passage/runs/bm25.trec": "1 Q0 11 1 2.0 t\n1 Q0 13 2 1.0 t\n2 Q0 12 1 1.0 t\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The configurations, and small files at the paths that they name."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    for name, content in _FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    paragraphs = tmp_path / "data/trec-car/paragraphCorpus/dedup.articles-paragraphs.cbor"
    paragraphs.parent.mkdir()
    items = (cbor2.dumps([0, doc_id.encode(), [[0, text]]]) for doc_id, text in _PASSAGES.items())
    paragraphs.write_bytes(b"".join(items))
    return tmp_path


def _arguments(command: str) -> tuple[str, list[str]]:
    """The configuration of a command, and its overrides."""
    words = shlex.split(command)
    return next(word for word in words if word.startswith("configs/")), [
        value for flag, value in pairwise(words) if flag == "--set"
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_exists(command):
    parse(Example("reproduce.md", command, "console", None, None, 0, 0))


@pytest.mark.parametrize(
    "command", [each for each in COMMANDS if each.startswith("beamrank run configs/")]
)
def test_configuration_of_a_run_is_valid_to_its_inputs(folder, command):
    name, overrides = _arguments(command)
    config = load_config(str(folder / name), overrides)
    models = {f"{name}.checkpoint=embedded:{kind}" for name, kind, _ in config.cascade[1:]}
    config = load_config(str(folder / name), [*overrides, *models, f"output={folder}/planned"])
    assert chosen_topics(config).kept
    assert [
        doc_id
        for unit in list_units(config.corpus)
        for batch in read_unit(unit)
        for doc_id in batch.doc_ids
    ]
    assert config.qrels is not None
    assert read_qrels(config.qrels).relevance
    _check_plan(config)


def _check_plan(config: RunConfig) -> None:
    names = [stage.name for stage in config.cascade[1:]]
    later = ["tokenize", *names] if names else []
    assert [stage.step for stage in planned(config)[0].stages] == ["retrieve", *later]


@pytest.mark.parametrize(
    "command", [each for each in COMMANDS if re.match("beamrank train .* configs/", each)]
)
def test_configuration_of_a_training_is_valid_to_its_inputs(folder, command):
    name, overrides = _arguments(command)
    (folder / "start").mkdir()
    own = [f"start={save_start(folder / 'start')}", f"output={folder}/trained", "device=cpu"]
    lengths = ["input.max_length=32", "input.max_query_length=10"]
    flags = [word for override in [*overrides, *own, *lengths] for word in ("--set", override)]
    kind = shlex.split(command)[2]
    done = CliRunner().invoke(
        app, ["train", kind, str(folder / name), *flags, "--dry-run", "--json"]
    )
    assert done.exit_code == 0, (done.output, done.exception)
    assert (
        read_document(str(folder / name), TrainConfig)["recipe"]
        in (ROOT / "docs/reference/training.md").read_text()
    )


@pytest.mark.parametrize(
    "options", [*re.findall(r"\| `(--set [^`]*)` \|", _PAGE), "--set input.max_length=128"]
)
def test_options_of_a_nonfactoid_training_are_valid(tmp_path, options):
    path = tmp_path / "train.yaml"
    path.write_text(wikipassageqa_configs(10)["train.yaml"])
    words = shlex.split(options)
    config = load_train_config(
        str(path), "mono", [value for flag, value in pairwise(words) if flag == "--set"]
    )
    assert config.optimizer.epochs == 3


def test_every_configuration_of_the_page_is_checked():
    named = set(re.findall(r"configs/[\w.-]+\.yaml", _PAGE))
    assert named == {_arguments(command)[0] for command in COMMANDS if "configs/" in command}
    assert len(named) >= 5
