"""Inputs a second of a language model on a CPU, with the prompt before the docs computed for each
input and once a batch: `prefix: none` and `shared`.

A random model of two of Qwen3-Reranker-0.6B's 28 layers, in float32: how many there are does not
change the ratio. A token is a byte: topic and prompt have 200 before each doc, docs 100. Both take
turns; the best round of each counts.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from benchmarks.results import Part, Target
from models.reranker import Reranker

_QWEN3 = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 2}
_QWEN3 |= {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
PROMPT, ANSWERS = "Query: {{ query }}\nDocument: {{ doc }}\n", ("y", "n")
_PREFIX, _DOC, _DOCS = 200, 100, 50
_WANTED_RATIO = 1.5
_SEED = 20_261_129


def measure(options: argparse.Namespace, work: Path) -> Iterator[tuple[str, Part]]:
    """Yields one part."""
    folder = save_model(work / "model")
    rerankers = {
        prefix: Reranker(
            folder,
            dtype="float32",
            device="cpu",
            max_query_length=_PREFIX + 64,
            max_length=512,
            prompt={"text": PROMPT},
            answers=ANSWERS,
            prefix=prefix,
        )
        for prefix in ("none", "shared")
    }
    pairs = make_pairs(len(PROMPT.partition("{{")[0] + "\nDocument: "))
    seconds, scores = dict.fromkeys(rerankers, np.inf), {}
    for _ in range(options.rounds):
        for prefix, reranker in rerankers.items():
            start = time.perf_counter()
            scores[prefix] = reranker.score(pairs)
            seconds[prefix] = min(seconds[prefix], time.perf_counter() - start)
    rates = {prefix: len(pairs) / best for prefix, best in seconds.items()}
    ratio = round(rates["shared"] / rates["none"], 3)
    figures = {
        "inputs": len(pairs),
        "tokens_before_a_doc": _PREFIX,
        "tokens_of_a_doc": _DOC,
        "inputs_per_second": {prefix: round(rate, 2) for prefix, rate in rates.items()},
        "ratio": ratio,
        "largest_difference": float(np.abs(scores["shared"] - scores["none"]).max()),
    }
    name = "inputs/s with the prefix shared over without"
    yield "qwen3", Part(figures, (Target(name, ratio, "at least", _WANTED_RATIO),))


def save_model(folder: Path, **keys: int) -> str:
    """Writes a random checkpoint whose tokens are bytes, with further keys of its configuration."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {char: number for number, char in enumerate([*alphabet, "<|endoftext|>"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast: Any = transformers.PreTrainedTokenizerFast
    fast(tokenizer_object=tokenizer, eos_token="<|endoftext|>").save_pretrained(folder)
    torch.manual_seed(_SEED)
    sizes = {**_QWEN3, "vocab_size": len(vocabulary), **keys}
    config = transformers.AutoConfig.for_model("qwen3", **sizes)
    causal: Any = transformers.AutoModelForCausalLM
    causal.from_config(config).save_pretrained(folder)
    return str(folder)


def make_pairs(fixed: int) -> list[tuple[str, str]]:
    """A topic, which has `_PREFIX` bytes with the `fixed` ones of the prompt, and its docs."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz "))
    rng = np.random.default_rng(_SEED)

    def text(size: int) -> str:
        return "".join(rng.choice(letters, size))

    topic = text(_PREFIX - fixed)
    return [(topic, text(_DOC)) for _ in range(_DOCS)]
