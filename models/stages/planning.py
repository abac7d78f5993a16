"""What stages are made from, the configuration with its checkpoints and device; and a sample that
tells their cost.
"""

import itertools
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from beamrank.config.run import JobConfig, RunConfig
from beamrank.config.stages import OF_TOPICS, ModelConfig
from beamrank.errors import PreflightError
from beamrank.formats.corpora import FORMATS, CorpusConfig, list_units, read_unit
from beamrank.formats.texts.units import CorpusUnit
from beamrank.join.schemas import candidates_table
from beamrank.machine import usable_cores, usable_threads
from beamrank.notes import Progress
from beamrank.ranking.input_layout import Lengths
from beamrank.records import Doc, Topic
from beamrank.storage.streams import text_bytes
from models.checkpoints.checkpoint import Checkpoint, resolve_checkpoint
from models.reranker import Reranker, tokenize_shard
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
        tokens: the stages that make the tokens of others, by the names of these.
        before: the stages that rank before the one that is made, in order.
    """

    config: RunConfig
    corpus_digest: str
    checkpoints: Mapping[str, Checkpoint]
    device: Device
    progress: PlanningProgress
    builds: bool = True
    tokens: Mapping[str, str] = field(default_factory=dict)
    before: Sequence[Any] = ()


def threads_of(config: JobConfig) -> int:
    """The number of threads of a worker, for torch and Lucene alike."""
    return config.threads or usable_cores()


def resolve_checkpoints(config: RunConfig) -> dict[str, Checkpoint]:
    """The checkpoints by stage; raises PreflightError where one is missing, or does not fit the
    configuration.
    """
    models = [each for each in config.stages if isinstance(each.section, ModelConfig)]
    found = {}
    for name, kind, section in models:
        checkpoint = resolve_checkpoint(
            section.checkpoint, kind, getattr(section, "instruction", None), section.options
        )
        checkpoint.check_length(config.input.max_length, config.input.truncation)
        checkpoint.check_weights()
        if checkpoint.doc_parts > 1 and getattr(section, "segments", None):
            raise PreflightError(
                f"the checkpoint {checkpoint.reference} cuts a doc into {checkpoint.doc_parts} "
                f"parts itself, as it was trained to: leave out {name}.segments"
            )
        found[name] = checkpoint
    return found


class Trial(NamedTuple):
    """A first stage that was tried on some topics: the seconds of one, and docs that it finds, if
    these are known.
    """

    seconds_a_topic: float = 0.0
    doc_ids: Collection[str] = ()


@dataclass(frozen=True)
class Sample:
    """What some topics and docs of a run take on this machine.

    The docs are candidates, which are longer than the mean of a corpus; where none is known, any.

    Attributes:
        seconds_a_topic: of the first stage.
        is_random: whether the docs are any of the corpus.
        corpus_docs: how many docs the corpus has, about, by the bytes of its files.
        read_seconds: the time of reading the whole corpus.
        tokenize_seconds: the time of tokenizing one doc.
        doc_lengths: int64[n], the tokens of the docs.
        seconds_per_input: of each stage with a model, by its name.
    """

    seconds_a_topic: float = 0.0
    is_random: bool = False
    corpus_docs: float = 0.0
    read_seconds: float = 0.0
    tokenize_seconds: float = 0.0
    doc_lengths: Lengths = field(default_factory=lambda: np.zeros(1, np.int64))
    seconds_per_input: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        config: RunConfig,
        topics: Sequence[Topic],
        stages: Sequence[Any],
        first: Trial | None = None,
    ) -> Self:
        """Measures stages of a plan, the first and those that make tokens among them; `first` is
        what is known of it.

        Raises:
            PreflightError: the corpus holds no doc that can be read.
        """
        topics = _spread(topics, max(_TOPICS, _TOPICS_PER_THREAD * usable_threads(config.threads)))
        trial = first or stages[0].trial(topics)
        tokenizing = [stage for stage in stages if stage.does == "join"]
        if not tokenizing:
            return cls(trial.seconds_a_topic)
        docs, seconds, corpus_docs = _read(config.corpus)
        found = set(trial.doc_ids)
        candidates = [doc for doc in docs if doc.doc_id in found]
        texts = dict(_spread(list(dict(candidates or docs).items()), _TOKENIZED_DOCS))
        most = max(stage.max_doc_tokens for stage in tokenizing)
        tokenizer = tokenizing[0].tokenizer
        start = time.monotonic()
        lengths = np.diff(
            tokenizer.encode(list(texts.values()), most).ids.offsets.to_numpy()
        ).astype(np.int64)
        return cls(
            trial.seconds_a_topic,
            not candidates and not FORMATS[config.corpus.format].lists_candidates,
            corpus_docs,
            seconds / len(docs) * corpus_docs,
            (time.monotonic() - start) / len(texts),
            lengths,
            {
                each.name: _seconds(config, each, topics, texts, most)
                for each in stages
                if each.sample_docs
            },
        )


def _read(corpus: CorpusConfig) -> tuple[list[Doc], float, float]:
    """Docs, the seconds of reading them, and how many the corpus has."""
    units = list_units(corpus)
    start = time.monotonic()
    chosen = _spread(units, _UNITS)
    most = _READ_DOCS // len(chosen)
    parts = [list(itertools.islice(_docs(unit), most)) for unit in chosen]
    docs = [doc for part in parts for doc in part]
    if not docs:
        raise PreflightError(f"the corpus {corpus.path} holds no doc that can be read")
    seconds = time.monotonic() - start
    if len(chosen) == len(units) and all(len(part) < most for part in parts):
        return docs, seconds, float(len(docs))
    corpus_bytes = sum(map(text_bytes, {unit.url for unit in units}))
    read_bytes = sum(len(doc.text.encode()) for doc in docs)
    return docs, seconds, len(docs) * max(1.0, corpus_bytes / max(1, read_bytes))


def _docs(unit: CorpusUnit) -> Iterator[Doc]:
    for batch in read_unit(unit):
        yield from map(Doc, batch.doc_ids, batch.texts)


def _seconds(
    config: RunConfig,
    stage: Any,
    topics: Sequence[Topic],
    texts: Mapping[str, str],
    max_doc_tokens: int,
) -> float:
    """Seconds for one input of a stage's model, measured with `sample_docs` for each topic."""
    options = {
        name: getattr(config, name) for name in ("dtype", "device", "threads", "backend", "kernel")
    }
    # Of the topics', that of the card stands in.
    instruction = None if stage.instruction == OF_TOPICS else stage.instruction
    options |= {"instruction": instruction, **stage.options, **config.input.model_dump()}
    reranker = Reranker(stage.checkpoint, stage.kind, **options)
    # A first call warms the model up.
    for docs in (_WARM_DOCS, stage.sample_docs):
        received = shared_out(topics, list(texts), min(docs, len(texts)))
        candidates = candidates_table(list(received), list(received.values()))
        needed = {doc_id: texts[doc_id] for doc_ids in received.values() for doc_id in doc_ids}
        table = tokenize_shard(reranker.tokenizer, dict(topics), candidates, needed, max_doc_tokens)
        start = time.monotonic()
        _, counts = reranker.score_shard(table, received)
        seconds = time.monotonic() - start
    return seconds / max(1, counts.inferences)


def shared_out(topics: Sequence[Topic], doc_ids: Sequence[str], docs: int) -> dict[str, list[str]]:
    """So many docs for each topic, all of them in use if there are enough topics."""
    step = max(1, len(doc_ids) // (docs * len(topics)))
    places = (step * np.arange(docs * len(topics)) % len(doc_ids)).reshape(len(topics), docs)
    return {
        topic.query_id: [doc_ids[place] for place in row]
        for topic, row in zip(topics, places, strict=True)
    }


def _spread(items: Sequence[_T], count: int) -> list[_T]:
    """At most `count` of the items, evenly spread over them."""
    return (
        [items[at * len(items) // count] for at in range(count)]
        if len(items) > count
        else list(items)
    )
