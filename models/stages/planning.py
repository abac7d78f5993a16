"""What stages are made from, the configuration with its checkpoints and device; and a sample that tells their cost."""

import itertools
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from beamrank.config.run import JobConfig, RunConfig
from beamrank.config.stages import ModelConfig
from beamrank.errors import PreflightError
from beamrank.formats.corpora import FORMATS, list_units, read_unit
from beamrank.formats.texts.units import CorpusUnit
from beamrank.join.schemas import candidates_table
from beamrank.machine import usable_cores, usable_threads
from beamrank.progress import Progress
from beamrank.ranking.input_layout import Lengths
from beamrank.records import Doc, Topic
from beamrank.storage.streams import text_bytes
from models.checkpoints.checkpoint import Checkpoint, resolve_checkpoint, tokenizer_of
from models.reranker import Reranker, RerankerKind, tokenize_shard
from models.scoring.backends.registry import Device

# Spread evenly over the topics and the corpus. Batches are for threads: each must get work.
_TOPICS, _TOPICS_PER_THREAD = 24, 12
_UNITS = 8
_READ_DOCS = 16_000
_TOKENIZED_DOCS = 2000
_WARM_DOCS = 2
_T = TypeVar("_T")


class PlanningProgress(Progress, Protocol):
    """Receives the progress of planning a run."""

    def bar(self, name: str, /) -> AbstractContextManager[Progress]:
        """The progress of a long operation."""


@dataclass(frozen=True)
class Planning:
    """The inputs of the stages of one run.

    Attributes:
        config: the configuration.
        corpus_digest: of its corpus.
        checkpoints: by the names of the stages.
        device: where models compute.
        progress: receives notes.
        builds: whether an index is built that does not exist; otherwise its digest stays empty.
    """

    config: RunConfig
    corpus_digest: str
    checkpoints: Mapping[str, Checkpoint]
    device: Device
    progress: PlanningProgress
    builds: bool = True


def threads_of(config: JobConfig) -> int:
    """The number of threads of a worker, for torch and Lucene alike."""
    return config.threads or usable_cores()


def resolve_checkpoints(config: RunConfig) -> dict[str, Checkpoint]:
    """The checkpoints of a configuration, by stage.

    Raises:
        PreflightError: one is missing, or does not fit the configuration.
    """
    models = [each for each in config.stages if isinstance(each.section, ModelConfig)]
    found = {}
    for name, kind, section in models:
        checkpoint = resolve_checkpoint(section.checkpoint, kind)
        checkpoint.check_length(config.input.max_length, config.input.truncation)
        checkpoint.check_weights()
        if checkpoint.doc_parts > 1 and getattr(section, "segments", None):
            raise PreflightError(
                f"the checkpoint {checkpoint.reference} cuts a doc into {checkpoint.doc_parts} parts itself, as it was "
                f"trained to: leave out {name}.segments"
            )
        found[name] = checkpoint
    return found


class Trial(NamedTuple):
    """A first stage that was tried on some topics: the seconds of one, and docs that it finds, if these are known."""

    seconds_a_topic: float = 0.0
    doc_ids: Collection[str] = ()


TryFirst: TypeAlias = Callable[[RunConfig, Sequence[Topic]], Trial]


class Sample:
    """Some topics and docs of a run, measured on this machine; they are read and tokenized on first use.

    The docs are candidates, which are longer than the mean of a corpus; where none is known, any.
    """

    def __init__(
        self,
        config: RunConfig,
        topics: Sequence[Topic],
        checkpoints: Mapping[str, Checkpoint],
        max_doc_tokens: int,
        try_first: TryFirst,
    ) -> None:
        self._topics = _spread(topics, max(_TOPICS, _TOPICS_PER_THREAD * usable_threads(config.threads)))
        self._checkpoints = checkpoints
        self._config = config
        self.max_doc_tokens = max_doc_tokens
        self._try_first = try_first

    @cached_property
    def first(self) -> Trial:
        """The first stage, tried on the topics."""
        return self._try_first(self._config, self._topics)

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
    def _candidates(self) -> list[Doc]:
        doc_ids = set(self.first.doc_ids)
        return [doc for doc in self._read[0] if doc.doc_id in doc_ids]

    @property
    def is_random(self) -> bool:
        """Whether the docs are any of the corpus, since no candidate is known."""
        return not self._candidates and not FORMATS[self._config.corpus.format].lists_candidates

    @cached_property
    def docs(self) -> list[Doc]:
        """Those that are tokenized, each once."""
        by_id = {doc.doc_id: doc for doc in self._candidates or self._read[0]}
        return _spread(list(by_id.values()), _TOKENIZED_DOCS)

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
        tokenizer = tokenizer_of(next(iter(self._checkpoints.values())))
        start = time.monotonic()
        tokens = tokenizer.encode([doc.text for doc in self.docs], self.max_doc_tokens).ids
        return tokens, time.monotonic() - start

    @property
    def tokenize_seconds(self) -> float:
        """The time of tokenizing one doc."""
        return self._tokens[1] / len(self.docs)

    @property
    def doc_lengths(self) -> Lengths:
        """int64[n], the tokens of the docs."""
        lengths: Lengths = np.diff(self._tokens[0].offsets.to_numpy()).astype(np.int64)
        return lengths

    def seconds_per_input(self, name: str, kind: RerankerKind, docs: int) -> float:
        """Seconds for one input of a stage, measured with so many docs for each topic."""
        config = self._config
        reranker = Reranker(
            self._checkpoints[name].reference,
            kind,
            dtype=config.dtype,
            device=config.device,
            threads=config.threads,
            backend=config.backend,
            kernel=config.kernel,
            **config.input.model_dump(),
        )
        # A first call warms the model up.
        for some in (_WARM_DOCS, docs):
            received = self._shared_out(min(some, len(self.docs)))
            table = self._shard(reranker, received)
            start = time.monotonic()
            _, counts = reranker.score_shard(table, received)
            seconds = time.monotonic() - start
        return seconds / max(1, counts.inferences)

    def _shared_out(self, docs: int) -> dict[str, list[str]]:
        """So many docs for each topic, all of them in use if there are enough topics."""
        step = max(1, len(self.docs) // (docs * len(self._topics)))
        numbers = iter(step * np.arange(docs * len(self._topics)) % len(self.docs))
        return {
            topic.query_id: [self.docs[number].doc_id for number in itertools.islice(numbers, docs)]
            for topic in self._topics
        }

    def _shard(self, reranker: Reranker, received: Mapping[str, Sequence[str]]) -> pa.Table:
        texts = {doc.doc_id: doc.text for doc in self.docs}
        needed = {doc_id: texts[doc_id] for doc_ids in received.values() for doc_id in doc_ids}
        candidates = candidates_table(list(received), list(received.values()))
        return tokenize_shard(reranker.tokenizer, dict(self._topics), candidates, needed, self.max_doc_tokens)


def _docs(unit: CorpusUnit) -> Iterator[Doc]:
    for batch in read_unit(unit):
        yield from map(Doc, batch.doc_ids, batch.texts)


def _spread(items: Sequence[_T], count: int) -> list[_T]:
    """At most `count` of the items, evenly spread over them."""
    return [items[at * len(items) // count] for at in range(count)] if len(items) > count else list(items)
