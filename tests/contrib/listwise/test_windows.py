"""Windows of a listwise re-ranker."""

import random
from itertools import combinations

import pytest

from contrib.listwise.windows import (
    Places,
    block_windows,
    borda,
    completed,
    slide,
    sliding_windows,
)


@pytest.mark.parametrize(
    ("count", "window", "stride", "expected"),
    [
        (100, 20, 10, [(start, start + 20) for start in range(80, -1, -10)]),
        (25, 20, 10, [(5, 25), (0, 15)]),
        (20, 20, 10, [(0, 20)]),
        (10, 20, 10, [(0, 10)]),
        (3, 20, 10, [(0, 3)]),
        (5, 2, 1, [(3, 5), (2, 4), (1, 3), (0, 2)]),
        # A window of one doc is not asked.
        (21, 20, 20, [(1, 21)]),
        (1, 20, 10, []),
        (0, 20, 10, []),
    ],
)
def test_windows_slide_from_the_end_to_the_front(count, window, stride, expected):
    windows = sliding_windows(count, window, stride)
    assert [(places.start, places.stop) for places in windows] == expected


def _rank_llm(count: int, window: int, stride: int, ask) -> list[int]:
    """The loop of rank_llm 0.26.0, on all docs of a query."""
    docs, window = list(range(count)), min(window, count)
    end, start = count, count - window
    while end > 0 and start + stride != 0:
        start = max(start, 0)
        docs[start:end] = ask(docs[start:end])
        end, start = end - stride, start - stride
    return docs


def test_sliding_equals_the_loop_of_rank_llm():
    drawn = random.Random(7)
    for _ in range(200):
        count, window = drawn.randrange(0, 60), drawn.randrange(2, 30)
        stride = drawn.randrange(1, window + 1)
        value = {doc: drawn.random() for doc in range(count)}

        def best_first(docs: Places, value: dict[int, float] = value) -> list[int]:
            return sorted(docs, key=value.__getitem__)

        def places(docs: Places, value: dict[int, float] = value) -> list[int]:
            return [docs.index(doc) for doc in best_first(docs, value)]

        expected = _rank_llm(count, window, stride, best_first)
        assert slide(count, window, stride, places) == expected


def test_best_doc_climbs_from_the_last_place_to_the_first():
    order = slide(30, 20, 10, lambda docs: [docs.index(29)] if 29 in docs else [])
    assert order == [29, *range(29)]


def test_blocks_ask_every_pair_of_groups_once():
    windows = block_windows(100, 20)
    assert len(windows) == 45
    groups = [list(range(start, start + 10)) for start in range(0, 100, 10)]
    assert windows == [first + second for first, second in combinations(groups, 2)]
    assert block_windows(5, 4) == [[0, 1, 2, 3], [0, 1, 4], [2, 3, 4]]
    assert block_windows(7, 20) == [[0, 1, 2, 3, 4, 5, 6]]
    assert block_windows(1, 20) == []


def test_borda_counts_shares_of_docs_below_and_keeps_ties():
    # Groups 01, 23 and 4. Shares of [0, 1, 2, 3]: 2 first 1, 0 then 2/3, 1 then 1/3, 3 then 0.
    windows = block_windows(5, 4)
    answers = [[2, 0, 1, 3], [2, 1, 0], [2, 0, 1]]
    # 0: 2/3 + 0, 1: 1/3 + 1/2, 2: 1 + 1/2, 3: 0 + 0, 4: 1 + 1.
    assert borda(5, windows, answers) == [4, 2, 1, 0, 3]
    # Nobody is named: all orders are those before, and docs of one place in their groups tie.
    assert borda(4, block_windows(4, 4), [[]]) == [0, 1, 2, 3]
    # Each is above another once, and below one once.
    assert borda(3, [[0, 1], [0, 1], [1, 2]], [[0, 1], [1, 0], [1, 0]]) == [0, 1, 2]


def test_borda_of_answers_that_agree_has_their_first_and_last():
    drawn = random.Random(3)
    for _ in range(50):
        count, window = drawn.randrange(2, 50), drawn.randrange(2, 20)
        best = drawn.sample(range(count), count)
        windows = block_windows(count, window)
        answers = [
            sorted(range(len(docs)), key=lambda place: best[docs[place]]) for docs in windows
        ]
        order = borda(count, windows, answers)
        # Each meets all others at least once.
        assert (order[0], order[-1]) == (best.index(0), best.index(count - 1))


def test_missing_docs_follow_in_their_order():
    assert completed([3, 1, 3, 9, -1], 5) == [3, 1, 0, 2, 4]
    assert completed([], 3) == [0, 1, 2]
