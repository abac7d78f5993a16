"""Named hyperparameters of the papers and their code; a configuration may override each."""

import copy
import difflib
from typing import Any

from beamrank.errors import ConfigError

# Nogueira and Cho 2019, section 3.1; then Nogueira et al. 2019, section 4.1, and the README of dl4marco-bert.
_MSMARCO_2019 = {
    "objective": {"mono": "pointwise", "duo": "pairwise"},
    "optimizer": {"learning_rate": 3e-6, "warmup_steps": 10_000, "steps": 400_000, "batch_size": 32},
}
_MSMARCO = {
    "objective": {"mono": "pointwise", "duo": "pairwise"},
    "optimizer": {"learning_rate": 3e-6, "warmup_steps": 10_000, "steps": 100_000, "batch_size": 128},
}
# The same papers on TREC CAR: 3.2 of the first, 4.2 of the second. duoBERT compares a relevant doc with another, so its
# pairs are balanced.
_CAR_2019 = _MSMARCO_2019 | {
    "sampling": {"mode": {"mono": "natural", "duo": "balanced"}, "ranks": [1, 10]},
    "dev": {"measure": "AP", "k": 10},
}
_CAR_MULTISTAGE = _MSMARCO | {
    "sampling": {"mode": "balanced", "negatives": 1, "ranks": [1, 10]},
    "dev": {"measure": "AP", "k": 10},
}
# The README of dl4marco-bert.
_CAR = _CAR_2019 | {
    "optimizer": {"learning_rate": 1e-6, "warmup_steps": 40_000, "steps": 400_000, "batch_size": 32},
    "dev": {"measure": "AP", "k": 10, "max_topics": 3000},
}
# Mass et al. 2019, section 4.2: BERTlets, BERT[PW] and BERT[CE]. "The default BERT setup" is that of run_classifier.py.
_NONFACTOID = {
    "objective": {"mono": "bertlets", "duo": "pairwise"},
    "margin": 0.2,
    "labels": {"mono": 1, "duo": 2},
    "sampling": {"mode": "triplets", "ranks": [1, 10]},
    "input": {"truncation": {"mono": "hf", "duo": "original"}, "max_length": 256},
    "optimizer": {"learning_rate": 2e-5, "warmup_share": 0.1, "epochs": 3, "batch_size": 32},
}
_NONFACTOID_PW = _NONFACTOID | {"objective": {"mono": "pointwise", "duo": "pairwise"}, "labels": 2}
_NONFACTOID_CE = _NONFACTOID | {"objective": {"mono": "bert_ce", "duo": "pairwise"}}
# Nogueira et al. 2019, section 4.1; the warm-up is that of the README of duobert.
_TCP = {
    "objective": "masked_words",
    "optimizer": {"learning_rate": 5e-5, "warmup_steps": 10_000, "steps": 100_000, "batch_size": 128},
}
# Ours, for models of some 20 million weights on a CPU: a high rate, short inputs, frozen word embeddings.
_SMALL = {
    "objective": {"mono": "bert_ce", "duo": "pairwise"},
    "sampling": {"mode": "balanced", "negatives": {"mono": 3, "duo": 1}, "ranks": [1, 100]},
    "input": {"max_query_length": 34, "max_length": 128},
    "optimizer": {
        "learning_rate": 1e-4,
        "warmup_share": 0.05,
        "epochs": 3,
        "batch_size": 32,
        "train_word_embeddings": False,
    },
}

RECIPES: dict[str, dict[str, Any]] = {
    "msmarco-2019": _MSMARCO_2019,
    "msmarco": _MSMARCO,
    "car-2019": _CAR_2019,
    "car-multistage": _CAR_MULTISTAGE,
    "car": _CAR,
    "nonfactoid": _NONFACTOID,
    "nonfactoid-pw": _NONFACTOID_PW,
    "nonfactoid-ce": _NONFACTOID_CE,
    "tcp": _TCP,
    "small": _SMALL,
}

_DEFAULTS: dict[str, Any] = {"objective": {"mono": "pointwise", "duo": "pairwise", "tcp": "masked_words"}}
_ALTERNATIVES = (("steps", "epochs"), ("warmup_steps", "warmup_share"))


def with_recipe(document: dict[str, Any], kind: str) -> dict[str, Any]:
    """A configuration's document over the defaults of its recipe, for a kind: `mono`, `duo` or `tcp`.

    Raises:
        ConfigError: the recipe does not exist, or is not for this kind.
    """
    name = document.get("recipe")
    if name is not None and (not isinstance(name, str) or name not in RECIPES):
        close = difflib.get_close_matches(str(name), RECIPES, n=1)
        hint = f": did you mean {close[0]}?" if close else f" (there are {', '.join(RECIPES)})"
        raise ConfigError(f"recipe: unknown recipe {name!r}{hint}")
    if name is not None and (name == "tcp") != (kind == "tcp"):
        raise ConfigError(
            f"recipe: {name} is not for {kind}: `tcp` alone is for `beamrank train tcp`, the others are not"
        )
    recipe = _of_kind(copy.deepcopy(RECIPES.get(str(name), _DEFAULTS)), kind)
    if isinstance(document.get("data"), dict) and "triples" in document["data"]:
        recipe.pop("sampling", None)
    if document.get("dev") is None:
        recipe.pop("dev", None)
    own = document.get("optimizer")
    for one, other in _ALTERNATIVES:
        if isinstance(own, dict) and (one in own or other in own):
            recipe.get("optimizer", {}).pop(one, None)
            recipe.get("optimizer", {}).pop(other, None)
    return _merged(recipe, document)


def _of_kind(value: Any, kind: str) -> Any:
    """Chooses the values for mono, duo or tcp."""
    if not isinstance(value, dict):
        return value
    if "mono" in value:
        return value[kind]
    return {key: _of_kind(each, kind) for key, each in value.items()}


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        mergeable = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if mergeable else value
    return merged
