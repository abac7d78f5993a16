"""The data of a training on disk: written once, then read from files that are mapped into memory.

A folder data-DIGEST holds it, named after everything that decides it. It is complete where it holds
store.json, which has the hash of each file; data that was changed or damaged since is made again.
"""

import math
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from beamrank.errors import PreflightError
from beamrank.formats.corpora import corpus_files
from beamrank.formats.files import input_files
from beamrank.formats.topics import topics_files
from beamrank.storage import files as storage
from beamrank.storage.digested import file_version
from beamrank.storage.documents import SHORT, Document, digest
from beamrank.storage.globs import find
from models.tokenizers.bert import BertTokenizer
from models.training.config import DataConfig, DevConfig, TrainConfig
from models.training.data.groups import GroupArrays, GroupSource
from models.training.data.mining import mine
from models.training.data.pretraining import PassageSource
from models.training.data.texts import TextWriter, TokenTable, scan_passages
from models.training.data.triples import BLOCK, store_triples

Source: TypeAlias = GroupSource | PassageSource
_PREFIX, _TEMPORARY, _RECORD = "data-", ".data.tmp", "store.json"
# Raised when the same files come to give other arrays.
_RULES = 7


@dataclass(frozen=True)
class _Record(Document):
    """Lines to report about the data, and the hashes of its files by name."""

    lines: list[str]
    files: dict[str, str]


@dataclass(frozen=True)
class TrainingData:
    """The data of a training: its groups, their token ids, lines to report about them, and their
    digest.
    """

    source: Source
    tokens: TokenTable
    lines: list[str]
    digest: str


def data_files(data: DataConfig | DevConfig) -> list[str]:
    """All files of a section."""
    files = [] if data.corpus is None else corpus_files(data.corpus)
    files += [] if data.topics is None else [file.url for file in topics_files(data.topics)]
    if data.qrels is not None:
        files += [file.url for file in input_files(data.qrels, "qrels file")]
    paths = filter(None, (getattr(data, name, None) for name in ("run", "teacher", "triples")))
    return [*files, *(url for path in paths for url in find(path) or [path])]


class DataFolder:
    """The store of a training's data."""

    def __init__(
        self,
        config: TrainConfig,
        tokenizer: BertTokenizer,
        max_tokens: int,
        folder: Path,
        *,
        dry_run: bool,
    ) -> None:
        """Finds the place of the data, by their settings and files; a dry run reads only the first
        triples.
        """
        self._config, self._tokenizer, self._max_tokens = config, tokenizer, max_tokens
        data, steps, batch_size = config.data, config.optimizer.steps, config.optimizer.batch_size
        self._needed: int | None = None
        if steps is not None and data.triples is not None:
            blocks = 1 if dry_run else math.ceil(steps * batch_size / (2 * BLOCK))
            self._needed = blocks * BLOCK
        try:
            versions = {url: file_version(url) for url in data_files(data)}
        except FileNotFoundError as error:
            raise PreflightError(f"a file of the training data was removed: {error}") from error
        settings = config.model_dump(
            mode="json", include={"data": True, "sampling": True, "folds": True}
        )
        settings["data"].pop("max_bad_rows")
        name = digest([_RULES, settings, tokenizer.digest, max_tokens, self._needed, versions])[
            :SHORT
        ]
        self._folder = folder / f"{_PREFIX}{name}"

    def write(self) -> None:
        """Writes what is not there yet."""
        with suppress(OSError):
            record = self._record()
            if record is not None and record.files == _hashes(self._folder):
                return
        remove_data(self._folder.parent)
        temporary = self._folder.parent / _TEMPORARY
        temporary.mkdir(parents=True)
        config, data, writer = (
            self._config,
            self._config.data,
            TextWriter(temporary, self._tokenizer, self._max_tokens),
        )
        groups = None
        if data.triples is not None:
            groups, lines = store_triples(data, writer, self._needed)
        elif data.topics is not None:
            groups, lines = mine(data, config.sampling, config.folds, writer)
        else:
            assert data.corpus
            lines = scan_passages(data.corpus, data.max_bad_rows, writer)
        writer.close()
        if groups is not None:
            groups.save(temporary)
        (temporary / _RECORD).write_bytes(_Record(lines, _hashes(temporary)).to_json())
        temporary.rename(self._folder)

    def open(self) -> TrainingData:
        """The data that were written."""
        record, config, tokens = self._record(), self._config, TokenTable(self._folder)
        assert record is not None
        source: Source
        if config.data.topics is None and config.data.triples is None:
            source = PassageSource(
                tokens.lengths(), self._max_tokens + 1 if config.pack else 0, config.seed
            )
        else:
            arrays = GroupArrays.load(self._folder)
            block, drawn = (BLOCK, 0) if config.data.triples else (None, config.sampling.drawn)
            source = GroupSource(arrays, config.seed, drawn, block)
            if len(arrays.queries) == self._needed:
                source.groups_per_epoch = None
        return TrainingData(source, tokens, record.lines, digest(record.files))

    def _record(self) -> _Record | None:
        """The record of the data; None if it is incomplete or damaged."""
        record = self._folder / _RECORD
        return _Record.from_json(record.read_bytes()) if record.exists() else None


def remove_data(folder: Path) -> None:
    """Removes the data in a folder, complete or not."""
    for path in [*folder.glob(f"{_PREFIX}*"), folder / _TEMPORARY]:
        shutil.rmtree(path, ignore_errors=True)


def _hashes(folder: Path) -> dict[str, str]:
    return {
        path.name: storage.sha256(str(path))
        for path in sorted(folder.iterdir())
        if path.name != _RECORD
    }
