"""Local files and folders that appear whole or not at all: written under a hidden name, then moved into place."""

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_folder(target: str | Path) -> Iterator[Path]:
    """A hidden, empty folder beside a target, renamed to it when the `with` block ends.

    The target must not exist, or be an empty folder. After an error nothing is left.
    """
    target = Path(target)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def temporary_beside(path: str) -> Iterator[str]:
    """A hidden name in a file's folder, which is made if needed. A file with that name is removed at the end."""
    folder, base = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".{base}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
    finally:
        Path(temporary).unlink(missing_ok=True)


def write_synced(path: str, chunks: Iterable[bytes]) -> None:
    """Writes a file that survives a power failure once its folder is synced too."""
    with open(path, "wb") as file:
        file.writelines(chunks)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: str) -> None:
    """Syncs the folder of a file."""
    descriptor = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
