"""Where a checkpoint's reference leads: to a folder on this machine, by way of a hub or an object store if need be."""

import os
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from beamrank.digests import digest
from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.url_credentials import hide_credentials, refuse_credentials
from models.checkpoints.disk_cache import add_entry, cache_folder, exclusive, held_entry

EMBEDDED = "embedded:"
CONFIG = "config.json"
TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
SENTENCE_TRANSFORMERS = "modules.json"
SAFETENSORS, PICKLED = "model.safetensors", "pytorch_model.bin"
SHARDED = tuple(f"{weights}.index.json" for weights in (SAFETENSORS, PICKLED))

_KIND = "checkpoints"
_SMALL_FILES = (CONFIG, *TOKENIZER_FILES, SENTENCE_TRANSFORMERS, *SHARDED)
_HUB_REFERENCE = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")


def locate(reference: str, digest_of: Callable[[str], str]) -> tuple[str, str]:
    """Brings a checkpoint to this machine.

    Args:
        reference: `embedded:mono`, `embedded:duo`, a folder, an fsspec URL, or a Hugging Face id, `@revision` or not.
        digest_of: gives the digest of a checkpoint's folder, which names its place in the cache.

    Returns:
        The folder, and the reference made definite: a Hugging Face id with its commit, a folder with its whole path.

    Raises:
        ConfigError: the reference can carry a credential.
        PreflightError: there is nothing there, or it cannot be reached.
    """
    refuse_credentials(reference, "the checkpoint")
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
        at_revision = f" --revision {revision}" if revision else ""
        raise PreflightError(
            f"cannot get the checkpoint {name}: there is no such folder here, and Hugging Face gave "
            f"{hide_credentials(repr(error))}. Check the id and the network; on a machine without network, download it "
            f"elsewhere (`hf download {repository}{at_revision} --local-dir DIR`) and give the folder"
        ) from error
    return folder, f"{repository}@{commit}"


def _copied(url: str, digest_of: Callable[[str], str]) -> str:
    """Copies a folder once a machine; its state at the store (sizes, checksums) finds the copy again."""
    state = _state(url)
    source = cache_folder(_KIND) / f"source-{digest([url, state])}"

    def fetch(folder: Path) -> str:
        for name in state:
            storage.download(storage.join(url, name), str(folder / name))
        if _state(url) != state or any((folder / name).stat().st_size != state[name].size_bytes for name in state):
            raise PreflightError(f"the checkpoint {url} changed while it was copied: run the same command again")
        return digest_of(str(folder))

    try:
        with exclusive(source.with_name(f".{source.name}.lock")):
            folder = held_entry(_KIND, source.read_text()) if source.is_file() else None
            if folder is None:
                folder = add_entry(_KIND, fetch)
                storage.replace(str(source), folder.name.encode())
    except OSError as error:
        raise PreflightError(f"cannot copy the checkpoint {url} to {cache_folder(_KIND)}: {error}") from error
    return str(folder)


def _state(url: str) -> dict[str, storage.StoredFile]:
    """The files of a checkpoint at a store, each with what the store says of its content."""
    try:
        told = storage.stored_files(url)
    except OSError as error:
        raise PreflightError(f"cannot list the checkpoint {url}: {error}") from error
    if not told:
        raise PreflightError(f"cannot list the checkpoint {url}: there is nothing there. Check the URL")
    weights = SAFETENSORS if SAFETENSORS in told else PICKLED
    return {name: told[name] for name in sorted({*_SMALL_FILES, weights} & told.keys())}
