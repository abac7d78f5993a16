"""Checkpoints of every family of architectures with random sizes, against transformers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.contrib.generators import cases as generators
from tests.support.models import families

_ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh")


def check(seed: int, folder: Path) -> int:
    """A case of `tests/support/models/families.py` or of the language models, with other sizes."""
    random = np.random.default_rng(seed)
    names = [*families.CASES, *generators.GENERATORS]
    name = names[seed % len(names)]
    return (_classifier if name in families.CASES else _generator)(name, random, folder)


def _classifier(name: str, random: np.random.Generator, folder: Path) -> int:
    given = families.CASES[name].config
    positions = int(random.integers(12, 200))
    saved = families.save_case(folder, name, **_sizes(given, positions, random))
    inputs = families.random_inputs(
        name, [positions, positions, *random.integers(1, positions + 1, 9).tolist(), 1]
    )
    theirs = families.wanted_log_odds(saved, *inputs)
    exact, _ = families.wanted_log_odds(saved, *inputs, torch.float64)
    for blocks in (False, True):
        _same_but_for_rounding(families.Scorer(saved, blocks=blocks)(inputs), exact, *theirs)
    return 2 * len(exact)


def _same_but_for_rounding(
    ours: Sequence[float], exact: Sequence[float], *theirs: Sequence[float]
) -> None:
    """Within a few times the error of transformers' own float32: random weights amplify rounding
    differently.
    """
    rounding = max(float(np.abs(np.subtract(side, exact)).max()) for side in theirs)
    np.testing.assert_allclose(ours, exact, rtol=0, atol=1e-4 + 8 * rounding)
    assert rounding < 1e-3
    assert np.std(exact) > 0.01


def _sizes(given: dict[str, Any], positions: int, random: np.random.Generator) -> dict[str, Any]:
    """Other sizes under the names that a configuration has; a head has an even size, which
    rotations need.
    """
    heads = int(random.integers(1, 7))
    named = {
        ("hidden_size", "dim"): heads * 2 * int(random.integers(2, 17)),
        ("num_attention_heads", "n_heads"): heads,
        ("num_hidden_layers", "n_layers"): int(random.integers(1, 6)),
        ("intermediate_size", "hidden_dim"): int(random.integers(4, 130)),
    }
    sizes: dict[str, Any] = {
        name: value for names, value in named.items() for name in names if name in given
    }
    for name in {"hidden_act", "hidden_activation"} & given.keys():
        sizes[name] = str(random.choice(_ACTIVATIONS))
    if "embedding_size" in given:
        sizes["embedding_size"] = (
            sizes["hidden_size"] if random.random() < 0.5 else int(random.integers(4, 70))
        )
    if "local_attention" in given:
        sizes["local_attention"] = 2 * int(random.integers(1, 20)) + given["local_attention"] % 2
    if "layer_types" in given:
        kinds = random.choice(["sliding_attention", "full_attention"], sizes["num_hidden_layers"])
        sizes["layer_types"] = kinds.tolist()
    reserved = given["max_position_embeddings"] - families.POSITIONS
    return {
        **sizes,
        "max_position_embeddings": positions + reserved,
        "num_labels": int(random.integers(1, 3)),
    }


def _generator(name: str, random: np.random.Generator, folder: Path) -> int:
    from models.reranker import Reranker

    case = generators.GENERATORS[name]
    heads, size = int(random.integers(1, 5)), 2 * int(random.integers(2, 13))
    if case.tokenizer == "t5":
        sizes = {"d_model": int(random.integers(8, 80)), "d_kv": size, "num_heads": heads}
        sizes |= {"d_ff": int(random.integers(8, 90)), "num_layers": int(random.integers(1, 4))}
    else:
        groups = int(random.integers(1, 3))
        sizes = {"num_attention_heads": heads * groups, "num_key_value_heads": heads}
        sizes |= {"hidden_size": heads * groups * size}
        sizes |= {
            "intermediate_size": int(random.integers(8, 90)),
            "num_hidden_layers": int(random.integers(1, 4)),
        }
        sizes |= {"head_dim": 2 * int(random.integers(2, 13))} if "head_dim" in case.config else {}
    saved = generators.save_generator(folder, name, **sizes)
    words = ["dog", "France", "1,234", "北京", "crusts", "the", "oven"]
    # None is cut.
    longest = (6, 20, 20) if case.kind == "duo" else (6, 20)
    texts = [
        tuple(" ".join(random.choice(words, random.integers(1, most))) for most in longest)
        for _ in range(12)
    ]
    prompts = generators.prompt_ids(saved, case, texts)
    theirs, exact = (
        generators.wanted_answers(saved, case, prompts, dtype)
        for dtype in (torch.float32, torch.float64)
    )
    kind: Any = case.kind
    reranker = Reranker(
        *(saved, kind),
        dtype="float32",
        device="cpu",
        truncation="paper",
        max_length=512,
        **case.options,
    )
    _same_but_for_rounding(reranker.score(texts).tolist(), exact, theirs)
    return len(texts)
