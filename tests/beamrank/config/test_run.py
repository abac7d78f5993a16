"""The configuration is checked whole, with errors that name the key; the configurations that are
shipped are valid.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from beamrank.config.load import load_config
from beamrank.config.run import RunConfig
from beamrank.config.stages import IndexConfig, MonoConfig
from beamrank.config.yaml import check_document, read_document
from beamrank.errors import ConfigError, PreflightError
from beamrank.evaluation.measures import parse_measures
from beamrank.formats.corpora import corpus_files
from beamrank.formats.files import paths_of
from beamrank.formats.qrels import read_qrels
from beamrank.section import keys
from models.training.config import Kind, TrainConfig, load_train_config
from tests import ROOT

_TEXT = """
corpus: {path: corpus.jsonl, format: jsonl}
topics: {path: /abs/topics.tsv, format: tsv}
index: {path: index}
mono: {checkpoint: "embedded:mono", k: 100}
output: out
"""
_TRAININGS: dict[Path, Kind] = {
    path: "tcp" if "tcp" in path.name else "mono"
    for path in sorted(ROOT.glob("configs/train*.yaml"))
}
_SHIPPED = sorted(
    {*ROOT.glob("configs/*.yaml"), *ROOT.glob("examples/*/config.yaml")} - {*_TRAININGS}
)


def _stage(config: RunConfig, name: str) -> Any:
    """The section of a stage."""
    return next(own.section for own in config.cascade if own.name == name)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(_TEXT)
    return file


def test_config_paths_are_relative_to_the_file(path, monkeypatch, tmp_path_factory):
    config = load_config(str(path))
    assert (config.corpus.path, config.topics.path) == (
        str(path.parent / "corpus.jsonl"),
        "/abs/topics.tsv",
    )
    assert config.output == str(path.parent / "out")
    here = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(here)
    assert load_config(str(path), output="there").output == str(here / "there")


@pytest.mark.parametrize(
    ("reference", "anchored"),
    [
        ("org/model", "{folder}/org/model"),
        ("org/other@abc", "org/other@abc"),
        ("./x", "{folder}/x"),
    ],
)
def test_checkpoint_folder_is_relative_to_the_file(path, reference, anchored):
    (path.parent / "org" / "model").mkdir(parents=True)
    config = load_config(str(path), [f"mono.checkpoint={reference}"])
    assert _stage(config, "mono").checkpoint == anchored.format(folder=path.parent)


@pytest.mark.parametrize("name", ["/dev/fd/{}", "-"])
@pytest.mark.parametrize("is_pipe", [True, False])
def test_config_of_a_stream_is_read_once_and_relative_to_the_current_folder(
    path, name, is_pipe, tmp_path_factory, monkeypatch
):
    here = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(here)
    file = os.open(path, os.O_RDONLY)
    if is_pipe:
        file, end = os.pipe()
        os.write(end, path.read_bytes())
        os.close(end)
    stdin = os.dup(0)
    os.dup2(file, 0)
    try:
        config = load_config(name.format(file), ["shards=3"])
    finally:
        os.dup2(stdin, 0)
    assert (config.corpus.path, config.shards) == (str(here / "corpus.jsonl"), 3)
    assert config.topics.path == "/abs/topics.tsv"
    assert config.output == str(here / "out")


def test_config_in_a_folder_that_is_gone_is_refused(path, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(PreflightError, match="the current folder"):
        load_config(str(path))


def test_overrides_are_yaml(path):
    config = load_config(str(path), ["mono.k=7", "bm25.k1=0.82", "run_tag=x", "measures=RR@10 AP"])
    assert (_stage(config, "mono").k, _stage(config, "bm25").k1) == (7, 0.82)
    assert config.run_tag == "x"
    assert config.measures == ("RR@10", "AP")
    assert load_config(str(path), ["measures=[AP]"]).measures == ("AP",)


@pytest.mark.parametrize(
    ("name", "value", "override", "section"),
    [
        ("corpus", "/c.jsonl", "corpus.format=jsonl", {"path": "/c.jsonl", "format": "jsonl"}),
        ("topics", ["/a", "/b"], "topics.limit=5", {"path": ("/a", "/b"), "limit": 5}),
        ("qrels", "/q", "qrels.columns.doc_id=d", {"path": "/q"}),
        ("index", "/i", "index.language=de", {"path": "/i", "language": "de"}),
        ("mono", "org/x", "mono.k=7", {"checkpoint": "org/x", "k": 7}),
        ("max_bad_rows", 3, "max_bad_rows.topics=2", {"docs": 3, "topics": 2}),
    ],
)
@pytest.mark.parametrize("is_override", [True, False])
def test_value_in_place_of_a_section_is_its_short_form(
    path, name, value, override, section, is_override
):
    if not is_override:
        path.write_text(yaml.safe_dump({**yaml.safe_load(_TEXT), name: value}))
    overrides = [f"{name}={json.dumps(value)}", override] if is_override else [override]
    config = load_config(str(path), overrides)
    found = _stage(config, name) if name == "mono" else getattr(config, name)
    assert {key: getattr(found, key) for key in section} == section


def test_short_forms_of_paths_are_relative_to_the_file(path):
    path.write_text("corpus: c\ntopics: [t]\nqrels: q\nindex: i\noutput: o\n")
    config, folder = load_config(str(path)), path.parent
    assert (config.corpus.path, config.qrels.path) == (str(folder / "c"), str(folder / "q"))
    assert (config.topics.path, config.index.path) == ((str(folder / "t"),), str(folder / "i"))


@pytest.mark.parametrize("override", ["candidates=run.trec", "candidates=[run.trec]"])
def test_run_in_place_of_candidates_is_their_run(path, override):
    config = load_config(str(path), [override, "index=null", "candidates.ties=doc_id"])
    candidates = _stage(config, "candidates")
    assert candidates.ties == "doc_id"
    assert paths_of(candidates.run) == (str(path.parent / "run.trec"),)


def test_checkpoint_in_place_of_a_stage_of_the_list(path):
    text = _TEXT.replace("mono: {", "cascade: [mono: ./small, duo: {name: last, ")
    path.write_text(text.replace("k: 100}", "k: 9}]"))
    config = load_config(str(path), ["mono.k=20"])
    assert [(stage.name, stage.section.k) for stage in config.cascade] == [
        ("bm25", 1000),
        ("mono", 20),
        ("last", 9),
    ]
    assert config.cascade[1].section.checkpoint == str(path.parent / "small")


_ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    10**30,
    float("inf"),
    "",
    "x",
    [],
    [[]],
    {},
    {"x": 1},
    {1: 2},
    object(),
)


@pytest.mark.parametrize("model", [RunConfig, TrainConfig])
def test_no_message_of_pydantic_reaches_a_user(model):
    """Each key gets values of every kind."""
    messages = 0
    for name in [*model.model_fields, *(key for key, _ in keys(model))]:
        for value in _ODD:
            document: dict[str, Any] = {}
            section = document
            *parents, last = name.split(".")
            for parent in parents:
                section = section.setdefault(parent, {})
            section[last] = value
            with pytest.raises(ConfigError) as refusal:
                check_document(document, model, "config")
            for finding in refusal.value.__cause__.errors():
                if finding["type"] != "value_error":
                    assert finding["msg"] not in str(refusal.value)
                    messages += 1
                else:
                    assert "validation error" not in finding["msg"]
    assert messages > 500


def test_output_that_is_not_utf8_is_refused(path):
    with pytest.raises(ConfigError, match="output: "):
        load_config(str(path), [], os.fsdecode(b"out\xff"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("mono.kk=1", "mono.kk: unknown key: did you mean k?"),
        ("momo=1", "momo: unknown key: did you mean mono?"),
        ("bm25.zzz=1", "bm25.zzz: unknown key (known: k, exclude, k1, b, expansion, template)"),
        (f"{'a' * 5000}=1", f"{'a' * 80}...: unknown key"),
        ("corpus.fields=[]", "corpus.fields: "),
        ("bm25.expansion=rm4", "'rm3' or 'rocchio'"),
        ("index.language=klingon", "index.language: 'klingon'"),
        (
            "index.language=no",
            "language is False",
        ),
        ("bm25.template='{title'", "bm25.template: "),
        ("bm25.k1=-1", "bm25.k1: "),
        ("bm25.k1=.inf", "bm25.k1: "),
        ("bm25.k1=1e400", "bm25.k1: "),
        ("bm25.b=1.1", "bm25.b: "),
        ("bm25.b=-0.1", "bm25.b: "),
        ("bm25.b=.nan", "bm25.b: "),
        ("stall_minutes=.nan", "stall_minutes: "),
        ("mono.k=0", "mono.k: "),
        ("mono.k=1001", "mono.k 1001 "),
        ("mono.k=2147483648", "mono.k: "),
        ("mono.k=true", "k is True"),
        ("threads=no", "threads is False"),
        ("shards=0", "shards: "),
        ("mono.k='1_0'", "k is '1_0'"),
        ("mono.k=\u0661\u0660", "mono.k: "),
        ("device=cuda:\u0661", "device"),
        ("duo={checkpoint: x, k: 101}", "duo.k 101 "),
        ("duo={checkpoint: x, k: 5, aggregation: sample}", "give both or neither"),
        (
            "duo={checkpoint: x, k: 5, aggregation: mean}",
            "duo.aggregation: 'mean'",
        ),
        ("candidates={run: x}", "`index` and `bm25` or `candidates`"),
        ("input.truncation=left", "input.truncation"),
        ("input.max_query_length=600", "leaves no room"),
        ("run_tag=two words", "run_tag"),
        (
            'run_tag="a\\u0007b"',
            "run_tag: ",
        ),
        ('run_tag="\\ufeffa"', "byte order mark"),
        ("run_formats=[]", "run_formats: "),
        ("run_formats=[trec, x]", "run_formats.1: 'x'"),
        *[(f"{key}=''", f"{key}: it is too short") for key in ("output", "corpus.path")],
        *[
            (f"qrels={value}", "qrels.path: a path is missing: give a path, a glob, or a list")
            for value in ("''", "[a, '']")
        ],
        ("mono", "mono.k=100"),
        ("=1", "mono.k=100"),
        ("a..b=1", "mono.k=100"),
        (f"{'a.' * 5000}a=1", f"--set {'a.' * 40}... must look like mono.k=100"),
        ("run_tag.x=1", "holds a value, not a section"),
        ("mono.k={", "not valid YAML"),
    ],
    ids=lambda each: each[:40],
)
def test_config_error_names_the_key_of_a_wrong_value(path, override, message):
    with pytest.raises(ConfigError) as refusal:
        load_config(str(path), ["run_tag=t", override])
    assert message in str(refusal.value)
    assert len(str(refusal.value)) < 1000


def test_config_that_holds_itself_is_refused():
    values: dict[str, object] = {}
    values["corpus"] = values
    with pytest.raises(ConfigError, match="CONFIG"):
        read_document(values, RunConfig)


def test_config_error_for_many_keys_is_short(path):
    path.write_text(_TEXT + "".join(f"key{number}: 1\n" for number in range(3000)))
    with pytest.raises(ConfigError, match="2,990"):
        load_config(str(path))


def test_depth_defaults_to_at_most_the_previous_stage(path):
    models = ["mono={checkpoint: x}", "duo={checkpoint: x}"]
    config = load_config(str(path), ["bm25={k: 20}", *models])
    assert [own.section.k for own in config.cascade] == [20, 20, 20]
    assert _stage(load_config(str(path), models), "duo").k == 50


def test_duo_needs_mono_and_mono_a_first_stage():
    with pytest.raises(ValueError, match="`mono`"):
        RunConfig.model_validate({**_VALUES, "index": {"path": "i"}, "duo": {"checkpoint": "x"}})
    with pytest.raises(ValueError, match="first stage"):
        RunConfig.model_validate(_VALUES)


_VALUES: dict[str, Any] = {
    "corpus": {"path": "/c", "format": "tsv"},
    "topics": {"path": "/t", "format": "tsv"},
    "output": "/o",
}


@pytest.mark.parametrize(
    ("short", "stages"),
    [
        ({"index": "/i"}, [{"bm25": {"k": 1000}}]),
        (
            {"index": "/i", "duo": "d", "mono": {"checkpoint": "m", "k": 9}, "bm25": {"k": 20}},
            [
                {"bm25": {"k": 20}},
                {"mono": {"checkpoint": "m", "k": 9, "name": "mono"}},
                {"duo": {"checkpoint": "d", "k": 9}},
            ],
        ),
        (
            {"candidates": "/r", "cascade": [{"mono": "m"}], "bm25": None, "index": None},
            [{"candidates": {"run": "/r"}}, {"mono": {"checkpoint": "m", "k": 1000}}],
        ),
    ],
)
def test_short_form_is_the_list(short, stages):
    index = {"index": short["index"]} if "index" in short else {}
    config, listed = (
        load_config(_VALUES | short),
        load_config(_VALUES | index | {"cascade": stages}),
    )
    assert config == listed
    assert [own.kind for own in config.cascade] == [kind for stage in stages for kind in stage]
    assert json.dumps(config.model_dump(mode="json")) == json.dumps(listed.model_dump(mode="json"))
    assert RunConfig.model_validate(config.model_dump(mode="json")) == config


def test_sections_in_python_are_stages():
    sections = {"index": IndexConfig(path="/i"), "mono": MonoConfig(checkpoint="m")}
    config = RunConfig.model_validate(_VALUES | sections)
    assert [own.kind for own in config.cascade] == ["bm25", "mono"]
    again = RunConfig.model_validate(dict(config))
    assert again.cascade == config.cascade


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ({"mono": {"checkpoint": "m", "kk": 1}}, "mono.kk: "),
        ({"mono": {"checkpoint": "m", "name": "large"}}, "`name`"),
        ({"cascade": [{"mono": {"checkpoint": "m", "name": "large", "kk": 1}}]}, "large.kk: "),
        ({"cascade": [{"mono": "m"}, {}]}, "cascade.1: "),
        ({"cascade": [{"momo": {}}, {"mono": "m"}]}, "cascade.0: "),
        ({"cascade": [{"mono": "m"}, {"bm25": {}}]}, "bm25"),
        ({"cascade": [{"mono": "m"}], "mono": "m"}, "`cascade`"),
        ({"cascade": {"mono": "m"}}, "cascade: "),
        ({"bm25": 5}, "bm25: "),
    ],
)
def test_error_of_a_stage_names_its_place(keys, place):
    with pytest.raises(ConfigError) as refusal:
        load_config(_VALUES | {"index": "/i"} | keys)
    (line,) = str(refusal.value).splitlines()[1:]
    assert place in line


@pytest.mark.parametrize("shipped", _SHIPPED, ids=lambda path: str(path.relative_to(ROOT)))
def test_shipped_configuration_is_valid(shipped):
    config = load_config(str(shipped))
    assert parse_measures(config.measures)
    assert len(config.cascade) > 1 or config.measures == ("AP", "RR")
    assert not {config.corpus.path, config.topics.path, config.output} & {"", str(ROOT)}
    assert Path(config.output).is_relative_to(ROOT)


@pytest.mark.parametrize("shipped", _TRAININGS, ids=lambda path: path.name)
def test_shipped_training_configuration_is_valid(shipped):
    config = load_train_config(str(shipped), _TRAININGS[shipped])
    assert Path(config.output).is_relative_to(ROOT)


def test_shipped_training_of_the_example_has_its_data():
    config = load_train_config(str(ROOT / "configs/train.yaml"), "mono")
    assert Path(config.data.corpus.path).is_file()
    assert {"msmarco-passage.yaml", "beir.yaml", "trec-car-test.yaml", "own-run.yaml"} <= {
        path.name for path in _SHIPPED
    }


def test_folder_of_a_configuration_is_no_pattern(tmp_path):
    """A relative glob in exp[1] must not find the files of exp1."""
    keys = """
corpus: {path: docs/*.jsonl, format: jsonl}
topics: {path: [topics.tsv, "t*.txt"]}
qrels: q.txt
candidates: {run: run.trec}
mono: {checkpoint: ./model}
output: out
reuse: [earlier]
"""
    for name in ("exp[1]", "exp1"):
        (tmp_path / name / "docs").mkdir(parents=True)
        (tmp_path / name / "docs" / "mine.jsonl").touch()
    (tmp_path / "exp1" / "docs" / "other.jsonl").touch()
    (tmp_path / "exp1" / "q.txt").touch()
    (tmp_path / "exp[1]" / "c.yaml").write_text(keys)
    config = load_config(str(tmp_path / "exp[1]" / "c.yaml"))
    literal, escaped = f"{tmp_path}/exp[1]", f"{tmp_path}/exp[[]1]"
    assert config.corpus.path == f"{escaped}/docs/*.jsonl"
    assert corpus_files(config.corpus) == [f"{literal}/docs/mine.jsonl"]
    assert config.topics.path == (f"{escaped}/topics.tsv", f"{escaped}/t*.txt")
    assert (_stage(config, "candidates").run, config.output, config.reuse) == (
        f"{escaped}/run.trec",
        f"{literal}/out",
        (f"{literal}/earlier",),
    )
    assert _stage(config, "mono").checkpoint == f"{literal}/model"
    with pytest.raises(PreflightError, match="qrels file"):
        read_qrels(config.qrels)
    (tmp_path / "exp[1]" / "q.txt").write_text("q 0 d 1\n")
    found = load_config(str(tmp_path / "exp[1]" / "c.yaml"))
    assert found.qrels.path == f"{literal}/q.txt"
    assert read_qrels(found.qrels).relevance == {"q": {"d": 1}}
