"""Which windows of a ranking a language model orders, and the ranking that follows."""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import combinations
from typing import TypeAlias

Places: TypeAlias = Sequence[int]
# From the docs of a window, as places in the ranking before, to its answer: places in the window.
Ask: TypeAlias = Callable[[Places], Places]


def completed(named: Iterable[int], count: int) -> list[int]:
    """The order of `count` docs, of which an answer names some: repeated ones are dropped, and
    those that are missing follow in their order.
    """
    kept = dict.fromkeys(place for place in named if 0 <= place < count)
    return [*kept, *(place for place in range(count) if place not in kept)]


def sliding_windows(count: int, window: int, stride: int) -> list[range]:
    """The windows of `count` docs from the end to the front, by the arithmetic of rank_llm: the
    last one can be smaller, and none holds only docs of the window before. One doc is no window.
    """
    size = min(window, count)
    windows, start, end = list[range](), count - size, count
    while end > 0 and start + stride != 0:
        start = max(start, 0)
        windows.append(range(start, end))
        start, end = start - stride, end - stride
    return [places for places in windows if len(places) > 1]


def slide(count: int, window: int, stride: int, ask: Ask) -> list[int]:
    """The order of `count` docs after all windows, each of which holds the best of those below."""
    order = list(range(count))
    for places in sliding_windows(count, window, stride):
        docs = order[places.start : places.stop]
        answer = completed(ask(docs), len(docs))
        order[places.start : places.stop] = [docs[place] for place in answer]
    return order


def block_windows(count: int, window: int) -> list[list[int]]:
    """Every pair of groups of `window` / 2 docs, once; a single group is a window."""
    size = window // 2
    groups = [[*range(start, min(start + size, count))] for start in range(0, count, size)]
    pairs = [first + second for first, second in combinations(groups, 2)]
    return pairs or [places for places in groups if len(places) > 1]


def borda(count: int, windows: Sequence[Places], answers: Iterable[Places]) -> list[int]:
    """The order of `count` docs by their Borda counts, ties as before.

    A doc counts the docs of a window that it is above, as a share of the others there: the last
    group can be smaller.
    """
    points = [Fraction(0)] * count
    for docs, answer in zip(windows, answers, strict=True):
        for above, place in enumerate(completed(answer, len(docs))):
            points[docs[place]] += Fraction(len(docs) - 1 - above, len(docs) - 1)
    return sorted(range(count), key=lambda doc: -points[doc])
