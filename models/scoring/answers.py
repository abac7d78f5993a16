"""Answers by content: scores of earlier parts, by the texts that were scored.

A key names what a model read: the digest of the query, with the instruction's where the model reads
one, and for each doc its digest and what was cut from it. The checkpoint and the other settings of
a score are the same wherever keys are compared (`Stage.score_keys`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.schemas import INSTRUCTION_DIGEST
from beamrank.ranking.input_layout import Lengths, PackedInputs
from beamrank.storage.documents import TEXT_DIGEST_BYTES
from models.scoring.engine import Prepared, Scores, StageCounts

# Answers by key: a score, or what else a stage stores.
Answers: TypeAlias = Mapping[bytes, Any]
# The columns of a tokenized part that `Contents` reads.
CONTENTS = ("query_id", "query_digest", "doc_ids", "doc_digests", "doc_lengths", INSTRUCTION_DIGEST)

_Bytes: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Contents:
    """The texts of a tokenized shard of q queries and c candidates.

    Attributes:
        tokens: the shard's table, or its columns `CONTENTS`.
        topics: uint8[q, 16], digests of the queries; [q, 32] with their instructions.
        docs: uint8[c, 16], digests of the candidates, in the order of their queries.
        doc_lengths: int64[c], in tokens, as they are stored.
    """

    tokens: pa.Table
    topics: _Bytes
    docs: _Bytes
    doc_lengths: Lengths

    @classmethod
    def of(cls, tokens: pa.Table, *, instructed: bool) -> Self:
        """Reads the columns `CONTENTS`; the instructions' only where the model reads them."""
        topics = [_digests(tokens["query_digest"])]
        if instructed:
            topics.append(_digests(tokens[INSTRUCTION_DIGEST]))
        return cls(
            tokens,
            np.concatenate(topics, axis=1),
            _digests(pc.list_flatten(tokens["doc_digests"])),
            pc.list_flatten(tokens["doc_lengths"]).to_numpy().astype(np.int64),
        )

    @cached_property
    def rows(self) -> Mapping[tuple[str, str], tuple[int, int]]:
        """The row of the query and of the candidate, by query_id and doc_id."""
        doc_ids = self.tokens["doc_ids"].combine_chunks()
        queries = pc.list_parent_indices(doc_ids)
        query_ids = self.tokens["query_id"].take(queries).to_pylist()
        pairs = zip(query_ids, pc.list_flatten(doc_ids).to_pylist(), strict=True)
        rows = zip(queries.to_pylist(), range(len(queries)), strict=True)
        return dict(zip(pairs, rows, strict=True))

    def find(self, query_ids: Iterable[str], doc_ids: Iterable[str]) -> tuple[Lengths, Lengths]:
        """int64[n] rows of queries and of candidates, given the ids of both."""
        rows = [self.rows[pair] for pair in zip(query_ids, doc_ids, strict=True)]
        queries, docs = np.array(rows, np.int64).reshape(-1, 2).T
        return queries, docs

    def keys(self, queries: Lengths, *docs: "Cut") -> list[bytes]:
        """The keys of n inputs, given the rows of their queries and what is cut from each doc."""
        columns = [self.topics[queries]]
        for cut in docs:
            columns += [self.docs[cut.docs], _bytes(cut.starts), _bytes(cut.lengths)]
        rows = np.concatenate(columns, axis=1)
        keys: list[bytes] = rows.view(f"V{rows.shape[1]}").ravel().tolist()
        return keys


class Cut(NamedTuple):
    """The cuts of n docs: int64[n] their rows, where each cut begins, and its tokens."""

    docs: Lengths
    starts: Lengths
    lengths: Lengths


@dataclass(frozen=True)
class Answered:
    """The inputs of a shard, and the log-odds that earlier parts have of them.

    Attributes:
        prepared: the shard.
        log_odds: float32[n], NaN where an input has no answer.
    """

    prepared: Prepared
    log_odds: npt.NDArray[np.float32]

    @classmethod
    def of(cls, prepared: Prepared, find: Callable[[Sequence[bytes]], Answers] | None) -> Self:
        """Looks up all n inputs: of inputs with the same token ids, one may have an answer. Without
        `find` there is none.
        """
        log_odds = np.full(len(prepared.inputs), np.nan, np.float32)
        if find is not None:
            keys = prepared.keys()
            answers = find(keys)
            scores = np.array([answers.get(key, np.nan) for key in keys], np.float32)
            known = np.flatnonzero(~np.isnan(scores))
            log_odds[prepared.input_of[known]] = scores[known]
        return cls(prepared, log_odds)

    @property
    def rest(self) -> PackedInputs:
        """The inputs without an answer, which must be scored."""
        return self.prepared.inputs.take(np.flatnonzero(np.isnan(self.log_odds)))

    def finish(self, scores: Scores) -> tuple[pa.Table, StageCounts]:
        """The rows of the shard and its counts, given the scores of `rest`."""
        log_odds = self.log_odds.copy()
        log_odds[np.isnan(log_odds)] = scores.log_odds
        reused = len(log_odds) - len(scores.log_odds)
        return self.prepared.finish(replace(scores, log_odds=log_odds, reused=reused))


def _digests(column: pa.ChunkedArray) -> _Bytes:
    """uint8[n, 16] of a column of digests."""
    return np.frombuffer(b"".join(column.to_pylist()), np.uint8).reshape(-1, TEXT_DIGEST_BYTES)


def _bytes(numbers: Lengths) -> _Bytes:
    return numbers.astype("<i4").view(np.uint8).reshape(-1, 4)
