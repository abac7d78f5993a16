"""The files of a checkpoint's folder: Hugging Face's names, what config.json and modules.json hold, a digest."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from beamrank.errors import PreflightError
from beamrank.storage.digested import DigestedFile, digest_file
from beamrank.storage.documents import digest, parse_json, read_at_most, validated
from models.architectures.protocol import Module
from models.checkpoints.weights import (
    ADAPTER,
    PARTS,
    PICKLED,
    SAFETENSORS,
    WEIGHTS,
    refuse_adapter,
    weight_files,
)
from models.tokenizers.files import TOKENIZER_FILES

CONFIG = "config.json"
SENTENCE_TRANSFORMERS = "modules.json"
PROMPTS, TRANSFORMER = "config_sentence_transformers.json", "sentence_bert_config.json"
MODULE_FILES = (CONFIG, SAFETENSORS, PICKLED)
# As patterns, with the names that sentence-transformers gives the folders of modules.
_MODULES_BELOW = tuple(f"[0-9]*_{kind}/{name}" for kind in ("Pooling", "Dense", "LayerNorm") for name in MODULE_FILES)
CHECKPOINT_FILES = (
    *(CONFIG, *TOKENIZER_FILES, SENTENCE_TRANSFORMERS, PROMPTS, TRANSFORMER, ADAPTER),
    *(*WEIGHTS, *PARTS.values()),
    *_MODULES_BELOW,
)

_MOST_JSON_BYTES = 1 << 24


@dataclass(frozen=True)
class _Module:
    """An entry of modules.json. A folder is a plain name: it must not lead out of the checkpoint's."""

    type: str
    path: Annotated[str, Field(pattern=r"^(\w[\w.-]*)?$")] = ""


_MODULES = TypeAdapter(list[_Module])
_WEIGHTED = ("Dense", "LayerNorm")


def read_modules(folder: str) -> tuple[Module, ...]:
    """The modules of a sentence-transformers model; none in a folder without modules.json.

    Raises:
        PreflightError: modules.json or the config.json of a module is damaged.
    """
    path = os.path.join(folder, SENTENCE_TRANSFORMERS)
    if not os.path.isfile(path):
        return ()
    return tuple(
        Module(entry.type.rpartition(".")[2], entry.path, _read_module_config(os.path.join(folder, entry.path, CONFIG)))
        for entry in _read_entries(path)
    )


def module_folders(url: str) -> tuple[str, ...]:
    """The folders of the modules after the first, as the modules.json at a URL names them.

    Raises:
        PreflightError: modules.json is damaged.
    """
    return tuple(entry.path for entry in _read_entries(url)[1:] if entry.path)


def _read_entries(url: str) -> list[_Module]:
    try:
        return validated(_MODULES, read_json(url))
    except ValueError as error:
        raise PreflightError(f"{url} is not a list of the modules of sentence-transformers: {error}") from error


def _read_module_config(path: str) -> dict[str, Any]:
    config = read_json(path) if os.path.isfile(path) else {}
    if not isinstance(config, dict):
        raise PreflightError(f"{path} does not hold a JSON object")
    return config


def weighted_modules(modules: Sequence[Module]) -> tuple[Module, ...]:
    """The modules below the first that have weights of their own."""
    return tuple(module for module in modules[1:] if module.kind in _WEIGHTED)


def digest_files(folder: str, names: Sequence[str] | None = None) -> tuple[DigestedFile, ...]:
    """The digest of each file of a folder: of those named, or of configuration, tokenizer, weights and modules."""
    wanted = (CONFIG, *TOKENIZER_FILES, *weight_files(folder), *_module_files(folder)) if names is None else names
    paths = [os.path.join(folder, name) for name in wanted]
    return tuple(digest_file(path) for path in paths if os.path.exists(path))


def _module_files(folder: str) -> tuple[str, ...]:
    """The files of modules whose weights decide a score; none where the Transformer alone has weights."""
    modules = read_modules(folder)
    weighted = weighted_modules(modules)
    if not weighted:
        return ()
    weights = [
        os.path.join(each.folder, name) for each in weighted for name in weight_files(os.path.join(folder, each.folder))
    ]
    return (SENTENCE_TRANSFORMERS, *(os.path.join(each.folder, CONFIG) for each in modules[1:]), *weights)


def digest_of(files: Sequence[DigestedFile], folder: str) -> str:
    """One SHA-256 over the names and contents of some files of a folder."""
    return digest({os.path.relpath(file.url, folder): file.sha256 for file in files})


def checkpoint_digest(folder: str) -> str:
    """The SHA-256 over a checkpoint's configuration, tokenizer and weights."""
    return digest_of(digest_files(folder), folder)


def read_json(path: str) -> Any:
    """The JSON document in a file.

    Raises:
        FileNotFoundError: the file does not exist.
        PreflightError: it is not valid JSON, or too large.
    """
    try:
        return parse_json(read_at_most(path, _MOST_JSON_BYTES))
    except (ValueError, IsADirectoryError) as error:
        raise PreflightError(f"{path} is not valid JSON: {error}") from error


def read_config(folder: str, reference: str) -> dict[str, Any]:
    """The config.json of a checkpoint.

    Raises:
        PreflightError: it is missing or is not a JSON object, or the folder holds an adapter.
    """
    try:
        config = read_json(os.path.join(folder, CONFIG))
    except FileNotFoundError as error:
        refuse_adapter(folder)
        raise PreflightError(
            f"the checkpoint {reference} has no {CONFIG}: it is not in Hugging Face's format. `beamrank convert` makes "
            "such a folder of a TensorFlow checkpoint (docs/reference/checkpoints.md)"
        ) from error
    if not isinstance(config, dict):
        raise PreflightError(f"the {CONFIG} of the checkpoint {reference} does not hold a JSON object")
    return config
