import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from beamrank.errors import ConfigError
from beamrank.ranking.input_layout import InputLimits, mono_kept
from beamrank.records import SpecialTokens
from models.architectures.families import bert_template
from models.training.config import RECIPES, Kind, TrainConfig, fold_configs, load_train_config
from tests.support.training import make_session, save_start, write_train_config

_TRIPLES = {"start": "bert-base-uncased", "data": {"triples": "triples.tsv"}, "output": "out"}
_MINED = {
    "corpus": {"path": "corpus.tsv", "format": "tsv"},
    "topics": {"path": "topics.tsv", "format": "tsv"},
    "qrels": "qrels.txt",
    "run": "run.trec",
}


@pytest.fixture
def load(tmp_path: Path):
    def load(document: dict[str, Any], kind: Kind = "mono", *overrides: str) -> TrainConfig:
        (tmp_path / "train.yaml").write_text(yaml.safe_dump(document))
        return load_train_config(str(tmp_path / "train.yaml"), kind, overrides)

    return load


@pytest.mark.parametrize(
    ("recipe", "kind", "expected"),
    [
        ("msmarco-2019", "mono", ("pointwise", 3e-6, 10_000, 400_000, None, 32, 512)),
        ("msmarco", "mono", ("pointwise", 3e-6, 10_000, 100_000, None, 128, 512)),
        ("msmarco", "duo", ("pairwise", 3e-6, 10_000, 100_000, None, 128, 512)),
        ("car-2019", "mono", ("pointwise", 3e-6, 10_000, 400_000, None, 32, 512)),
        ("car-multistage", "mono", ("pointwise", 3e-6, 10_000, 100_000, None, 128, 512)),
        ("car-multistage", "duo", ("pairwise", 3e-6, 10_000, 100_000, None, 128, 512)),
        ("car", "mono", ("pointwise", 1e-6, 40_000, 400_000, None, 32, 512)),
        ("nonfactoid", "mono", ("bertlets", 2e-5, None, None, 3, 32, 256)),
        ("nonfactoid-pw", "mono", ("pointwise", 2e-5, None, None, 3, 32, 256)),
        ("nonfactoid-ce", "mono", ("bert_ce", 2e-5, None, None, 3, 32, 256)),
    ],
)
def test_recipe_has_the_values_of_its_paper(recipe, kind, expected, load):
    config = load(
        {"recipe": recipe, "start": "bert-base-uncased", "data": _MINED, "output": "out"}, kind
    )
    optimizer = config.optimizer
    found = (
        optimizer.learning_rate,
        optimizer.warmup_steps,
        optimizer.steps,
        optimizer.epochs,
        optimizer.batch_size,
    )
    assert (*config.objective, *found, config.input.max_length) == expected
    assert (optimizer.dropout, optimizer.weight_decay, optimizer.clip_norm) == (0.1, 0.01, 1.0)


def test_recipe_sampling(load):
    def sampling(recipe: str, kind: Kind) -> tuple[str, int | None, tuple[int, int]]:
        found = load(
            {"recipe": recipe, "start": "x/y", "data": _MINED, "output": "out"}, kind
        ).sampling
        return found.mode, found.negatives, found.ranks

    assert sampling("car", "mono") == sampling("car-2019", "mono") == ("natural", None, (1, 10))
    assert (
        sampling("car-multistage", "mono")
        == sampling("car-multistage", "duo")
        == ("balanced", 1, (1, 10))
    )
    assert sampling("car", "duo") == ("balanced", None, (1, 10))
    assert sampling("nonfactoid", "mono") == ("triplets", None, (1, 10))
    assert sampling("small", "mono") == ("balanced", 3, (1, 100))


@pytest.mark.parametrize(
    ("recipe", "labels"), [("nonfactoid", 1), ("nonfactoid-pw", 2), ("nonfactoid-ce", 1)]
)
def test_nonfactoid_recipes_read_as_run_classifier_does(recipe, labels, load):
    config = load({"recipe": recipe, "start": "x/y", "data": _MINED, "output": "out"}, "mono")
    assert (config.labels, config.margin, config.optimizer.warmup_share) == (labels, 0.2, 0.1)
    assert (config.sampling.mode, config.sampling.negatives, config.sampling.ranks) == (
        "triplets",
        None,
        (1, 10),
    )
    # `_truncate_seq_pair` of BERT's run_classifier.py shortens the longer text until both fit into
    # 256 - 3 wordpieces.
    template = bert_template(SpecialTokens(101, 102, 0), 2)
    limits = InputLimits(**config.input.model_dump())
    # (Where both are longer than half of that, run_classifier.py gives the odd one to the query.)
    lengths = [(62, 300), (3, 300), (300, 3), (100, 153), (130, 124)]
    queries, docs = (np.array(each) for each in zip(*lengths, strict=True))
    kept = [each.tolist() for each in mono_kept(template, limits, queries, docs)]
    expected = []
    for query, doc in lengths:
        while query + doc > 256 - 3:
            query, doc = (query - 1, doc) if query > doc else (query, doc - 1)
        expected.append((query, doc))
    assert list(zip(*kept, strict=True)) == expected
    short = load(
        {"recipe": recipe, "start": "x/y", "data": _MINED, "output": "out"},
        "mono",
        "input.max_length=64",
    )
    assert short.input.max_length == 64


@pytest.mark.parametrize("recipe", sorted(RECIPES.keys() - {"tcp"}))
@pytest.mark.parametrize("kind", ["mono", "duo"])
def test_recipe_is_valid_for_mono_and_duo(recipe, kind, load):
    assert (
        load({"recipe": recipe, "start": "x/y", "data": _MINED, "output": "out"}, kind).recipe
        == recipe
    )


@pytest.mark.parametrize(
    ("recipe", "max_topics"), [("car-2019", None), ("car-multistage", None), ("car", 3000)]
)
def test_car_recipes_measure_ten_candidates_by_ap(recipe, max_topics, load):
    document = {"recipe": recipe, "start": "x/y", "data": _MINED, "output": "out"}
    dev = {"topics": _MINED["topics"], "qrels": "q", "run": "r"}
    assert load(document).dev is None
    found = load(document | {"dev": dev}).dev
    assert (found.measure, found.k, found.max_topics) == ("AP", 10, max_topics)
    changed = load(document | {"dev": dev | {"measure": "RR", "max_topics": 5}}).dev
    assert (changed.measure, changed.k, changed.max_topics) == ("RR", 10, 5)


def test_configuration_overrides_its_recipe(load):
    document = _TRIPLES | {
        "recipe": "msmarco",
        "optimizer": {"learning_rate": 1e-5, "epochs": 2, "warmup_share": 0.1},
    }
    optimizer = load(document, "mono", "optimizer.batch_size=64").optimizer
    assert (optimizer.learning_rate, optimizer.epochs, optimizer.steps) == (1e-5, 2, None)
    assert (optimizer.warmup_share, optimizer.warmup_steps, optimizer.batch_size) == (0.1, None, 64)


def test_configuration_paths_are_relative_to_its_file(load, tmp_path):
    (tmp_path / "bert").mkdir()
    dev = {
        "topics": {"path": "dev.tsv", "format": "tsv"},
        "qrels": "dev.txt",
        "run": "/abs/dev.trec",
    }
    config = load({"start": "bert", "data": _MINED, "dev": dev, "recipe": "small", "output": "out"})
    assert config.start == str(tmp_path / "bert")
    assert config.output == str(tmp_path / "out")
    assert config.data.corpus is not None
    assert config.data.corpus.path == str(tmp_path / "corpus.tsv")
    assert config.data.run == str(tmp_path / "run.trec")
    assert config.dev is not None
    assert (config.dev.topics.path, config.dev.run) == (str(tmp_path / "dev.tsv"), "/abs/dev.trec")
    assert load(_TRIPLES | {"recipe": "msmarco"}).start == "bert-base-uncased"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"recipe": "mscarco"}, "unknown recipe 'mscarco': did you mean msmarco?"),
        ({"optimiser": {}}, "optimiser: unknown key: did you mean optimizer?"),
        (
            {"optimizer": {"learning_rate": 1e300}},
            "optimizer.learning_rate: ",
        ),
        (
            {"optimizer": {"leaning_rate": 1}},
            "optimizer.leaning_rate: unknown key: did you mean learning_rate?",
        ),
        (
            {"data": {"corpus": {"path": "c", "fromat": "tsv"}}},
            "data.corpus.fromat: unknown key: did you mean format?",
        ),
        (
            {"data": {}},
            "`triples`, or corpus, topics, qrels, run",
        ),
        (
            {"data": {"triples": "t", "run": "r"}},
            "give either `triples`, or qrels, run and teacher",
        ),
        (
            {"data": {"triples": "t", "corpus": {"path": "c"}}},
            "`corpus` and `topics`",
        ),
        (
            {
                "data": {
                    "triples": "t",
                    "corpus": {"path": "c"},
                    "topics": {"path": "t", "only_judged": True},
                }
            },
            "`topics.only_judged`",
        ),
        (
            {
                "data": {"triples": "t", "corpus": {"path": "c"}, "topics": {"path": "t"}},
                "folds": {"held_out": 0},
            },
            "`folds`",
        ),
        ({"optimizer": {"steps": 5, "epochs": 2}}, "`steps` or `epochs`"),
        (
            {"optimizer": {"warmup_steps": 5, "warmup_share": 0.1}},
            "`warmup_steps` or `warmup_share`",
        ),
        ({"objective": "pairwise"}, "'pairwise'"),
        ({"objective": "listwise_kl"}, "listwise_kl"),
        ({"data": _MINED | {"teacher": "t"}}, "`data.teacher`"),
        ({"sampling": {"negatives": 3}}, "triples are already sampled"),
        ({"data": _MINED, "sampling": {"ranks": [5, 1]}}, "end before they begin"),
        (
            {"data": _MINED, "sampling": {"mode": "natural"}, "objective": "bert_ce"},
            "pointwise",
        ),
        ({"output": "gs://bucket/out"}, "a training writes to a local folder"),
        (
            {"dev": {"topics": {"path": "t", "format": "tsv"}, "qrels": "q", "run": "r"}},
            "`dev`",
        ),
    ],
)
def test_configuration_error_names_the_key_and_the_cure(change, message, load):
    with pytest.raises(ConfigError) as error:
        load({"recipe": "msmarco"} | _TRIPLES | change)
    assert message in str(error.value)


def test_tcp_has_no_limit_of_queries(load):
    document = {
        "start": "bert",
        "data": {"corpus": _MINED["corpus"]},
        "optimizer": {"steps": 3},
        "output": "out",
    }
    assert load(document | {"input": {"max_length": 64}}, "tcp").input.max_length == 64
    assert load(document | {"recipe": "tcp"}, "tcp", "input.max_length=8").input.max_length == 8
    with pytest.raises(ConfigError, match="input"):
        load(document | {"input": "long"}, "tcp")


def test_duo_refuses_objectives_and_truncation_of_mono(load):
    with pytest.raises(
        ConfigError,
        match=r"'bertlets' .*pairwise, margin_mse, pairwise_kl",
    ):
        load(_TRIPLES | {"recipe": "msmarco", "objective": "bertlets"}, "duo")
    with pytest.raises(ConfigError, match="`hf`"):
        load(_TRIPLES | {"recipe": "msmarco", "input": {"truncation": "hf"}}, "duo")


def test_schedule_turns_epochs_into_steps(tmp_path):
    optimizer = {"epochs": 3, "batch_size": 4, "warmup_share": 0.2}
    config = write_train_config(tmp_path, save_start(tmp_path / "start"), optimizer=optimizer)
    schedule = make_session(config, "mono").schedule
    assert (schedule.steps, schedule.groups_per_step, schedule.warmup_steps) == (15, 2, 3)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.batch_size=3", "of 2: 2 .*1 .*1 "),
        ("optimizer.warmup_steps=40", r"optimizer\.warmup_steps is 40, "),
    ],
)
def test_schedule_refuses_impossible_steps(override, message, tmp_path):
    config = write_train_config(tmp_path, save_start(tmp_path / "start"))
    with pytest.raises(ConfigError, match=message):
        make_session(config, "mono", [override])


def test_folds_differ_in_the_fold_and_its_folder_and_read_a_pipe_once(tmp_path, monkeypatch):
    for name in ("corpus.tsv", "topics.tsv", "qrels.txt", "run.trec"):
        (tmp_path / name).touch()
    dev = {"run": "run.trec", "topics": _MINED["topics"], "qrels": "qrels.txt"}
    document: dict[str, Any] = {"recipe": "msmarco", "start": "bert-base-uncased", "output": "out"}
    document |= {"data": _MINED, "dev": dev}
    monkeypatch.chdir(tmp_path)
    given, end = os.pipe()
    os.write(end, yaml.safe_dump(document).encode())
    os.close(end)
    configs = fold_configs(f"/dev/fd/{given}", "mono", (), None, 3)
    os.close(given)
    folds = [each.folds for each in configs if each.folds is not None]
    assert [(each.count, each.held_out) for each in folds] == [(3, 0), (3, 1), (3, 2)]
    assert [each.output for each in configs] == [f"{tmp_path}/out/fold-{n}" for n in range(3)]
    assert {each.data.corpus.path for each in configs} == {f"{tmp_path}/corpus.tsv"}
