"""A tokenized shard as flat numpy arrays, over the Arrow buffers where that is possible."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.errors import DataError
from beamrank.ranking.input_layout import Lengths, PackedInputs
from models.scoring.engine import Scores, ScoringEngine, StageCounts

Tokens = npt.NDArray[np.unsignedinteger]


class Prepared(NamedTuple):
    """A shard that can be scored: its inputs, and what makes its rows, and the counts for its receipt, of scores."""

    inputs: PackedInputs
    finish: Callable[[Scores], tuple[pa.Table, StageCounts]]

    def score(self, engine: ScoringEngine) -> tuple[pa.Table, StageCounts]:
        """The rows and the counts, by an engine that scores all inputs."""
        return self.finish(engine.score(self.inputs))


@dataclass(frozen=True)
class ShardTokens:
    """The texts of a shard of q queries with c candidates in all, candidates in the order of their queries and ranks.

    Attributes:
        query_ids: string[q].
        doc_ids: string[c].
        tokens: uint16[t] or uint32[t], every text of the shard; never empty.
        query_starts: int64[q], where each query begins in `tokens`.
        query_lengths: int64[q].
        candidates: int64[q], how many candidates each query has.
        doc_starts: int64[c].
        doc_lengths: int64[c].
    """

    query_ids: pa.Array
    doc_ids: pa.Array
    tokens: Tokens
    query_starts: Lengths
    query_lengths: Lengths
    candidates: Lengths
    doc_starts: Lengths
    doc_lengths: Lengths

    @property
    def queries(self) -> Lengths:
        """int64[c], the row of each candidate's query."""
        return np.repeat(np.arange(len(self.candidates)), self.candidates)


@dataclass(frozen=True)
class ChosenDocs:
    """The a docs of a shard that a stage scores, in the order in which it receives them.

    Attributes:
        docs: int64[a], the row of each in the shard.
        queries: int64[a], the row of its query.
        places: int64[a], its place among the docs that the stage receives, from 0.
        counts: int64[q], how many a query has.
    """

    docs: Lengths
    queries: Lengths
    places: Lengths
    counts: Lengths


def choose_docs(shard: ShardTokens, received: Mapping[str, Sequence[str]]) -> ChosenDocs:
    """Finds the docs that a stage receives; those that the corpus lacks have no tokens, and are left out.

    Args:
        shard: the shard.
        received: the docs of each query, best first.

    Raises:
        DataError: a query is not one of the shard.
    """
    query_ids, doc_ids = shard.query_ids.to_pylist(), shard.doc_ids.to_pylist()
    foreign = received.keys() - set(query_ids)
    if foreign:
        raise DataError(f"query_id {min(foreign)!r} has scores and no tokens in its shard")
    ends = np.cumsum(shard.candidates).tolist()
    docs: list[int] = []
    places: list[int] = []
    counts = []
    for query_id, start, end in zip(query_ids, [0, *ends], ends, strict=False):
        row_of = dict(zip(doc_ids[start:end], range(start, end), strict=True))
        found = [(row_of[doc], place) for place, doc in enumerate(received.get(query_id, ())) if doc in row_of]
        docs += [row for row, _ in found]
        places += [place for _, place in found]
        counts.append(len(found))
    by_query = np.array(counts, np.int64)
    queries = np.repeat(np.arange(len(by_query)), by_query)
    return ChosenDocs(np.array(docs, np.int64), queries, np.array(places, np.int64), by_query)


def read_shard(table: pa.Table) -> ShardTokens:
    """Flattens a table of `beamrank.join.schemas.tokenized`."""
    column = {name: table.column(name).combine_chunks() for name in table.column_names}
    query_tokens, docs_of_query = column["query_tokens"], column["doc_tokens"]
    docs = docs_of_query.flatten()
    query_values, doc_values = _numpy(query_tokens.flatten()), _numpy(docs.flatten())
    query_lengths, doc_lengths = _list_lengths(query_tokens), _list_lengths(docs)
    return ShardTokens(
        query_ids=column["query_id"],
        doc_ids=column["doc_ids"].flatten(),
        tokens=np.concatenate([query_values, doc_values, np.zeros(1, query_values.dtype)]),
        query_starts=np.cumsum(query_lengths) - query_lengths,
        query_lengths=query_lengths,
        candidates=_list_lengths(docs_of_query),
        doc_starts=len(query_values) + np.cumsum(doc_lengths) - doc_lengths,
        doc_lengths=doc_lengths,
    )


def number_texts(tokens: Tokens, starts: Lengths, kept: Lengths, numbers: dict[bytes, int] | None = None) -> Lengths:
    """int64[n] numbers of the texts `tokens[start : start + kept]`: equal where the texts are.

    `numbers` holds those of texts that were numbered before, and receives the new ones.
    """
    numbers = {} if numbers is None else numbers
    ends = starts + kept
    return np.fromiter(
        (
            numbers.setdefault(tokens[start:end].tobytes(), len(numbers))
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ),
        dtype=np.int64,
        count=len(starts),
    )


def distinct(*keys: Lengths) -> tuple[Lengths, Lengths]:
    """The first of each group of equal rows, int64[d], and the group of each row, int64[n].

    Args:
        keys: int64[n] each; rows are the same where all keys are.
    """
    _, rows, inverse = np.unique(np.stack(keys, axis=1), axis=0, return_index=True, return_inverse=True)
    return rows, inverse.reshape(-1)


def _list_lengths(lists: pa.Array) -> Lengths:
    return _numpy(pc.list_value_length(lists)).astype(np.int64)


def _numpy(array: pa.Array) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values
