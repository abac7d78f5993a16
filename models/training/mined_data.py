"""The data of a training on disk: mined once, then read from files that are mapped into memory.

A folder data-DIGEST holds it, named after everything that decides it. It is complete where it holds store.json.
"""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from beamrank.digests import SHORT, digest
from beamrank.errors import PreflightError
from beamrank.storage.documents import parse_json
from beamrank.storage.file_states import file_version
from models.tokenizer.bert import BertTokenizer
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
_RULES = 2


def open_mined(
    config: TrainConfig, tokenizer: BertTokenizer, max_tokens: int, folder: Path, processes: Processes
) -> Source:
    """The groups of a training, from its data in a folder; the first process mines what is not there yet.

    Triples of ids are streamed, and only their texts are in the folder.

    Raises:
        PreflightError: a file is missing or invalid, the corpus lacks docs, or nothing can be trained on.
    """
    target = folder / f"{_PREFIX}{_digest(config, tokenizer, max_tokens)[:SHORT]}"
    lines = _read_lines(target)
    if lines is None and processes.first:
        _mine(config, tokenizer, max_tokens, target)
    processes.wait()
    dtype = token_dtype(tokenizer)
    found = lines or _read_lines(target) or ()
    if config.data.triples is not None:
        return TriplesSource(config.data.triples, config.seed, TextsById(target, dtype), found)
    texts = (TokenRows(target, QUERIES, dtype), TokenRows(target, DOCS, dtype))
    taught = config.data.teacher is not None
    return MinedSource(Pools.load(target), texts, config.sampling, config.seed, taught=taught, lines=found)


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
    record = {"lines": lines, "bytes": _sizes(temporary)}
    (temporary / _RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
    temporary.rename(target)


def _read_lines(target: Path) -> list[str] | None:
    """The lines to report about complete data; None if it is incomplete."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        record = parse_json((target / _RECORD).read_bytes())
        if record["bytes"] == _sizes(target):
            return list(record["lines"])
    return None


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.name != _RECORD}


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
