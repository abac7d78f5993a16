"""A language model in this process: a tiny Llama that is trained for seconds to copy the order that
docs tell.
"""

import itertools
import json
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, pipeline
from transformers.utils import logging

import beamrank
from beamrank.errors import BeamrankError, ConfigError, PreflightError
from contrib.listwise.client import server_of
from contrib.listwise.prompt import LETTERS, Window, named_places
from models.stages.core import open_stages
from pipelines.runners import dataflow
from tests.support.processes import succeed
from tests.support.runs import assert_same_bytes, read_trec, run_bytes, run_here
from tests.support.services.dataflow import FLAGS
from tests.support.small_collection import SmallCollection

_GRADES = ("best", "good", "poor")
_QUERIES = ("amber", "basil", "cedar")
_TEMPLATE = "{docs}\n{query} :"
_MARKS = ("[PAD]", "[EOS]", "[UNK]", "[", "]", ">", ":")
_NAMES = {"text": "123", "logits": "ABC"}
_CHAT = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def _tokenizer(answer: str) -> PreTrainedTokenizerFast:
    words = [*_MARKS, *_NAMES[answer], *_GRADES, *_QUERIES]
    if answer == "logits":
        words += [chr(place) for place in range(ord("D"), ord("Z") + 1)]
    tokens = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokens.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Split(Regex(r"[\[\]]"), behavior="isolated"),
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokens,
        pad_token="[PAD]",
        eos_token="[EOS]",
        unk_token="[UNK]",
        chat_template=_CHAT,
    )


def _train(folder: Path, answer: str) -> None:
    """Every order of the grades, for every query."""
    torch.manual_seed(0)
    tokenizer, names = _tokenizer(answer), _NAMES[answer]
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=128,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    windows = [
        Window(query, docs) for query in _QUERIES for docs in itertools.permutations(_GRADES)
    ]
    orders = [[window.docs.index(grade) for grade in _GRADES] for window in windows]
    prompts = [
        window.messages(_TEMPLATE, 9, names if answer == "logits" else "")[0]["content"]
        for window in windows
    ]
    opening = " [" if answer == "logits" else ""
    ids = torch.tensor([tokenizer(text + opening)["input_ids"] for text in prompts])
    texts = [" > ".join(f"[{names[place]}]" for place in order) + " [EOS]" for order in orders]
    targets = torch.tensor([tokenizer(text)["input_ids"] for text in texts])
    letters = torch.tensor([tokenizer(name)["input_ids"][0] for name in names])
    wanted = torch.tensor([[-float(order.index(place)) for place in range(3)] for order in orders])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(400):
        if answer == "logits":
            logits = model(ids).logits[:, -1, letters]
            loss = torch.nn.functional.mse_loss(logits, wanted)
        else:
            whole = torch.cat([ids, targets], dim=1)
            labels = whole.clone()
            labels[:, : ids.shape[1]] = -100
            loss = model(whole, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss < 0.01:
            break
    assert loss < 0.02
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module", params=["text", "logits"])
def trained(request, tmp_path_factory) -> tuple[str, Path]:
    """How it answers, and its checkpoint."""
    folder = tmp_path_factory.mktemp(request.param)
    torch.set_num_threads(1)
    _train(folder, request.param)
    return request.param, folder


@pytest.fixture
def collection(trained, tmp_path) -> SmallCollection:
    """Five docs of each grade."""
    answer, folder = trained
    docs = {f"{grade}{number}": grade for grade in _GRADES for number in range(5)}
    drawn = random.Random(5)
    topics = {f"q{number}": query for number, query in enumerate(_QUERIES)}
    candidates = {
        query_id: [f"{grade}{drawn.randrange(5)}" for grade in drawn.sample(_GRADES, 3)]
        for query_id in topics
    }
    made = SmallCollection(tmp_path, docs, topics).given_run(candidates, k=3)
    made.write("prompt.txt", [_TEMPLATE])
    made.keys["cascade"] = [
        {
            "listwise": {
                "checkpoint": str(folder),
                "answer": answer,
                "template": "prompt.txt",
                "k": 3,
                "window": 3,
                "stride": 1,
                "max_answer_tokens": 30,
            }
        }
    ]
    made.keys["shards"] = 2
    return made


def test_model_orders_docs_as_they_tell(collection, tmp_path, monkeypatch):
    # Another test of this process may have turned them off.
    monkeypatch.setattr(logging, "_tqdm_active", True)
    run = run_here(collection.path)
    assert logging.is_progress_bar_enabled()
    ranked = read_trec(collection.output / "runs/listwise.trec")
    assert [[doc[:-1] for doc in docs] for docs in ranked.values()] == [list(_GRADES)] * 3
    manifest = run.plan.seal("listwise")
    assert manifest is not None
    assert manifest.total("requests") == 3
    assert manifest.total("unparsed") == 0
    assert manifest.total("prompt_tokens") > 3 * 10
    # The prompt and the answer are those of transformers' own pipeline.
    stage = open_stages(run.plan.stages)[-1]
    window = Window("basil", ["poor", "good", "best"])
    names = LETTERS if stage.answer == "logits" else ""
    messages = window.messages(stage.template, 9, names)
    reply = stage.open().ask("", messages, 30)
    assert named_places(reply.text, 3) == [2, 1, 0]
    if stage.answer == "text":
        pipe = pipeline("text-generation", stage.checkpoint, device="cpu")
        (generated,) = pipe(messages, max_new_tokens=30, do_sample=False)
        assert generated["generated_text"][-1]["content"] == reply.text


def test_workers_of_dataflow_have_an_accelerator(collection):
    planned = collection.plan().plan
    record = replace(open_stages(planned.stages)[-1], device="cuda").record()
    plan = replace(planned, stages=(*planned.stages[:-1], record))
    options = dataflow.job_options(plan, record, FLAGS).get_all_options()
    assert "worker_accelerator=" in options["dataflow_service_options"][0]
    assert "no_use_multiple_sdk_containers" in options["experiments"]


@pytest.mark.slow
def test_model_has_the_same_bytes_for_shards_and_in_memory_and_is_reused(collection, tmp_path):
    expected = Path(run_here(collection.path).plan.output)
    other = beamrank.run(str(collection.path), output=tmp_path / "one", set={"shards": 1})
    assert read_trec(Path(other.runs["listwise"])) == read_trec(expected / "runs/listwise.trec")
    embedded = beamrank.run(str(collection.path), runner="embed", output=tmp_path / "embed")
    assert_same_bytes(Path(embedded.output), expected)
    succeed("verify", expected)
    audited = json.loads(succeed("audit", expected, "--json").stdout)
    assert audited["wrong"] == []
    again = run_here(collection.path, tmp_path / "again", ["listwise.k=2", f"reuse=[{expected}]"])
    assert again.plan.stage("listwise").keys["k"] == 2


def test_checkpoint_that_changed_or_cannot_answer_is_refused(collection, trained, tmp_path):
    answer, folder = trained
    (section,) = collection.keys["cascade"][0].values()
    for changed, key in (
        ({"endpoint": "http://127.0.0.1/v1", "model": "x"}, "endpoint"),
        ({"model": "x"}, "model"),
        ({"answer": "logits", "window": 27}, "26"),
    ):
        collection.keys["cascade"] = [{"listwise": section | changed}]
        with pytest.raises(ConfigError, match=key):
            _ = collection.config
    copied = tmp_path / "copied"
    shutil.copytree(folder, copied)
    collection.keys["cascade"] = [{"listwise": section | {"checkpoint": str(copied)}}]
    planned = collection.plan()
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "rope_theta": 5000}))
    with pytest.raises(BeamrankError, match="changed since"):
        planned.run()
    quantized = {**config, "quantization_config": {"quant_method": "awq"}}
    (copied / "config.json").write_text(json.dumps(quantized))
    with pytest.raises(PreflightError, match=r"quantization_config.*`endpoint`"):
        collection.plan()
    if answer == "text":
        # Its vocabulary has no letters.
        (copied / "config.json").write_text(json.dumps(config))
        section |= {"checkpoint": str(copied), "answer": "logits"}
        collection.keys["cascade"] = [{"listwise": section}]
        with pytest.raises(BeamrankError, match="answer: logits"):
            collection.plan().run()
        section |= {"answer": "text", "max_answer_tokens": 300}
        collection.keys["cascade"] = [{"listwise": section}]
        with pytest.raises(BeamrankError, match="128 positions"):
            run_here(collection.path)


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The endpoint of transformers' own server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [Path(sys.executable).parent / "transformers", "serve", folder]
    command += ["--host", "127.0.0.1", "--port", port, "--device", "cpu", "--dtype", "float32"]
    with subprocess.Popen([*map(str, command)]) as process:
        try:
            while not _answers(f"http://127.0.0.1:{port}/health", process):
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()


def _answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "the server ended"
    with suppress(httpx.HTTPError):
        return httpx.get(url, trust_env=False).is_success
    return False


@pytest.mark.slow
# A server gives no logits.
@pytest.mark.parametrize("trained", ["text"], indirect=True)
def test_server_of_transformers_gives_the_run_of_its_checkpoint(trained, collection, tmp_path):
    """Where its extra `serving` is installed."""
    _, folder = trained
    pytest.importorskip("uvicorn", reason="transformers[serving] is not installed")
    here = run_here(collection.path, tmp_path / "here")
    (section,) = collection.keys["cascade"][0].values()
    served = {
        name: value for name, value in section.items() if name not in ("checkpoint", "answer")
    }
    with _served(folder) as endpoint:
        collection.keys["cascade"] = [
            {"listwise": served | {"endpoint": endpoint, "model": str(folder)}}
        ]
        run = run_here(collection.path)
        server_of.cache_clear()
    assert run_bytes(collection.output) == run_bytes(Path(here.plan.output))
    manifest = run.plan.seal("listwise")
    assert manifest is not None
    assert manifest.total("prompt_tokens") > 0
