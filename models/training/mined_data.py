"""The data of a training on disk: mined once, then read from files that are mapped into memory.

A folder data-DIGEST holds it, named after everything that decides it. It is complete where it holds store.json, which
has the hash of each file; data that was changed or damaged since is made again.
"""

import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.digested import file_version
from beamrank.storage.documents import SHORT, checked_json, checked_record, digest
from models.tokenizers.bert import BertTokenizer
from models.training.config import TrainConfig
from models.training.data.examples import Source
from models.training.data.id_triples import TextsById, store_texts
from models.training.data.mining import mine
from models.training.data.pools import MinedSource, Pools
from models.training.data.tokens import DOCS, QUERIES, TokenRows, token_dtype
from models.training.data.triples import TriplesSource
from models.training.loop.distributed import Processes
from models.training.loop.resume_check import collection_files

_PREFIX, _TEMPORARY, _RECORD = "data-", ".data.tmp", "store.json"
# Raised when the same files come to give other arrays.
_RULES = 3


@dataclass(frozen=True)
class _Store:
    """Lines to report about the data, and the hashes of its files by name."""

    lines: list[str]
    files: dict[str, str]


_STORE = TypeAdapter(_Store)


def open_mined(
    config: TrainConfig, tokenizer: BertTokenizer, max_tokens: int, folder: Path, processes: Processes
) -> tuple[Source, str]:
    """The groups of a training, from its data in a folder; the first process mines what is not there yet.

    Triples of ids are streamed, and only their texts are in the folder.

    Returns:
        The groups, and a digest of the data.

    Raises:
        PreflightError: a file is missing or invalid, the corpus lacks docs, or nothing can be trained on.
    """
    target = folder / f"{_PREFIX}{_digest(config, tokenizer, max_tokens)[:SHORT]}"
    if processes.first and not _is_whole(target):
        _mine(config, tokenizer, max_tokens, target)
    processes.wait()
    dtype = token_dtype(tokenizer)
    store = _read_store(target)
    assert store is not None
    if config.data.triples is not None:
        texts_by_id, most = TextsById(target, dtype), config.data.max_bad_rows
        source: Source = TriplesSource(
            config.data.triples, config.seed, texts_by_id, store.lines, most, texts_by_id.trained_queries
        )
    else:
        texts = (TokenRows(target, QUERIES, dtype), TokenRows(target, DOCS, dtype))
        taught = config.data.teacher is not None
        pools = Pools.load(target)
        source = MinedSource(pools, texts, config.sampling, config.seed, taught=taught, lines=store.lines)
    return source, digest(store.files)


def remove_mined(folder: Path) -> None:
    """Removes the data in a folder, complete or not."""
    for path in [*folder.glob(f"{_PREFIX}*"), folder / _TEMPORARY]:
        shutil.rmtree(path, ignore_errors=True)


def _mine(config: TrainConfig, tokenizer: BertTokenizer, max_tokens: int, target: Path) -> None:
    remove_mined(target.parent)
    temporary = target.parent / _TEMPORARY
    temporary.mkdir(parents=True)
    if config.data.triples is not None:
        lines = store_texts(config.data, tokenizer, max_tokens, temporary)
    else:
        pools, lines = mine(config.data, config.sampling.ranks, config.folds, tokenizer, max_tokens, temporary)
        pools.save(temporary)
    (temporary / _RECORD).write_bytes(checked_json(asdict(_Store(lines, _hashes(temporary)))))
    temporary.rename(target)


def _is_whole(target: Path) -> bool:
    with suppress(OSError):
        store = _read_store(target)
        return store is not None and store.files == _hashes(target)
    return False


def _read_store(target: Path) -> _Store | None:
    """The record of the data in a folder; None if it is incomplete or damaged."""
    record = target / _RECORD
    return checked_record(_STORE, record.read_bytes()) if record.exists() else None


def _hashes(folder: Path) -> dict[str, str]:
    return {path.name: storage.sha256(str(path)) for path in sorted(folder.iterdir()) if path.name != _RECORD}


def _digest(config: TrainConfig, tokenizer: BertTokenizer, max_tokens: int) -> str:
    data = config.data
    files = [*collection_files(data.corpus, data.topics, data.qrels), data.run, data.teacher, data.triples]
    try:
        versions: dict[str, Any] = {url: file_version(url) for url in files if url is not None}
    except FileNotFoundError as error:
        raise PreflightError(f"a file of the training data was removed: {error}") from error
    settings = [data.model_dump(mode="json", exclude={"max_bad_rows"}), config.sampling.ranks]
    folds = config.folds and config.folds.model_dump()
    return digest([_RULES, settings, folds, tokenizer.digest, max_tokens, versions])
