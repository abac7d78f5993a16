"""The checkpoint of an encoder, as sentence-transformers, PyLate and ColBERT save it: its kind, and
the files that decide its vectors.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from glob import glob
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Self

from beamrank.errors import PreflightError
from beamrank.storage.digested import DigestedFile
from models.checkpoints.files import (
    CHECKPOINT_FILES,
    CONFIG,
    PICKLED,
    PROMPTS,
    SAFETENSORS,
    SENTENCE_TRANSFORMERS,
    digest_files,
    digest_of,
    read_json,
    weight_files,
)
from models.checkpoints.sources import locate

_ROUTER, _COLBERT = "router_config.json", "artifact.metadata"
# As patterns. sentence-transformers once had a file of settings for each family of models.
_OF_MODULES = ("*.json", "*.txt", "*.jinja", "*.model", "*.safetensors", PICKLED)
_SETTINGS = "sentence_*_config.json"
# A module's folder is named by its number and class, and the route before them.
_FILES = (
    *(*CHECKPOINT_FILES, _SETTINGS, _ROUTER, _COLBERT),
    *(f"*[0-9]_*/{name}" for name in _OF_MODULES),
)
_OWN_MODULES = ("sentence_transformers.", "pylate.models.Dense.Dense")
# Which stage takes a model, by the class that sentence-transformers or PyLate saved it as.
_STAGES = {
    "SentenceTransformer": "dense",
    "SparseEncoder": "sparse",
    "MultiVectorEncoder": "late",
    "ColBERT": "late",
    "CrossEncoder": "mono",
}
_NAMES = {
    "dense": "a dense encoder",
    "sparse": "a sparse encoder",
    "late": "a multi-vector encoder",
    "mono": "a cross-encoder",
}
CLASSES = {stage: name for name, stage in _STAGES.items() if name != "ColBERT"}
"""The class of sentence-transformers that loads a stage's model."""


@dataclass(frozen=True)
class EncoderCheckpoint:
    """An encoder on this machine.

    Attributes:
        folder: holds its files.
        reference: finds it from any machine; a Hugging Face id has its commit.
        files: those that decide its vectors, its prompts among them.
    """

    folder: str
    reference: str
    files: tuple[DigestedFile, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over the files."""
        return digest_of(self.files, self.folder)

    @property
    def config(self) -> Mapping[str, Any]:
        """config.json, which may name a weight of scores (`combine`)."""
        return _read(self.folder, CONFIG)

    @classmethod
    def read(cls, reference: str, stage: str) -> Self:
        """Brings a checkpoint to this machine, and checks that a stage of this kind takes it.

        Raises:
            PreflightError: it is missing, or of another kind.
        """
        folder, definite = locate(reference, _FILES)
        found = _stage_of(folder)
        if found is None:
            raise PreflightError(
                f"the checkpoint {definite} has no {SENTENCE_TRANSFORMERS}, so nothing says how "
                f"texts become vectors: save it with sentence-transformers first, "
                f"{CLASSES[stage]}({reference!r}).save_pretrained(FOLDER), and give that folder"
            )
        if found != stage:
            raise PreflightError(
                f"the checkpoint {definite} is {_NAMES[found]}, which the stage `{found}` takes; "
                f"`{stage}` takes {_NAMES[stage]}"
            )
        _check_modules(folder)
        return cls(folder, definite, digest_files(folder, _names(folder)))


def libraries() -> dict[str, str]:
    """The versions that decide the bits of vectors; raises PreflightError where one is missing."""
    names = ("sentence-transformers", "transformers")
    try:
        found = {name: version(name) for name in names}
    except PackageNotFoundError:
        found = {names[0]: "0"}
    if int(found[names[0]].partition(".")[0]) < 6:
        raise PreflightError(
            "encoders need the package sentence-transformers, 6 or later, here and on workers: "
            "pip install '.[encoders]'"
        )
    return found


def _names(folder: str) -> list[str]:
    """The files that are read, in one format of weights."""
    names = sorted({name for pattern in _FILES for name in glob(pattern, root_dir=folder)})
    safe = {name.replace(SAFETENSORS, PICKLED) for name in names if name.endswith(SAFETENSORS)}
    return [name for name in names if name not in safe]


def _stage_of(folder: str) -> str | None:
    """The stage that takes a model; None where its files do not say what it is."""
    saved, config = _read(folder, PROMPTS), _read(folder, CONFIG)
    classes: list[str] = config.get("architectures") or [""]
    if "HF_ColBERT" in classes or "query_prefix" in saved:
        return "late"
    if os.path.isfile(os.path.join(folder, SENTENCE_TRANSFORMERS)):
        return _STAGES.get(saved.get("model_type", "SentenceTransformer"))
    return "mono" if classes[0].endswith("ForSequenceClassification") else None


def _check_modules(folder: str) -> None:
    """Raises PreflightError for a module of the checkpoint's own code, and where a file is
    missing.
    """
    path = os.path.join(folder, SENTENCE_TRANSFORMERS)
    modules = read_json(list[dict[str, Any]], path) if os.path.isfile(path) else [{}]
    routes: Mapping[str, Any] = _read(folder, _ROUTER).get("types", {})
    for kind in (*(module.get("type", _OWN_MODULES[0]) for module in modules), *routes.values()):
        if not str(kind).startswith(_OWN_MODULES):
            raise PreflightError(
                f"{folder} has the module {kind!r:.100}, code of its own, which is never run: "
                "without it vectors would be others. Give a model of sentence-transformers' modules"
            )
    for name in routes:
        if not os.path.isdir(os.path.join(folder, name)):
            raise PreflightError(
                f"{folder} lacks {name}, which {_ROUTER} names; of a store only the modules that "
                f"{SENTENCE_TRANSFORMERS} names are copied. Give the whole folder on this machine, "
                "or the Hugging Face id"
            )
    if not routes:
        weight_files(os.path.join(folder, str(modules[0].get("path", ""))))


def _read(folder: str, name: str) -> Mapping[str, Any]:
    path = os.path.join(folder, name)
    return read_json(dict[str, Any], path) if os.path.isfile(path) else {}
