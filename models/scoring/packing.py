"""A tokenized shard as flat numpy arrays, and batches of inputs by their lengths alone: the same on
every machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.commit.schemas import INSTRUCTION_TOKENS
from beamrank.errors import DataError
from beamrank.ranking.input_layout import Lengths, PackedInputs

Tokens = npt.NDArray[np.unsignedinteger]
Rows = npt.NDArray[np.intp]

_MULTIPLE_TOKENS = 8
# A small shard is shared out among the threads, in batches of at least so many tokens.
_SMALLEST_BUDGET = 1024


@dataclass(frozen=True)
class ShardTokens:
    """The texts of a shard of q queries with c candidates in all, candidates in the order of their
    queries and ranks.

    Attributes:
        query_ids: string[q].
        doc_ids: string[c].
        tokens: uint16[t] or uint32[t], every text of the shard; never empty.
        query_starts: int64[q], where each query begins in `tokens`.
        query_lengths: int64[q].
        candidates: int64[q], how many candidates each query has.
        doc_starts: int64[c].
        doc_lengths: int64[c].
        instruction_starts: int64[q], where each query's instruction begins in `tokens`; empty where
            it is not read.
        instruction_lengths: int64[q].
    """

    query_ids: pa.Array
    doc_ids: pa.Array
    tokens: Tokens
    query_starts: Lengths
    query_lengths: Lengths
    candidates: Lengths
    doc_starts: Lengths
    doc_lengths: Lengths
    instruction_starts: Lengths
    instruction_lengths: Lengths


@dataclass(frozen=True)
class ChosenDocs:
    """The a docs of a shard that a stage scores, in the order in which it receives them.

    Attributes:
        shard: the shard.
        docs: int64[a], the row of each in the shard.
        queries: int64[a], the row of its query.
        places: int64[a], its place among the docs that the stage receives, from 0.
        counts: int64[q], how many a query has.
    """

    shard: ShardTokens
    docs: Lengths
    queries: Lengths
    places: Lengths
    counts: Lengths


def choose_docs(tokens: pa.Table, received: Mapping[str, Sequence[str]]) -> ChosenDocs:
    """Reads a table of `schemas.tokenized`, and finds the docs that a stage receives,
    best first. Docs that the corpus lacks have no tokens, and are left out.
    """
    shard = _read_shard(tokens)
    query_ids, doc_ids = shard.query_ids.to_pylist(), shard.doc_ids.to_pylist()
    foreign = received.keys() - set(query_ids)
    if foreign:
        raise DataError(f"query_id {min(foreign)!r} has scores and no tokens in its shard")
    ends = np.cumsum(shard.candidates).tolist()
    chosen: list[tuple[int, int, int]] = []
    for query, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        row_of = dict(zip(doc_ids[start:end], range(start, end), strict=True))
        wanted = enumerate(received.get(query_ids[query], ()))
        chosen += [(row_of[doc_id], query, place) for place, doc_id in wanted if doc_id in row_of]
    docs, queries, places = np.array(chosen, np.int64).reshape(-1, 3).T
    return ChosenDocs(shard, docs, queries, places, np.bincount(queries, minlength=len(query_ids)))


def _read_shard(table: pa.Table) -> ShardTokens:
    column = {name: table.column(name).combine_chunks() for name in table.column_names}
    query_tokens, docs_of_query = column["query_tokens"], column["doc_tokens"]
    docs = docs_of_query.flatten()
    query_values, doc_values = _numpy(query_tokens.flatten()), _numpy(docs.flatten())
    query_lengths, doc_lengths = _list_lengths(query_tokens), _list_lengths(docs)
    instructions = column.get(INSTRUCTION_TOKENS, query_tokens[:0])
    instruction_values, instruction_lengths = (
        _numpy(instructions.flatten()),
        _list_lengths(instructions),
    )
    before = len(query_values) + len(doc_values)
    return ShardTokens(
        query_ids=column["query_id"],
        doc_ids=column["doc_ids"].flatten(),
        tokens=np.concatenate(
            [query_values, doc_values, instruction_values, np.zeros(1, query_values.dtype)]
        ),
        query_starts=np.cumsum(query_lengths) - query_lengths,
        query_lengths=query_lengths,
        candidates=_list_lengths(docs_of_query),
        doc_starts=len(query_values) + np.cumsum(doc_lengths) - doc_lengths,
        doc_lengths=doc_lengths,
        instruction_starts=before + np.cumsum(instruction_lengths) - instruction_lengths,
        instruction_lengths=instruction_lengths,
    )


def number_texts(tokens: Tokens, starts: Lengths, kept: Lengths) -> Lengths:
    """int64[n] numbers of the texts `tokens[start : start + kept]`: equal where the texts are."""
    numbers = dict[bytes, int]()
    texts = zip(starts.tolist(), (starts + kept).tolist(), strict=True)
    numbered = (
        numbers.setdefault(tokens[start:end].tobytes(), len(numbers)) for start, end in texts
    )
    return np.fromiter(numbered, dtype=np.int64, count=len(starts))


def distinct(*keys: Lengths) -> tuple[Lengths, Lengths]:
    """The first of each group of equal rows, int64[d], and the group of each row, int64[n], by keys
    of int64[n].
    """
    _, rows, inverse = np.unique(
        np.stack(keys, axis=1), axis=0, return_index=True, return_inverse=True
    )
    return rows, inverse.reshape(-1)


def split_by_prefix(inputs: PackedInputs) -> list[Rows]:
    """The rows of inputs that are the same up to their last text."""
    first, prefixes = distinct(*inputs.starts[:, :-1].T, *inputs.kept[:, :-1].T)
    return [np.flatnonzero(prefixes == prefix) for prefix in range(len(first))]


def _list_lengths(lists: pa.Array) -> Lengths:
    return _numpy(pc.list_value_length(lists)).astype(np.int64)


def _numpy(array: pa.Array) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def padded_width(lengths: Lengths, positions: int) -> int:
    """The width of a batch: its longest input, padded up to a multiple of 8, at most the model's
    positions.
    """
    longest = int(lengths.max())
    return min(-(-longest // _MULTIPLE_TOKENS) * _MULTIPLE_TOKENS, positions)


def even_budget(lengths: Lengths, token_budget: int, streams: int) -> int:
    """How many tokens a batch may have, so that all streams finish at about the same time."""
    tokens = int(lengths.sum())
    rounds = max(1, -(-tokens // (streams * token_budget)))
    return min(token_budget, max(_SMALLEST_BUDGET, -(-tokens // (streams * rounds))))


def fill_batches(lengths: Lengths, token_budget: int) -> list[Rows]:
    """Cuts inputs of int64[n] tokens into batches of so many tokens without padding; an input above
    goes alone.

    The longest come first, so that inputs of one length meet. Every row is in one of the batches.
    """
    longest_first = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths[longest_first])
    batches = []
    start = before = 0
    while start < len(lengths):
        end = max(start + 1, int(np.searchsorted(ends, before + token_budget, side="right")))
        batches.append(longest_first[start:end])
        start, before = end, int(ends[end - 1])
    return batches


def fill_blocks(rows: Lengths, block: int) -> list[Rows]:
    """Cuts inputs of int64[n] rows into batches of so many rows, each filled with the longest that
    still fit.

    An input above goes alone; every input is in one of the batches.
    """
    order = np.argsort(-rows, kind="stable")
    sizes, starts = np.unique(-rows[order], return_index=True)
    waiting = dict(zip((-sizes).tolist(), np.split(order, starts)[1:], strict=True))
    batches = []
    while waiting:
        room, chosen = max(block, next(iter(waiting))), []
        for size, inputs in [*waiting.items()]:
            if fitting := room // size:
                chosen.append(inputs[:fitting])
                room -= size * len(chosen[-1])
                waiting[size] = inputs[fitting:]
        waiting = {size: inputs for size, inputs in waiting.items() if len(inputs)}
        batches.append(np.concatenate(chosen))
    return batches


def cut_batches(lengths: Lengths, token_budget: int, positions: int) -> list[Rows]:
    """Cuts inputs of int64[n] tokens into batches of inputs of about one length, the longest first.

    A batch holds so many tokens, padding included; an input above goes alone. Every row is in one
    of the batches.
    """
    longest_first = np.argsort(-lengths, kind="stable")
    batches = []
    start = 0
    while start < len(lengths):
        width = padded_width(lengths[longest_first[start : start + 1]], positions)
        end = start + max(1, token_budget // width)
        batches.append(longest_first[start:end])
        start = end
    return batches
