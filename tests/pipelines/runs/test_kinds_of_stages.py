"""Every kind of stage keeps every guarantee: docs/reference/stages.md is written from `KINDS`, and
from the first lines of the tests.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import beamrank
from beamrank.commit.plan import read_plan
from pipelines.plan.estimate import estimate
from tests.contrib.encoders.tiny import SAVE
from tests.contrib.generators.cases import GENERATORS, save_generator
from tests.pipelines.runners.test_engines import get_engine
from tests.support.processes import (
    beamrank_here,
    receipts_exist,
    started,
    succeed,
    wait_until,
)
from tests.support.runs import assert_same_bytes, run_bytes, run_here
from tests.support.small_collection import DOCS, TOPICS, SmallCollection

pytestmark = pytest.mark.slow

_IN_LISTS = {"checkpoint": "./llama", "answer": "logits", "window": 4, "stride": 2, "k": 6}
# By name: what the page calls it, and its entry of the cascade.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "pointwise": (
        "a language model, doc by doc",
        {"mono": {"checkpoint": "./qwen", "k": 8, **GENERATORS["Qwen3"].options}},
    ),
    "late": ("late interaction", {"late": {"checkpoint": "./late", "k": 7}}),
    "dense": ("a dense encoder", {"dense": {"checkpoint": "./dense", "k": 7}}),
    "sparse": ("a sparse encoder", {"sparse": {"checkpoint": "./sparse", "k": 7}}),
    "windows": ("a language model in windows that slide", {"listwise": _IN_LISTS}),
    "blocks": ("a language model in blocks", {"listwise": {**_IN_LISTS, "order": "blocks"}}),
}
_NAMES = [*KINDS]


def _save_llama(folder: Path) -> None:
    """A random language model, which ranks a window by the logits of its letters."""
    letters = [chr(code) for code in range(ord("A"), ord("Z") + 1)]
    words = sorted({word for text in (*DOCS.values(), *TOPICS.values()) for word in text.split()})
    vocabulary = {word: number for number, word in enumerate(["[EOS]", "[UNK]", *letters, *words])}
    tokens = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    brackets = pre_tokenizers.Split(Regex(r"[\[\]]"), behavior="isolated")
    split = [pre_tokenizers.WhitespaceSplit(), brackets]
    tokens.pre_tokenizer = pre_tokenizers.Sequence(split)
    torch.manual_seed(1)
    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_attention_heads=2,
        vocab_size=len(vocabulary),
        num_hidden_layers=2,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.5,
        eos_token_id=0,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokens,
        eos_token="[EOS]",
        unk_token="[UNK]",
        chat_template="{% for m in messages %}{{ m['content'] }}{% endfor %}",
    ).save_pretrained(folder)


@pytest.fixture(scope="module")
def collection(tmp_path_factory) -> SmallCollection:
    """A given run, then a stage of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    save_generator(folder / "qwen", "Qwen3")
    _save_llama(folder / "llama")
    for stage, save in SAVE.items():
        save(folder / stage)
    made = SmallCollection(folder, shards=3).given_run().with_qrels()
    made.keys["cascade"] = [
        {kind: {**section, "name": name}}
        for name, (_, entry) in KINDS.items()
        for kind, section in entry.items()
    ]
    return made


@pytest.fixture(scope="module")
def whole(collection) -> Path:
    """The output of a run that nothing disturbed."""
    return Path(run_here(collection.path).plan.output)


def _totals(output: Path, count: str) -> dict[str, int]:
    plan = read_plan(str(output))
    manifests = {name: plan.seal(name) for name in _NAMES}
    return {name: manifest.total(count) for name, manifest in manifests.items() if manifest}


def test_run_is_resumed_after_a_kill(collection, whole, tmp_path):
    """Resumed after a kill"""
    for name in (_NAMES[0], _NAMES[-1]):
        output = tmp_path / name
        with started(collection.path, output, "--only", "0/1") as process:
            wait_until(receipts_exist(name, 1), output, process)
            process.kill()
        run_here(collection.path, output)
        assert_same_bytes(output, whole)


def test_runs_have_the_same_bytes_for_any_shards(collection, whole, tmp_path):
    """Same bytes for any shards"""
    other = run_here(collection.path, tmp_path / "seven", ["shards=7"])
    assert run_bytes(Path(other.plan.output)) == run_bytes(whole)


@pytest.mark.parametrize("runner", ["local", "embed", "prism", "spark", "flink"])
def test_runs_have_the_same_bytes_on_a_runner(collection, whole, tmp_path, runner):
    """Same bytes on five runners"""
    if runner not in ("local", "embed"):
        get_engine(runner)
    made = beamrank.run(str(collection.path), runner=runner, output=tmp_path / runner)
    assert_same_bytes(Path(made.output), whole)


def test_processes_without_an_engine_share_a_run(collection, whole, tmp_path):
    """`--only`"""
    for number in range(2):
        share = ("--only", f"{number}/2", "--output", tmp_path / "only")
        done = beamrank_here("run", collection.path, *share)
        assert done.returncode == 0, done.stderr
    assert_same_bytes(tmp_path / "only", whole)


def test_answers_of_an_earlier_run_are_reused(collection, whole, tmp_path):
    """Scores and answers reused"""
    overrides = ["shards=5", f"reuse={json.dumps([str(whole)])}"]
    run = run_here(collection.path, tmp_path / "reused", overrides)
    assert run_bytes(Path(run.plan.output)) == run_bytes(whole)
    assert _totals(tmp_path / "reused", "inferences") == dict.fromkeys(_NAMES, 0)
    assert all(_totals(tmp_path / "reused", "reused").values())


def test_outputs_are_verified_and_audited(whole, tmp_path):
    """Verified and audited"""
    assert beamrank_here("verify", whole).returncode == 0
    audited = json.loads(succeed("audit", whole, "--json").stdout)
    assert [stage["stage"] for stage in audited["stages"]] == _NAMES
    assert audited["wrong"] == []
    copy = shutil.copytree(whole, tmp_path / "damaged")
    damaged = []
    for name in _NAMES:
        part = min((copy / name).glob("part-*"))
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 1
        part.write_bytes(content)
        damaged.append(f"{name}/{part.name}")
    found = json.loads(beamrank_here("verify", copy, "--json").stdout)["findings"]
    assert {*damaged} <= {finding["file"] for finding in found}


def test_plan_counts_what_is_computed(collection, whole):
    """Counted by `plan`"""
    counted = {stage.stage: stage.inferences for stage in estimate(collection.config).stages}
    assert {name: counted[name] for name in _NAMES} == _totals(whole, "inferences")


def test_report_and_inspect_show_the_stages(whole):
    """In the report and in `inspect`"""
    succeed("report", whole)
    page = (whole / "report/report.html").read_text()
    shown = json.loads(succeed("inspect", whole, "--query", "q0", "--no-texts", "--json").stdout)
    for name in _NAMES:
        assert name in page
        assert all(name in candidate["ranks"] for candidate in shown["candidates"])
