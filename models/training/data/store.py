"""The data of a training on disk: written once, then read from files that are mapped into memory.

A folder data-DIGEST holds it, named after everything that decides it. It is complete where it holds store.json, which
has the hash of each file; data that was changed or damaged since is made again.
"""

import math
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from beamrank.errors import PreflightError
from beamrank.formats.corpora import corpus_files
from beamrank.formats.files import find_files
from beamrank.formats.topics import topics_files
from beamrank.storage import files as storage
from beamrank.storage.digested import file_version
from beamrank.storage.documents import SHORT, checked_json, checked_record, digest
from models.tokenizers.bert import BertTokenizer
from models.training.config import DataConfig, DevConfig, TrainConfig
from models.training.data.groups import Source
from models.training.data.mining import mine
from models.training.data.pools import MinedSource, Pools
from models.training.data.pretraining import PassageSource
from models.training.data.texts import TextWriter, TokenTable, scan_passages
from models.training.data.triples import BLOCK, TriplesSource, store_triples

_PREFIX, _TEMPORARY, _RECORD = "data-", ".data.tmp", "store.json"
# Raised when the same files come to give other arrays.
_RULES = 5


@dataclass(frozen=True)
class _Record:
    """Lines to report about the data, and the hashes of its files by name."""

    lines: list[str]
    files: dict[str, str]


_RECORDS = TypeAdapter(_Record)


def data_files(data: DataConfig | DevConfig) -> list[str]:
    """All files of a section."""
    files = [] if data.corpus is None else corpus_files(data.corpus)
    files += [] if data.topics is None else topics_files(data.topics)
    files += [] if data.qrels is None else find_files(data.qrels)
    return [*files, *(url for name in ("run", "teacher", "triples") if (url := getattr(data, name, None)))]


class TrainingData:
    """The data of a training in a folder."""

    def __init__(
        self, config: TrainConfig, tokenizer: BertTokenizer, max_tokens: int, folder: Path, *, dry_run: bool
    ) -> None:
        """Finds the place of the data, by their settings and files; a dry run reads only the first triples."""
        self._config, self._tokenizer, self._max_tokens = config, tokenizer, max_tokens
        data, steps, batch_size = config.data, config.optimizer.steps, config.optimizer.batch_size
        blocks = None if steps is None else 1 if dry_run else math.ceil(steps * batch_size / (2 * BLOCK))
        self._needed = None if blocks is None or data.triples is None else blocks * BLOCK
        try:
            versions: dict[str, Any] = {url: file_version(url) for url in data_files(data)}
        except FileNotFoundError as error:
            raise PreflightError(f"a file of the training data was removed: {error}") from error
        settings = [data.model_dump(mode="json", exclude={"max_bad_rows"}), config.sampling.ranks]
        folds = config.folds and config.folds.model_dump()
        name = digest([_RULES, settings, folds, tokenizer.digest, max_tokens, self._needed, versions])[:SHORT]
        self._folder = folder / f"{_PREFIX}{name}"

    def write(self) -> None:
        """Writes what is not there yet.

        Raises:
            PreflightError: a file is missing or invalid, or the corpus lacks docs.
        """
        with suppress(OSError):
            store = self._record()
            if store is not None and store.files == _hashes(self._folder):
                return
        remove_data(self._folder.parent)
        temporary = self._folder.parent / _TEMPORARY
        temporary.mkdir(parents=True)
        config, data, writer = self._config, self._config.data, TextWriter(temporary, self._tokenizer, self._max_tokens)
        if data.triples is not None:
            lines = store_triples(data, writer, temporary, self._needed)
        elif data.topics is None:
            assert data.corpus
            lines = scan_passages(data.corpus, data.max_bad_rows, writer)
        else:
            pools, lines = mine(data, config.sampling.ranks, config.folds, writer)
            pools.save(temporary)
        (temporary / _RECORD).write_bytes(checked_json(asdict(_Record(lines, _hashes(temporary)))))
        temporary.rename(self._folder)

    def open(self) -> tuple[Source, TokenTable, str]:
        """The groups, their token ids, and a digest of the data.

        Raises:
            PreflightError: nothing can be trained on.
        """
        store, config, tokens = self._record(), self._config, TokenTable(self._folder)
        assert store is not None
        source: Source
        if config.data.triples is not None:
            source = TriplesSource(self._folder, config.seed, store.lines, self._needed)
        elif config.data.topics is None:
            room_tokens = self._max_tokens + 1 if config.pack else 0
            source = PassageSource(tokens.lengths(), room_tokens, config.seed, store.lines)
        else:
            taught, pools = config.data.teacher is not None, Pools.load(self._folder)
            source = MinedSource(pools, config.sampling, config.seed, taught=taught, lines=store.lines)
        return source, tokens, digest(store.files)

    def _record(self) -> _Record | None:
        """The record of the data; None if it is incomplete or damaged."""
        record = self._folder / _RECORD
        return checked_record(_RECORDS, record.read_bytes()) if record.exists() else None


def remove_data(folder: Path) -> None:
    """Removes the data in a folder, complete or not."""
    for path in [*folder.glob(f"{_PREFIX}*"), folder / _TEMPORARY]:
        shutil.rmtree(path, ignore_errors=True)


def _hashes(folder: Path) -> dict[str, str]:
    return {path.name: storage.sha256(str(path)) for path in sorted(folder.iterdir()) if path.name != _RECORD}
