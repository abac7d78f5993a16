"""Finds a checkpoint by its reference, and copies it here from a hub or an object store if
necessary.
"""

import os
import re
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path

from beamrank.errors import PreflightError, TemporaryError
from beamrank.ranking.input_layout import TEXT_COUNTS
from beamrank.storage import files as storage
from beamrank.storage.digested import RemoteFile, remote_files
from beamrank.storage.disk_cache import cache_folder, fetched
from beamrank.storage.documents import digest
from beamrank.storage.stores import is_unanswered
from beamrank.storage.urls import hide_credentials, refuse_credentials
from models.checkpoints.files import (
    CHECKPOINT_FILES,
    CONFIG,
    MODULE_FILES,
    PARTS,
    PICKLED,
    PICKLED_PARTS,
    SENTENCE_TRANSFORMERS,
    WEIGHTS,
    first_format,
    module_folders,
)

EMBEDDED = "embedded:"
EMBEDDED_PAIR = tuple(f"{EMBEDDED}{kind}" for kind in TEXT_COUNTS)
_KIND = "checkpoints"
_HUB_REFERENCE = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")


def locate(reference: str, files: Sequence[str] = CHECKPOINT_FILES) -> tuple[str, str]:
    """Brings a checkpoint, or some of its files, to this machine.

    Args:
        reference: as for `resolve_checkpoint`.
        files: which files are needed; `TOKENIZER_FILES` leaves the weights where they are.

    Returns:
        The folder, and the definite reference: a Hugging Face id with its commit, a folder with its
        absolute path.
    """
    refuse_credentials(reference, "the checkpoint")
    if reference.startswith(EMBEDDED):
        return _embedded(reference), reference
    if storage.is_remote(reference):
        return _copied(storage.absolute(reference), files), reference
    folder = storage.absolute(reference)
    if os.path.isdir(folder):
        return folder, folder
    named = _HUB_REFERENCE.fullmatch(reference)
    if named is None:
        raise PreflightError(
            f"there is no checkpoint folder {folder}, and {reference!r} is not a Hugging Face id "
            "(org/name@revision), a URL, embedded:mono or embedded:duo"
        )
    return _downloaded(named["repository"], named["revision"], files)


def hub_id(reference: str) -> str | None:
    """The Hugging Face id in a definite reference; None for an embedded checkpoint, a folder or a
    URL.
    """
    named = _HUB_REFERENCE.fullmatch(reference)
    return named["repository"] if named else None


def _embedded(reference: str) -> str:
    folder = Path(str(resources.files("models"))) / "embedded" / reference.removeprefix(EMBEDDED)
    if not (folder / CONFIG).is_file():
        raise PreflightError(
            f"this installation has no checkpoint {reference!r}: it has "
            f"{', '.join(EMBEDDED_PAIR)}. Give one of them, a folder or a Hugging Face id"
        )
    return str(folder)


def _downloaded(repository: str, revision: str | None, files: Sequence[str]) -> tuple[str, str]:
    from huggingface_hub import snapshot_download

    name = repository if revision is None else f"{repository}@{revision}"
    try:
        patterns = [name for name in files if name not in (PICKLED, PICKLED_PARTS)]
        folder = snapshot_download(repository, revision=revision, allow_patterns=patterns)
        commit = Path(folder).name
        weights = first_format(os.listdir(folder))
        if PICKLED in files and (weights is None or weights.startswith(PICKLED)):
            folder = snapshot_download(repository, revision=commit, allow_patterns=list(files))
    except (OSError, ValueError) as error:
        at_revision = f" --revision {revision}" if revision else ""
        kind = TemporaryError if is_unanswered(error) else PreflightError
        raise kind(
            f"cannot get the checkpoint {name}: no such folder exists here, and Hugging Face gave "
            f"{hide_credentials(repr(error))}. Check the id, the network, and HF_TOKEN if it is "
            "private or gated; on a machine without network, download it elsewhere (`hf download "
            f"{repository}{at_revision} --local-dir DIR`) and give the folder"
        ) from error
    return folder, f"{repository}@{commit}"


def _copied(url: str, files: Sequence[str]) -> str:
    """Copies a folder once a machine; its state at the store (sizes, checksums) finds the copy
    again.
    """
    state = _state(url, files)

    def fetch(folder: Path) -> None:
        for name in state:
            (folder / name).parent.mkdir(exist_ok=True)
            storage.download(storage.join(url, name), str(folder / name))
        copied = {name: (folder / name).stat().st_size for name in state}
        if _state(url, files) != state or copied != {
            name: file.size_bytes for name, file in state.items()
        }:
            raise PreflightError(
                f"the checkpoint {url} changed while it was copied: run the same command again"
            )

    try:
        return str(fetched(_KIND, digest([url, state]), fetch))
    except OSError as error:
        raise PreflightError(
            f"cannot copy the checkpoint {url} to {cache_folder(_KIND)}: {error}"
        ) from error


def _state(url: str, files: Sequence[str]) -> dict[str, RemoteFile]:
    """The files of a checkpoint at a store, each with its size and version there."""
    try:
        remote = remote_files(url)
        names = {
            name
            for name in remote
            if any(fnmatchcase(name, pattern) for pattern in _of_one_format(files, remote))
        }
        if SENTENCE_TRANSFORMERS in names:
            for folder in module_folders(storage.join(url, SENTENCE_TRANSFORMERS)):
                below = remote_files(storage.join(url, folder))
                of_module = {
                    f"{folder}/{name}": below[name] for name in set(MODULE_FILES) & below.keys()
                }
                remote, names = remote | of_module, names | of_module.keys()
    except OSError as error:
        raise PreflightError(f"cannot list the checkpoint {url}: {error}") from error
    if not remote:
        raise PreflightError(f"cannot list the checkpoint {url}: it does not exist. Check the URL")
    return {name: remote[name] for name in sorted(names)}


def _of_one_format(files: Sequence[str], names: Collection[str]) -> list[str]:
    """The files without weights in other formats than the one that is read."""
    weights = first_format(names)
    others = {*PARTS.values(), *WEIGHTS} - {weights, PARTS.get(weights or "")}
    return [name for name in files if name not in others]
