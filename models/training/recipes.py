"""Recipes: named hyperparameters of the papers and their code, in recipes.yaml."""

import copy
import difflib
from importlib.resources import files
from typing import Any

import yaml

from beamrank.errors import ConfigError

RECIPES: dict[str, dict[str, Any]] = yaml.safe_load(files(__package__).joinpath("recipes.yaml").read_bytes())
_DEFAULTS = RECIPES.pop("defaults")
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
