"""A short measurement on this machine, from which stages estimate their cost."""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa

from beamrank.config.run import RunConfig
from beamrank.errors import PreflightError
from beamrank.formats.corpora import list_units, read_unit
from beamrank.formats.texts.units import CorpusUnit
from beamrank.join.schemas import candidates_table, tokenized_schema, tokenized_table
from beamrank.machine import usable_threads
from beamrank.ranking.input_layout import Lengths
from beamrank.records import Doc, Topic
from beamrank.storage.streams import text_bytes
from models.checkpoints.checkpoint import Checkpoint, tokenizer_of
from models.reranker import Reranker, RerankerKind
from models.stages.likely import likely_candidates

# Spread evenly over the topics and the corpus. Batches are for threads: each must get work.
_TOPICS, _TOPICS_PER_THREAD = 24, 6
_UNITS = 8
_READ_DOCS = 16_000
_KEPT_DOCS = 2000
_WARM_DOCS = 2
_T = TypeVar("_T")


class Sample:
    """Some topics and docs of a run; they are read and tokenized on first use."""

    def __init__(
        self,
        config: RunConfig,
        topics: Sequence[Topic],
        checkpoints: Mapping[str, Checkpoint],
        max_doc_tokens: int,
    ) -> None:
        self.topics = _spread(topics, max(_TOPICS, _TOPICS_PER_THREAD * usable_threads(config.threads)))
        self.checkpoints = checkpoints
        self._config = config
        self._max_doc_tokens = max_doc_tokens

    @cached_property
    def _read(self) -> tuple[list[Doc], float, float]:
        """Docs, the seconds of reading them, and how many the corpus has, by the bytes of its files."""
        units = list_units(self._config.corpus)
        start = time.monotonic()
        chosen = _spread(units, _UNITS)
        most = _READ_DOCS // len(chosen)
        parts = [list(itertools.islice(_docs(unit), most)) for unit in chosen]
        docs = [doc for part in parts for doc in part]
        if not docs:
            raise PreflightError(f"the corpus {self._config.corpus.path} holds no doc that can be read")
        seconds = time.monotonic() - start
        if len(chosen) == len(units) and all(len(part) < most for part in parts):
            return docs, seconds, float(len(docs))
        corpus_bytes = sum(map(text_bytes, {unit.url for unit in units}))
        read_bytes = sum(len(doc.text.encode()) for doc in docs)
        return docs, seconds, len(docs) * max(1.0, corpus_bytes / max(1, read_bytes))

    @cached_property
    def docs(self) -> list[Doc]:
        """Those that are tokenized."""
        return _spread(self._read[0], _KEPT_DOCS)

    @property
    def corpus_docs(self) -> float:
        """How many docs the corpus has, about."""
        return self._read[2]

    @property
    def read_seconds(self) -> float:
        """The time of reading the whole corpus."""
        docs, seconds, corpus_docs = self._read
        return seconds / len(docs) * corpus_docs

    @cached_property
    def _tokens(self) -> tuple[pa.ListArray, float]:
        tokenizer = tokenizer_of(self._first_model)
        start = time.monotonic()
        tokens = tokenizer.encode([doc.text for doc in self.docs], self._max_doc_tokens).ids
        return tokens, time.monotonic() - start

    @property
    def tokenize_seconds(self) -> float:
        """The time of tokenizing one doc."""
        return self._tokens[1] / len(self.docs)

    @cached_property
    def _ranked(self) -> Lengths:
        """int64[topics, d], the docs that are probably the topics' candidates, best first."""
        tokenizer = tokenizer_of(self._first_model)
        queries = tokenizer.encode_queries([topic.text for topic in self.topics], self._max_doc_tokens).ids
        return likely_candidates(queries, self._tokens[0], self._config.stages[1].section.k / self.corpus_docs)

    @property
    def _first_model(self) -> Checkpoint:
        return next(iter(self.checkpoints.values()))

    @property
    def doc_lengths(self) -> Lengths:
        """int64[n], the tokens of docs that are probably candidates."""
        lengths = np.diff(self._tokens[0].offsets.to_numpy()).astype(np.int64)
        return cast(Lengths, lengths[self._ranked.ravel()])

    def _shard(self, name: str, chosen: Lengths) -> tuple[dict[str, list[str]], pa.Table]:
        """The docs of each topic, and a model's tokens of a shard with `chosen` docs, int64[topics, k]."""
        tokenizer = tokenizer_of(self.checkpoints[name])
        queries = tokenizer.encode_queries([topic.text for topic in self.topics], self._max_doc_tokens).ids
        query_ids = [topic.query_id for topic in self.topics]
        numbers, rows = np.unique(chosen, return_inverse=True)
        docs = tokenizer.encode([self.docs[number].text for number in numbers], self._max_doc_tokens).ids
        doc_ids = [[self.docs[number].doc_id for number in each] for each in chosen]
        schema, candidates = tokenized_schema(tokenizer), candidates_table(query_ids, doc_ids)
        table = tokenized_table(schema, query_ids, queries, candidates, docs, rows.ravel())
        return dict(zip(query_ids, doc_ids, strict=True)), table

    def seconds_per_input(self, name: str, kind: RerankerKind, docs: int, *, best: bool = False) -> float:
        """Seconds for one input of a stage: `docs` candidates of each topic, from all ranks or the best."""
        ranks = np.linspace(0, self._ranked.shape[1] - 1, min(docs, self._ranked.shape[1]))
        chosen = self._ranked[:, :docs] if best else self._ranked[:, ranks.astype(np.int64)]
        config = self._config
        reranker = Reranker(
            self.checkpoints[name].reference,
            kind,
            dtype=config.dtype,
            device=config.device,
            threads=config.threads,
            backend=config.backend,
            **config.input.model_dump(),
        )
        # A first call warms the model up.
        for some in (chosen[:, :_WARM_DOCS], chosen):
            received, table = self._shard(name, some)
            start = time.monotonic()
            _, counts = reranker.score_shard(table, received)
            seconds = time.monotonic() - start
        return seconds / max(1, counts.inferences)


def _docs(unit: CorpusUnit) -> Iterator[Doc]:
    for batch in read_unit(unit):
        yield from map(Doc, batch.doc_ids, batch.texts)


def _spread(items: Sequence[_T], count: int) -> list[_T]:
    """At most `count` of the items, evenly spread over them."""
    return [items[at * len(items) // count] for at in range(count)] if len(items) > count else list(items)
