"""The configuration: checked whole, with errors that say which key."""

import re

import pytest

from beamrank.config.run import RunConfig, load_config
from beamrank.errors import ConfigError, PreflightError

TEXT = """
corpus: {path: corpus.jsonl, format: jsonl}
topics: {path: /abs/topics.tsv, format: tsv}
index: {path: index}
mono: {checkpoint: "embedded:mono", k: 100}
output: out
"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(TEXT)
    return file


def test_relative_paths_are_relative_to_the_file(path):
    config = load_config(str(path))
    assert config.corpus.path == str(path.parent / "corpus.jsonl")
    assert config.topics.path == "/abs/topics.tsv"
    assert config.output == str(path.parent / "out")
    assert config.mono is not None
    assert config.mono.checkpoint == "embedded:mono"


def test_output_is_relative_to_the_current_folder(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert load_config(str(path), output="here").output == str(tmp_path / "here")


def test_a_checkpoint_folder_beside_the_file_is_anchored_and_a_hub_id_is_not(path):
    (path.parent / "org" / "model").mkdir(parents=True)
    found = [load_config(str(path), [f"mono.checkpoint={ref}"]) for ref in ("org/model", "org/other@abc", "./x")]
    checkpoints = [config.mono.checkpoint for config in found if config.mono is not None]
    assert checkpoints == [str(path.parent / "org/model"), "org/other@abc", str(path.parent / "x")]


def test_overrides_are_yaml(path):
    config = load_config(str(path), ["mono.k=7", "bm25.k1=0.82", "run_tag=x", "measures=[AP]"])
    assert (config.mono and config.mono.k, config.first_stage_bm25.k1, config.measures) == (7, 0.82, ("AP",))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("mono.kk=1", "mono.kk: unknown key: did you mean k?"),
        ("momo=1", "momo: unknown key: did you mean mono?"),
        ("bm25.zzz=1", "bm25.zzz: unknown key (there are k1, b, k)"),
        ("bm25.k1=-1", "bm25.k1: must be 0 or more, not -1; usual values are 0.9, 1.2, and 0.82 for MS MARCO"),
        ("bm25.k1=.nan", "bm25.k1: Input should be a finite number"),
        ("bm25.k1=.inf", "bm25.k1: Input should be a finite number"),
        ("bm25.b=1.1", "bm25.b: must be between 0 and 1, not 1.1; usual values are 0.4, 0.75, and 0.68 for MS MARCO"),
        ("bm25.b=-0.1", "bm25.b: must be between 0 and 1, not -0.1"),
        ("bm25.b=.nan", "bm25.b: Input should be a finite number"),
        ("mono.k=0", "mono.k: Input should be greater than or equal to 1"),
        ("mono.k=1001", "mono.k 1001 is more than the 1000 candidates"),
        ("duo={checkpoint: x, k: 101}", "duo.k 101 is more than the 100 candidates"),
        ("duo={checkpoint: x, k: 5, aggregation: sample}", "give both or neither"),
        ("duo={checkpoint: x, k: 5, aggregation: mean}", "duo.aggregation"),
        ("candidates={run: x}", "give either `candidates`, or `index` and `bm25`, not both"),
        ("input.truncation=left", "input.truncation"),
        ("input.max_query_length=600", "leaves no room"),
        ("run_tag=two words", "run_tag"),
        ('run_tag="a\\u0007b"', "run_tag: is a column of the runs: it must not hold a control character"),
        ('run_tag="\\ufeffa"', "or a byte order mark"),
        ("mono", "must look like mono.k=100"),
        ("run_tag.x=1", "holds a value, not a section"),
        ("mono.k={", "not valid YAML"),
    ],
)
def test_what_is_wrong_is_named(path, override, message):
    overrides = ["run_tag=t", override]
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_config(str(path), overrides)


def test_a_depth_that_is_left_out_is_what_the_stage_before_gives(path):
    config = load_config(str(path), ["bm25={k: 20}", "mono={checkpoint: x}", "duo={checkpoint: x}"])
    assert config.mono is not None
    assert config.duo is not None
    assert (config.mono.k, config.duo.k) == (20, 20)
    deep = load_config(str(path), ["mono={checkpoint: x}", "duo={checkpoint: x}"])
    assert deep.duo is not None
    assert deep.duo.k == 50


def test_measures_may_be_written_as_one_string(path):
    assert load_config(str(path), ["measures=RR@10 AP"]).measures == ("RR@10", "AP")


def test_duo_needs_mono():
    values = {"corpus": {"path": "c", "format": "tsv"}, "topics": {"path": "t", "format": "tsv"}, "output": "o"}
    with pytest.raises(ValueError, match="give `mono` too"):
        RunConfig.model_validate({**values, "index": {"path": "i"}, "duo": {"checkpoint": "x"}})
    with pytest.raises(ValueError, match="the first stage is missing"):
        RunConfig.model_validate(values)


@pytest.mark.parametrize("content", ["- a list", "a: [", "just text"])
def test_no_mapping_is_an_error(tmp_path, content):
    (tmp_path / "c.yaml").write_text(content)
    with pytest.raises(ConfigError, match=r"c\.yaml"):
        load_config(str(tmp_path / "c.yaml"))


def test_no_file_is_a_preflight_error(tmp_path):
    with pytest.raises(PreflightError, match=r"none\.yaml"):
        load_config(str(tmp_path / "none.yaml"))
