"""The parts of a conversion: each is made on its own, in any process, and they are written in order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from beamrank.commit.receipts import Receipt, StageFolder
from beamrank.formats.corpora import read_unit
from beamrank.formats.texts.units import CorpusUnit
from beamrank.join.schemas import special_tokens
from beamrank.records import BadRow
from contrib.tensorflow2019.examples.layout import (
    ExampleSettings,
    Relevant,
    Texts,
    examples_in_tables,
    lay_out_examples,
)
from contrib.tensorflow2019.examples.reader import StoredExamples
from contrib.tensorflow2019.examples.schemas import SCHEMAS
from contrib.tensorflow2019.examples.writer import WRITERS, Writer
from models.checkpoints.checkpoint import fetch_tokenizer
from models.tokenizers.base import Tokenizer

_SHOWN_BAD_ROWS = 5
# As many of a text as the tokenize stage stores.
MAX_TOKENS = 512
BATCH_TEXTS = 8192

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class BadRows:
    """How many rows could not be used, and the first of them."""

    count: int = 0
    first: list[BadRow] = field(default_factory=list)

    def add(self, bad: Sequence[BadRow], count: int | None = None) -> None:
        """Adds rows, or the first of `count` rows."""
        self.count += len(bad) if count is None else count
        self.first += bad[: _SHOWN_BAD_ROWS - len(self.first)]


class Written(NamedTuple):
    """A file of examples: how many it has, how many of them have label 1, and the rows that could not be used."""

    path: Path
    examples: int
    relevant: int
    bad: BadRows


class Part(Protocol):
    """A part of a conversion."""

    def tables(self, bad: BadRows) -> Iterator[pa.Table]:
        """Its examples, and the rows that cannot be used."""


@dataclass(frozen=True)
class StoredPart:
    """Examples of a file."""

    stored: StoredExamples

    def tables(self, bad: BadRows) -> Iterator[pa.Table]:
        found: list[BadRow] = []
        yield from self.stored.tables(found)
        bad.add(found)


@dataclass(frozen=True)
class TriplesPart:
    """A range of a file of triples: for each, the relevant passage with label 1, and the other one with label 0."""

    unit: CorpusUnit
    checkpoint: str
    settings: ExampleSettings

    def tables(self, bad: BadRows) -> Iterator[pa.Table]:
        tokenizer = open_tokenizer(self.checkpoint)
        orders = [[0, 1, 2], [0, 2, 1]] if self.settings.schema == "duo" else [[0, 1], [0, 2]]
        for batch in read_unit(self.unit, BATCH_TEXTS):
            bad.add(batch.bad)
            texts = [text for triple in batch.texts for text in triple.split("\t")]
            if not texts:
                continue
            distinct = {text: number for number, text in enumerate(dict.fromkeys(texts))}
            numbers = np.array([distinct[text] for text in texts]).reshape(-1, 3)
            rows = numbers[:, orders].reshape(len(numbers) * 2, -1)
            features = lay_out_examples(_texts(tokenizer, list(distinct)), rows, self.settings)
            features["label"] = pa.array(np.tile(np.array([1, 0], np.int32), len(numbers)))
            schema = SCHEMAS[self.settings.schema]
            yield pa.table([features[name] for name in schema.features], schema=schema.arrow(with_ids=False))


@dataclass(frozen=True)
class ShardPart:
    """A shard of a run's tokenize stage."""

    folder: StageFolder
    receipt: Receipt
    relevant: Relevant
    settings: ExampleSettings

    def tables(self, bad: BadRows) -> Iterator[pa.Table]:  # noqa: ARG002
        tokenized = self.folder.read_part(self.receipt)
        settings = replace(self.settings, special=special_tokens(tokenized.schema))
        yield from examples_in_tables(tokenized, self.relevant, settings)


@dataclass(frozen=True)
class WritePart:
    """Writes a part to a file."""

    to: str

    def __call__(self, numbered: tuple[Path, Part]) -> Written:
        """Writes a part to a path."""
        path, part = numbered
        writer: Writer | None = None
        count, relevant, bad = 0, 0, BadRows()
        for table in part.tables(bad):
            if writer is None:
                writer = WRITERS[self.to][1](path, table.schema)
            writer.write(table)
            count += table.num_rows
            relevant += int(table["label"].to_numpy().sum())
        if writer is not None:
            writer.close()
        return Written(path, count, relevant, bad)


def map_in_order(work: Callable[[Item], Result], items: Sequence[Item], processes: int) -> Iterator[Result]:
    """`map` in several processes; the results are in the order of the items."""
    if processes == 1 or len(items) == 1:
        yield from map(work, items)
        return
    with ProcessPoolExecutor(min(processes, len(items)), mp_context=get_context("spawn")) as pool:
        try:
            yield from pool.map(work, items)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def relevant_of(relevance: Mapping[str, Mapping[str, int]], query_ids: Sequence[str]) -> dict[str, set[str]]:
    """The relevant docs of some queries."""
    judged = ((query_id, relevance.get(query_id, {})) for query_id in query_ids)
    return {query_id: {doc_id for doc_id, level in docs.items() if level > 0} for query_id, docs in judged}


@lru_cache(maxsize=1)
def open_tokenizer(checkpoint: str) -> Tokenizer:
    """This process's tokenizer."""
    return fetch_tokenizer(checkpoint)


def _texts(tokenizer: Tokenizer, texts: Sequence[str]) -> Texts:
    ids = tokenizer.encode(texts, MAX_TOKENS).ids
    lengths = ids.value_lengths().to_numpy().astype(np.int64)
    tokens = ids.flatten().to_numpy()
    return Texts(np.append(tokens, tokens.dtype.type(0)), np.cumsum(lengths) - lengths, lengths)
