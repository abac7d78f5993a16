"""Where a checkpoint's reference leads: to a folder on this machine, by way of a hub or an object store if need be."""

import os
import re
import shutil
import uuid
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import fasteners
import fsspec

from beamrank import storage
from beamrank.errors import PreflightError
from beamrank.fingerprint import digest

EMBEDDED = "embedded:"
CONFIG = "config.json"
TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
SENTENCE_TRANSFORMERS = "modules.json"
SAFETENSORS, PICKLED = "model.safetensors", "pytorch_model.bin"
SHARDED = tuple(f"{weights}.index.json" for weights in (SAFETENSORS, PICKLED))

_SMALL_FILES = (CONFIG, *TOKENIZER_FILES, SENTENCE_TRANSFORMERS, *SHARDED)
_HUB_REFERENCE = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
_COPIED_BYTES = 1 << 24


def locate(reference: str, digest_of: Callable[[str], str]) -> tuple[str, str]:
    """Brings a checkpoint to this machine.

    Args:
        reference: `embedded:mono`, `embedded:duo`, a folder, an fsspec URL, or a Hugging Face id, `@revision` or not.
        digest_of: gives the digest of a checkpoint's folder, which names its place in the cache.

    Returns:
        The folder, and the reference made definite: a Hugging Face id with its commit, a folder with its whole path.

    Raises:
        PreflightError: there is nothing there, or it cannot be reached.
    """
    if reference.startswith(EMBEDDED):
        return _embedded(reference), reference
    if storage.is_remote(reference):
        return _copied(storage.absolute(reference), digest_of), reference
    folder = storage.absolute(reference)
    if os.path.isdir(folder):
        return folder, folder
    named = _HUB_REFERENCE.fullmatch(reference)
    if named is None:
        raise PreflightError(
            f"there is no checkpoint folder {folder}, and {reference!r} is no Hugging Face id (org/name@revision), no "
            "URL, and not embedded:mono or embedded:duo"
        )
    return _downloaded(named["repository"], named["revision"])


def cache_folder() -> Path:
    """Where checkpoints from object stores are kept: BEAMRANK_CACHE, or ~/.cache/beamrank."""
    return Path(os.environ.get("BEAMRANK_CACHE") or Path.home() / ".cache" / "beamrank").absolute() / "checkpoints"


def _embedded(reference: str) -> str:
    folder = Path(str(files("models"))) / "embedded" / reference.removeprefix(EMBEDDED)
    if not (folder / CONFIG).is_file():
        raise PreflightError(
            f"this installation has no checkpoint {reference}: {folder} is not there. Give a folder or a "
            "Hugging Face id"
        )
    return str(folder)


def _downloaded(repository: str, revision: str | None) -> tuple[str, str]:
    from huggingface_hub import snapshot_download

    name = repository if revision is None else f"{repository}@{revision}"
    try:
        folder = snapshot_download(repository, revision=revision, allow_patterns=[*_SMALL_FILES, SAFETENSORS])
        commit = Path(folder).name
        if not (Path(folder) / SAFETENSORS).exists():
            folder = snapshot_download(repository, revision=commit, allow_patterns=[*_SMALL_FILES, PICKLED])
    except (OSError, ValueError) as error:
        raise PreflightError(
            f"cannot get the checkpoint {name}: there is no such folder here, and Hugging Face gave {error!r}. Check "
            "the id and the network; on a machine without network, download it elsewhere (`hf download "
            f"{repository}{f' --revision {revision}' if revision else ''} --local-dir DIR`) and give the folder"
        ) from error
    return folder, f"{repository}@{commit}"


def _copied(url: str, digest_of: Callable[[str], str]) -> str:
    """Copies a folder once a machine; its state at the store (sizes, etags) finds the copy again."""
    state = _state(url)
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    pointer = cache / f"source-{digest([url, state])}"
    with fasteners.InterProcessLock(str(cache / ".lock")):
        if pointer.is_file() and (folder := cache / pointer.read_text()).is_dir():
            return str(folder)
        temporary = cache / f".{uuid.uuid4().hex}.tmp"
        try:
            temporary.mkdir()
            for name in state:
                with storage.open_binary(storage.join(url, name)) as source, open(temporary / name, "wb") as target:
                    shutil.copyfileobj(source, target, _COPIED_BYTES)
            folder = cache / digest_of(str(temporary))
            if not folder.is_dir():
                temporary.rename(folder)
            storage.replace(str(pointer), folder.name.encode())
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return str(folder)


def _state(url: str) -> dict[str, str]:
    """The files of a checkpoint at a store, each with what the store says of its content."""
    try:
        filesystem, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
        entries = {storage.name(entry["name"]): entry["name"] for entry in filesystem.ls(path, detail=True)}
        weights = SAFETENSORS if SAFETENSORS in entries else PICKLED
        wanted = sorted({*_SMALL_FILES, weights} & entries.keys())
        return {name: filesystem.ukey(entries[name]) for name in wanted}
    except Exception as error:
        raise PreflightError(
            f"cannot list the checkpoint {url}: {error!r}. Check the URL and your credentials"
        ) from error
