"""A tokenized shard as flat numpy arrays, over the Arrow buffers where that is possible."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.ranking.input_layout import Lengths

Tokens = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class ShardTokens:
    """The texts of a shard of q queries with c candidates in all, candidates in the order of their queries and ranks.

    Attributes:
        query_ids: string[q].
        doc_ids: string[c].
        ranks: int32[c].
        tokens: uint16[t] or uint32[t], every text of the shard; never empty.
        query_starts: int64[q], where each query begins in `tokens`.
        query_lengths: int64[q].
        candidates: int64[q], how many candidates each query has.
        doc_starts: int64[c].
        doc_lengths: int64[c].
    """

    query_ids: pa.Array
    doc_ids: pa.Array
    ranks: npt.NDArray[np.int32]
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

    @property
    def places(self) -> Lengths:
        """int64[c], the position of a candidate among those of its query, from 0."""
        return np.arange(len(self.ranks)) - np.repeat(np.cumsum(self.candidates) - self.candidates, self.candidates)


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
        ranks=_numpy(column["ranks"].flatten()),
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
