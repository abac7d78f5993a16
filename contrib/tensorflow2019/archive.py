"""Checkpoints in the archives in which they were released: zip and tar.gz."""

import gzip
import io
import os
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from beamrank.errors import PreflightError
from beamrank.storage import files as storage

_ZIP, _TAR = ".zip", (".tar.gz", ".tgz")
_WANTED = re.compile(r"(?!\._).*\.(index|data-\d{5}-of-\d{5})|bert_config\.json|vocab\.txt")
_CHUNK_BYTES = 1 << 20
# Weights shrink by a tenth; BERT-large with Adam's moments has 4 GB.
_MOST_TIMES, _SMALL_BYTES, _MOST_BYTES = 20, 1 << 26, 1 << 34


@contextmanager
def unpacked(checkpoint: str) -> Iterator[str]:
    """A folder with the files of an archive, which lasts as long as the context; what is no archive is given back.

    Only the files of a checkpoint, bert_config.json and vocab.txt are unpacked, whatever folders of the archive they
    are in, and links are not.

    Raises:
        PreflightError: the archive is missing, damaged or unreasonably large, or holds several checkpoints or none.
    """
    if not checkpoint.endswith((_ZIP, *_TAR)) or storage.is_remote(checkpoint):
        yield checkpoint
        return
    with tempfile.TemporaryDirectory(prefix="beamrank-convert-") as folder:
        _unpack(storage.absolute(checkpoint), Path(folder))
        yield folder


def _unpack(path: str, folder: Path) -> None:
    try:
        for name, file in _members(path):
            target = folder / os.path.basename(name)
            if target.exists():
                raise PreflightError(f"{path} has several files {target.name}: unpack it, and give the folder of one")
            with open(target, "wb") as copy:
                shutil.copyfileobj(file, copy)
    except (OSError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile, tarfile.TarError) as error:
        raise PreflightError(
            f"cannot unpack {path} to {folder.parent} (TMPDIR chooses another place): {error or type(error).__name__}"
        ) from error
    if not any(folder.glob("*.index")):
        raise PreflightError(
            f"{path} does not hold a TensorFlow checkpoint: none of its files ends with .index. (The oldest format, "
            "one file without an index, is not read: load it with TensorFlow and save it again)"
        )


def _members(path: str) -> Iterator[tuple[str, IO[bytes]]]:
    """The wanted files of an archive, each to be read before the next one."""
    left = _Left(path)
    if path.endswith(_ZIP):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if _wanted(info.filename):
                    with archive.open(info) as file:
                        yield info.filename, io.BufferedReader(_Limited(file, left))
        return
    with gzip.open(path) as stream:
        limited = io.BufferedReader(_Limited(stream, left))
        with tarfile.open(fileobj=limited, mode="r|") as tar:
            for member in tar:
                if member.isreg() and _wanted(member.name) and (content := tar.extractfile(member)):
                    yield member.name, content
        # The checksum of the whole follows the archive's end.
        while limited.read(_CHUNK_BYTES):
            pass


def _wanted(name: str) -> bool:
    return _WANTED.fullmatch(os.path.basename(name)) is not None


class _Left:
    """How many bytes an archive may still give: a small one that gives many is a bomb."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._most = self._left = min(_MOST_BYTES, _SMALL_BYTES + _MOST_TIMES * os.path.getsize(path))

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise PreflightError(
                f"{self._path} holds more than {self._most:,} bytes, which no checkpoint in an archive of its size "
                "does. If it is one, unpack it, and give the folder"
            )


class _Limited(io.RawIOBase):
    """A file whose bytes count."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, left: _Left) -> None:
        self._file, self._left = file, left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Reads the next bytes, as many as are left to the archive."""
        content = self._file.read(len(buffer))
        self._left.take(len(content))
        buffer[: len(content)] = content
        return len(content)
