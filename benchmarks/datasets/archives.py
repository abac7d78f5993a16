"""Archives of text files."""

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from beamrank.errors import PreflightError

# What damaged archives raise, then what whole archives of something else do.
_UNREADABLE = (
    *(OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile),
    *(ValueError, KeyError, ElementTree.ParseError),
)


@contextmanager
def reading(archive: str | Path, collection: str) -> Iterator[None]:
    """Names the archive in errors about its contents.

    Raises:
        PreflightError: the archive is damaged, or is not an archive of this collection.
    """
    try:
        yield
    except _UNREADABLE as error:
        raise PreflightError(
            f"{archive} cannot be read as an archive of {collection} ({type(error).__name__}: "
            f"{error}): download it again, or give its path"
        ) from error


def tar_files(archive: str | Path, suffix: str) -> dict[str, bytes]:
    """The content of each file with a suffix, by name, in the order of the archive: a tar.gz cannot
    be read out of order.

    Raises:
        ValueError: there is no such file.
    """
    contents = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.name.endswith(suffix) else None
            if file is not None:
                contents[member.name] = file.read()
    if not contents:
        raise ValueError(f"it holds no {suffix} files")
    return contents


def tar_texts(archive: str | Path, suffix: str) -> dict[str, str]:
    """The text of each file with a suffix, as `tar_files` reads them."""
    return {name: content.decode() for name, content in tar_files(archive, suffix).items()}
