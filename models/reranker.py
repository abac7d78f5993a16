"""A checkpoint that scores texts in memory, as a stage scores a shard, without files and without
Beam.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import partial
from itertools import chain
from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.commit.schemas import Texts, tokenized_schema, tokenized_table
from beamrank.config.run import JobConfig
from beamrank.config.stages import InputConfig, MonoConfig
from beamrank.config.yaml import check_document
from beamrank.errors import DataError
from beamrank.frames import Frame, columns_of
from beamrank.machine import usable_threads
from beamrank.ranking.input_layout import (
    INPUT_TEXTS,
    TEXT_COUNTS,
    InputLimits,
    PackedInputs,
    Truncation,
    kept_lengths,
    max_doc_tokens,
)
from beamrank.section import check_ordered
from models.checkpoints.checkpoint import (
    input_warnings,
    resolve_checkpoint,
    tokenizer_of,
)
from models.scoring.backends.registry import choose_kernel, find_backend, resolve_backend
from models.scoring.engine import ScoringEngine, StageCounts
from models.scoring.packing import distinct, number_texts
from models.tokenizers.base import Tokenizer

_log = logging.getLogger(__name__)
RerankerKind = Literal["mono", "duo"]


class RerankerOptions(TypedDict, total=False):
    """The options of a `Reranker`."""

    dtype: str
    device: str
    threads: int | None
    backend: str
    kernel: str
    truncation: Truncation
    max_query_length: int
    max_length: int
    instruction: str | None


class Reranker:
    """A checkpoint that scores texts. A copy, also one in another process, loads the checkpoint
    again.
    """

    def __init__(
        self,
        checkpoint: str,
        kind: RerankerKind = "mono",
        *,
        dtype: str = "auto",
        device: str = "auto",
        threads: int | None = None,
        backend: str = "torch",
        kernel: str = "auto",
        truncation: Truncation = "original",
        max_query_length: int = 64,
        max_length: int = 512,
        instruction: str | None = None,
        **options: Any,
    ) -> None:
        """Loads the checkpoint. Options and defaults are those of a configuration
        (docs/reference/configuration.md).

        Args:
            checkpoint: `embedded:mono`, `embedded:duo`, a folder, a URL, or a Hugging Face id,
                `@revision` or not.
            kind: `mono` scores a text for a query; `duo` compares two texts.
            dtype: `auto`, `float32`, `bfloat16` or `float16`.
            device: `auto`, `cpu`, `cuda`, or `cuda:N` for one GPU of several.
            threads: how many threads a CPU computes with; by default and at most one a core.
            backend: the library that runs the model: `torch`, `openvino`, or `auto` for the faster
                one.
            kernel: what computes attention on a CPU: `torch`, `compiled`, or `auto`.
            truncation: `original`, `paper`, or `hf` (mono only): how texts are cut.
            max_query_length: of the query, in tokens, [CLS] and [SEP] included.
            max_length: of an input, in tokens, special tokens included; at most the positions of
                the checkpoint.
            instruction: the task, for a model whose prompt holds an instruction; default: its own.
            **options: of the architecture of the checkpoint, such as `prompt` and `answers` of a
                language model.

        Raises:
            ConfigError: an option is wrong.
            PreflightError: the checkpoint cannot be used, or this machine does not have the device
                or the dtype.
        """
        given = {"checkpoint": checkpoint, "instruction": instruction, **options}
        section = check_document(given, MonoConfig, "Reranker")
        lengths = {
            "truncation": truncation,
            "max_query_length": max_query_length,
            "max_length": max_length,
        }
        layout = check_document(lengths, InputConfig, "Reranker")
        self.kind = kind
        self.limits = InputLimits(truncation, max_query_length, max_length)
        found = resolve_checkpoint(checkpoint, kind, instruction, section.options)
        found.check_length(max_length, truncation)
        self.tokenizer = tokenizer_of(found)
        fit = found.check_tokenizer(self.tokenizer.vocab_size, self.tokenizer.special)
        for warning in (*fit, *input_warnings(found, lengths)):
            _log.warning("%s", warning)
        found.check_limits(self.tokenizer, self.limits)
        backend, where = resolve_backend(backend), find_backend(backend).resolve(device, dtype)
        if where.warning:
            _log.warning("%s", where.warning)
        most = usable_threads(threads)
        chosen = choose_kernel(kernel, found.architecture, backend, where)
        self.dtype = where.dtype
        self.engine = ScoringEngine(
            found, where.device, where.dtype, most, where.token_budget, backend, chosen
        )
        # What its stage is made from, in a cascade.
        self.device = where
        self.job = JobConfig.model_construct(
            input=layout, threads=threads, backend=backend, kernel=chosen
        )
        settled: dict[str, Any] = {"dtype": where.dtype, "device": where.device, "kernel": chosen}
        settled |= {"threads": threads, "backend": backend, "instruction": instruction, **lengths}
        self._anew = partial(type(self), found.reference, kind, **settled, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._anew, ()

    def score(self, inputs: Iterable[Sequence[str]] | Frame) -> npt.NDArray[np.float32]:
        """The log-odds of relevance, in the order of the inputs. Equal inputs are scored once.

        On a CPU, the bits of a score do not depend on the other inputs or the number of threads, on
        machines of one kind. On a GPU its last digits depend on the other inputs of the call, which
        share batches with it.

        Args:
            inputs: (query, text) for mono; (query, text_i, text_j) for duo, whose score is the
                log-odds that text_i is more relevant than text_j. A frame of pandas, polars, Arrow
                or others that export Arrow's PyCapsule stream has the columns query and doc, or
                query, doc_i and doc_j; others are not read.

        Returns:
            float32[n].

        Raises:
            ConfigError: the inputs are a set, which has no order.
            DataError: an input does not have two or three strings, or a score is not finite.
        """
        if isinstance(inputs, Frame):
            return self._score(columns_of("the inputs", inputs, INPUT_TEXTS[self.kind]))
        check_ordered("inputs", inputs)
        whole = (str, Set, Mapping)  # no tuples: the order of a set's texts is that of their hashes
        rows = [
            tuple(each) if isinstance(each, Iterable) and not isinstance(each, whole) else (each,)
            for each in inputs
        ]
        _check_inputs(rows, TEXT_COUNTS[self.kind])
        return self._score(list(zip(*rows, strict=True)))

    def _score(self, texts: Sequence[Sequence[str]]) -> npt.NDArray[np.float32]:
        if not texts or not texts[0]:
            return np.empty(0, np.float32)
        return score_texts(self.engine, self.tokenizer, self.limits, texts)[0]


def score_texts(
    engine: ScoringEngine, tokenizer: Tokenizer, limits: InputLimits, texts: Sequence[Sequence[str]]
) -> tuple[npt.NDArray[np.float32], StageCounts]:
    """Scores n inputs, their queries, docs and, for duo, second docs; n each. Equal inputs are
    scored once.

    Returns:
        float32[n] log-odds in the order of the inputs, and the counts for a receipt.
    """
    architecture = engine.checkpoint.architecture
    template = architecture.template(tokenizer.special)
    most = max_doc_tokens(limits.max_length * template.doc_parts)
    queries, *docs = texts
    distinct_queries, query_numbers = _numbered(queries)
    distinct_docs, doc_numbers = _numbered(list(chain(*docs)))
    columns = (
        tokenizer.encode_queries(distinct_queries, most),
        tokenizer.encode(distinct_docs, most),
    )
    ids = pa.concat_arrays([column.ids for column in columns])
    cut = np.concatenate([column.truncated for column in columns])
    offsets, values = ids.offsets.to_numpy().astype(np.int64), ids.values.to_numpy()
    tokens = np.concatenate([values, np.zeros(1, values.dtype)])
    numbers = np.stack(
        [query_numbers, *np.split(len(distinct_queries) + doc_numbers, len(docs))], axis=1
    )
    starts = offsets[numbers]
    lengths = offsets[numbers + 1] - starts
    kept = np.stack(kept_lengths(template, limits, list(lengths.T)), axis=1)
    rows, inverse = distinct(
        *(number_texts(tokens, *each) for each in zip(starts.T, kept.T, strict=True))
    )
    scores = engine.score(PackedInputs(tokens, starts[rows], kept[rows], template))
    truncated = (kept < lengths) | cut[numbers]
    return scores.log_odds[inverse], StageCounts(
        **scores.cost,
        queries=len(np.unique(numbers[:, 0])),
        candidates=len(numbers),
        truncated_queries=len(np.unique(numbers[truncated[:, 0], 0])),
        truncated_docs=int(np.count_nonzero(truncated[:, 1:])),
        duplicate_inputs=len(numbers) - len(rows),
    )


def _numbered(texts: Sequence[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The distinct texts, and for each text which of them it is."""
    number_of = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return list(number_of), np.array([number_of[text] for text in texts], np.int64)


def tokenize_shard(
    tokenizer: Any,
    queries: Mapping[str, str],
    candidates: pa.Table,
    texts: Mapping[str, str],
    most: int,
    schema: pa.Schema | None = None,
) -> pa.Table:
    """The queries of a shard with the first tokens of their candidates' texts: `schemas.tokenized`,
    or another schema with what its encoder makes.

    `candidates` are `schemas.CANDIDATES`, the queries in the same order.
    """
    row_of = {doc_id: row for row, doc_id in enumerate(texts)}
    topics, docs = list(queries.values()), list(texts.values())
    return tokenized_table(
        schema or tokenized_schema(tokenizer),
        list(queries),
        Texts.of(tokenizer.encode_queries(topics, most).ids, topics),
        candidates,
        Texts.of(tokenizer.encode(docs, most).ids, docs),
        np.array([row_of[doc_id] for doc_id in candidates["doc_id"].to_pylist()], np.int64),
    )


def _check_inputs(rows: Sequence[tuple[str, ...]], size: int) -> None:
    for number, row in enumerate(rows):
        if len(row) != size or not all(isinstance(text, str) for text in row):
            texts = "(query, text)" if size == 2 else "(query, text_i, text_j)"
            raise DataError(
                f"input {number} is {row!r:.200}, and this model scores {texts}: give {size} "
                "strings each"
            )
