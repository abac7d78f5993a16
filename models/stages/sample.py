"""A short measurement on this machine, from which stages estimate their cost."""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from beamrank.config.run import RunConfig
from beamrank.errors import PreflightError
from beamrank.formats.corpora import list_units, read_unit
from beamrank.ranking.input_layout import Lengths
from beamrank.records import Doc, Topic
from beamrank.tables.shard import as_mono, candidates_table, tokenized_schema, tokenized_table
from models.checkpoints.check import Checkpoint
from models.reranker import Reranker, RerankerKind
from models.stages.planning import threads_of
from models.tokenizer.registry import tokenizer_of

_TOPICS = 4
_READ_DOCS = 2000
_DOCS = 24


class Sample:
    """The first topics and docs of a run; they are read and tokenized on first use."""

    def __init__(
        self,
        config: RunConfig,
        topics: Sequence[Topic],
        checkpoints: Mapping[str, Checkpoint],
        max_doc_tokens: int,
    ) -> None:
        self.topics = topics
        self.checkpoints = checkpoints
        self._config = config
        self._max_doc_tokens = max_doc_tokens

    @cached_property
    def _read(self) -> tuple[list[Doc], float]:
        start = time.monotonic()
        docs = list(itertools.islice(_docs(self._config), _READ_DOCS))
        if not docs:
            raise PreflightError(f"the corpus {self._config.corpus.path} holds no doc that can be read")
        return docs, time.monotonic() - start

    @property
    def docs(self) -> list[Doc]:
        """The first docs of the corpus."""
        return self._read[0]

    @property
    def read_seconds(self) -> float:
        """The time of reading them."""
        return self._read[1]

    @property
    def corpus_bytes(self) -> int:
        """Their size."""
        return max(1, sum(len(doc.text.encode()) for doc in self.docs))

    @cached_property
    def _tokens(self) -> tuple[pa.ListArray, float]:
        tokenizer = tokenizer_of(self.checkpoints["mono"])
        start = time.monotonic()
        tokens = tokenizer.encode([doc.text for doc in self.docs], self._max_doc_tokens).ids
        return tokens, time.monotonic() - start

    @property
    def tokenize_seconds(self) -> float:
        """The time of tokenizing them."""
        return self._tokens[1]

    @property
    def doc_lengths(self) -> Lengths:
        """int64[n], their wordpieces."""
        lengths: Lengths = np.diff(self._tokens[0].offsets.to_numpy()).astype(np.int64)
        return lengths

    def _shard(self, kind: RerankerKind) -> tuple[pa.Table, pa.Table]:
        """The candidates and a model's tokens of a shard of the first topics, all with the same docs."""
        # A batch is a thread's: the sample must give work to all of them.
        topics = self.topics[: max(_TOPICS, threads_of(self._config))]
        tokenizer = tokenizer_of(self.checkpoints[kind])
        queries = tokenizer.encode_queries([topic.text for topic in topics], self._max_doc_tokens).ids
        query_ids = [topic.query_id for topic in topics]
        some = self.docs[:_DOCS]
        docs = tokenizer.encode([doc.text for doc in some], self._max_doc_tokens).ids
        candidates = candidates_table(query_ids, [[doc.doc_id for doc in some]] * len(topics))
        rows = np.tile(np.arange(len(some)), len(topics))
        return candidates, tokenized_table(tokenized_schema(tokenizer), query_ids, queries, candidates, docs, rows)

    def seconds_per_inference(self, kind: RerankerKind, k: int) -> float:
        """Seconds for one input of a model, over the first `k` docs; a first call warms the model up."""
        candidates, table = self._shard(kind)
        config = self._config
        reranker = Reranker(
            self.checkpoints[kind].reference,
            kind,
            dtype=config.dtype,
            device=config.device,
            threads=config.threads,
            backend=config.backend,
            **config.input.model_dump(),
        )
        before = as_mono(candidates)
        reranker.score_shard(table, k, before)
        start = time.monotonic()
        _, counts = reranker.score_shard(table, k, before)
        return (time.monotonic() - start) / max(1, counts.inferences)


def _docs(config: RunConfig) -> Iterator[Doc]:
    for unit in list_units(config.corpus):
        for batch in read_unit(unit):
            yield from map(Doc, batch.doc_ids, batch.texts)
