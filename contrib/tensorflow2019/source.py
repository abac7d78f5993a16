"""Finds an original checkpoint's files: TensorFlow's own, bert_config.json and vocab.txt; also in
zip and tar.gz.
"""

import gzip
import os
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from beamrank.errors import ConfigError, PreflightError
from beamrank.storage import files as storage
from contrib.tensorflow2019.tensor_bundle import INDEX_SUFFIX

SPECIAL_TOKENS = {
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
}

_FILE_OF_CHECKPOINT = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_STEP = re.compile(r"-(\d+)\.index$")
_NO_INDEX = (
    "none of its files ends with .index. (The oldest format, one file without an index, is not "
    "read: load it with TensorFlow and save it again)"
)
_ZIP, _TAR = ".zip", (".tar.gz", ".tgz")
_WANTED = re.compile(r"(?!\._).*\.(index|data-\d{5}-of-\d{5})|bert_config\.json|vocab\.txt")
_CHUNK_BYTES = 1 << 20
# Weights shrink by a tenth; BERT-large with Adam's moments has 4 GB.
_MOST_TIMES, _SMALL_BYTES, _MOST_BYTES = 20, 1 << 26, 1 << 34


NewFolder = Annotated[str, typer.Option(help="The folder to write; must not exist, or be empty.")]


@dataclass(frozen=True)
class Source:
    """An original checkpoint's files.

    Attributes:
        prefix: the common beginning of the names of the TensorFlow files.
        config: bert_config.json.
        vocabulary: vocab.txt.
    """

    prefix: str
    config: str
    vocabulary: str


def find_source(
    checkpoint: str, config: str | None = None, vocabulary: str | None = None
) -> Source:
    """Finds the files of a checkpoint.

    Args:
        checkpoint: a prefix such as `model.ckpt-100000`, one of its files, or a folder, whose last
            step is taken.
        config: bert_config.json; by default the one beside the checkpoint.
        vocabulary: vocab.txt; by default the one beside the checkpoint.

    Raises:
        ConfigError: a path is a URL.
        PreflightError: the checkpoint does not exist, or a folder has several and none is the last.
    """
    for path in filter(None, (checkpoint, config, vocabulary)):
        if storage.is_remote(path):
            raise ConfigError(f"only files on this machine are converted: copy {path} here first")
    path = storage.absolute(checkpoint)
    prefix = _last_step(Path(path)) if os.path.isdir(path) else _FILE_OF_CHECKPOINT.sub("", path)
    if not os.path.isfile(prefix + INDEX_SUFFIX):
        raise PreflightError(
            f"there is no TensorFlow checkpoint {checkpoint}: {prefix}{INDEX_SUFFIX} does not "
            "exist. Give a folder, or the common beginning of the names of the checkpoint's "
            "files, such as output/model.ckpt-100000"
        )
    beside = storage.parent(prefix)
    return Source(
        prefix=prefix,
        config=storage.absolute(config or storage.join(beside, "bert_config.json")),
        vocabulary=storage.absolute(vocabulary or storage.join(beside, "vocab.txt")),
    )


def empty_place(output: str) -> Path:
    """The folder to write; raises an error where it is a URL, or holds something."""
    if storage.is_remote(output):
        raise ConfigError(
            f"files are converted on this machine: give a local --output, and copy it to {output}"
        )
    target = Path(storage.absolute(output))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise PreflightError(
            f"{target} exists and is not an empty folder: give another --output, or remove it"
        )
    return target


def check_vocabulary(path: str, vocab_size: int) -> tuple[str, ...]:
    """Warnings about vocab.txt.

    Raises:
        PreflightError: it does not exist, or cannot be the checkpoint's.
    """
    try:
        tokens = Path(path).read_text(encoding="utf-8").rstrip("\n").split("\n")
    except OSError as error:
        raise PreflightError(
            f"cannot read {path}: {error.strerror}. Give the vocab.txt that the checkpoint was "
            "trained with: --vocab"
        ) from error
    except UnicodeDecodeError as error:
        raise PreflightError(f"{path} is not UTF-8 text: {error}") from error
    known = {token.strip() for token in tokens}
    missing = [token for token in SPECIAL_TOKENS.values() if token not in known]
    sizes = f"has {len(tokens):,} tokens, and the checkpoint knows {vocab_size:,}"
    if missing or len(tokens) > vocab_size:
        wrong = f"lacks {', '.join(missing)}" if missing else sizes
        raise PreflightError(
            f"{path} {wrong}: give the vocab.txt that the checkpoint was trained with: --vocab"
        )
    warnings = []
    if len(tokens) < vocab_size:
        warnings.append(
            f"{os.path.basename(path)} {sizes}: is it the one that it was trained with?"
        )
    if any(token != token.lower() for token in known - {*SPECIAL_TOKENS.values(), "[MASK]"}):
        warnings.append(
            f"{os.path.basename(path)} has tokens with capitals, and texts are lower-cased, as "
            "the code of 2019 does: set do_lower_case to false in tokenizer_config.json if this "
            "model was trained on cased text"
        )
    return tuple(warnings)


def _last_step(folder: Path) -> str:
    def step(path: Path) -> int:
        match = _STEP.search(path.name)
        return int(match[1]) if match else -1

    indexes = sorted(folder.glob(f"*{INDEX_SUFFIX}"))
    if not indexes:
        raise PreflightError(f"there is no TensorFlow checkpoint in {folder}: {_NO_INDEX}")
    last = max(map(step, indexes))
    newest = [path for path in indexes if step(path) == last]
    if len(newest) > 1:
        names = ", ".join(path.name for path in newest)
        raise PreflightError(
            f"{folder} has several checkpoints, and none is the last: {names}. Give one of them"
        )
    return str(newest[0]).removesuffix(INDEX_SUFFIX)


@contextmanager
def unpacked(checkpoint: str) -> Iterator[str]:
    """A folder with the files of an archive, which lasts as long as the context; what is no archive
    is given back.

    Only the files of a checkpoint, bert_config.json and vocab.txt are unpacked, whatever folders of
    the archive they are in, and links are not.

    Raises:
        PreflightError: the archive is missing, damaged or unreasonably large, or holds several
            checkpoints or none.
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
                raise PreflightError(
                    f"{path} has several files {target.name}: unpack it, and give the folder of one"
                )
            with open(target, "wb") as copy:
                shutil.copyfileobj(file, copy)
    except (
        OSError,
        EOFError,
        RuntimeError,
        zlib.error,
        zipfile.BadZipFile,
        tarfile.TarError,
    ) as error:
        raise PreflightError(
            f"cannot unpack {path} to {folder.parent} (TMPDIR chooses another place): "
            f"{error or type(error).__name__}"
        ) from error
    if not any(folder.glob("*.index")):
        raise PreflightError(f"{path} does not hold a TensorFlow checkpoint: {_NO_INDEX}")


def _members(path: str) -> Iterator[tuple[str, Any]]:
    """The wanted files of an archive, each to be read before the next one."""
    limited: Any = _Limited(path)
    if path.endswith(_ZIP):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if _is_wanted(info.filename):
                    with archive.open(info) as limited.file:
                        yield info.filename, limited
        return
    with gzip.open(path) as limited.file:
        with tarfile.open(fileobj=limited, mode="r|") as tar:
            for member in tar:
                if (
                    member.isreg()
                    and _is_wanted(member.name)
                    and (content := tar.extractfile(member))
                ):
                    yield member.name, content
        # The checksum of the whole follows the archive's end.
        while limited.read(_CHUNK_BYTES):
            pass


def _is_wanted(name: str) -> bool:
    return _WANTED.fullmatch(os.path.basename(name)) is not None


class _Limited:
    """Reads `file`, up to the bytes that an archive of its size may give: a small one that gives
    many is a bomb.
    """

    file: Any

    def __init__(self, path: str) -> None:
        self._path = path
        self._most = self._left = min(
            _MOST_BYTES, _SMALL_BYTES + _MOST_TIMES * os.path.getsize(path)
        )

    def read(self, size: int) -> bytes:
        content: bytes = self.file.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise PreflightError(
                f"{self._path} holds more than {self._most:,} bytes, which no checkpoint in an "
                "archive of its size does. If it is one, unpack it, and give the folder"
            )
        return content
