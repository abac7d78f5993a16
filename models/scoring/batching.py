"""Cuts the inputs of a shard into batches, by their lengths alone, so the batches are the same on every machine."""

import numpy as np
import numpy.typing as npt

from beamrank.ranking.input_layout import Lengths

Rows = npt.NDArray[np.intp]

_MULTIPLE_TOKENS = 8
# A small shard is shared out among the threads, in batches of at least so many tokens.
_SMALLEST_BUDGET = 1024


def padded_width(lengths: Lengths, positions: int) -> int:
    """The width of a batch: its longest input, padded up to a multiple of 8, at most the model's positions."""
    longest = int(lengths.max())
    return min(-(-longest // _MULTIPLE_TOKENS) * _MULTIPLE_TOKENS, positions)


def even_budget(lengths: Lengths, token_budget: int, streams: int) -> int:
    """How many tokens a batch may have, so that all streams finish at about the same time."""
    tokens = int(lengths.sum())
    rounds = max(1, -(-tokens // (streams * token_budget)))
    return min(token_budget, max(_SMALLEST_BUDGET, -(-tokens // (streams * rounds))))


def fill_batches(lengths: Lengths, token_budget: int) -> list[Rows]:
    """Cuts a shard into batches without padding, the longest inputs first, so that inputs of one length meet.

    Args:
        lengths: int64[n], tokens of each input.
        token_budget: how many tokens a batch may hold; an input above it goes alone.

    Returns:
        The rows of each batch; every row is in one of them.
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
    """Cuts a shard into batches of so many rows at most, each filled with the longest inputs that still fit.

    Args:
        rows: int64[n], the rows that each input takes.
        block: how many rows a batch has; an input above it goes alone.

    Returns:
        The inputs of each batch; every input is in one of them.
    """
    order = np.argsort(-rows, kind="stable")
    sizes, starts = np.unique(-rows[order], return_index=True)
    waiting = dict(zip((-sizes).tolist(), np.split(order, starts)[1:], strict=True))
    batches = []
    while waiting:
        room, chosen = max(block, next(iter(waiting))), []
        for size, some in [*waiting.items()]:
            if fitting := room // size:
                chosen.append(some[:fitting])
                room -= size * len(chosen[-1])
                waiting[size] = some[fitting:]
        waiting = {size: some for size, some in waiting.items() if len(some)}
        batches.append(np.concatenate(chosen))
    return batches


def cut_batches(lengths: Lengths, token_budget: int, positions: int) -> list[Rows]:
    """Cuts a shard into batches of inputs of about one length, the longest first.

    Args:
        lengths: int64[n], tokens of each input.
        token_budget: how many tokens a batch may hold, padding included; an input above it goes alone.
        positions: the longest input that the model reads.

    Returns:
        The rows of each batch; every row is in one of them.
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
