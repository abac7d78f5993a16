"""How far two rankings agree: rank-biased overlap, Kendall's tau and the overlap of their first docs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

Ranking: TypeAlias = Sequence[str]

_PERSISTENCE = 0.9
_CUTOFF = 10


@dataclass(frozen=True)
class Agreement:
    """How far two runs agree.

    Attributes:
        topics: how many topics both have.
        means: the mean of each of `METHODS` over the topics for which it is defined; None if there are none.
    """

    topics: int
    means: dict[str, float | None]


def rank_biased_overlap(one: Ranking, other: Ranking, persistence: float = _PERSISTENCE) -> float:
    """Extrapolated RBO of rankings of any lengths: equation 32 of Webber, Moffat and Zobel, 2010.

    Args:
        one: a ranking with at least one doc.
        other: another.
        persistence: the paper's p; with 0.9 the first ten docs have 86 % of the weight.
    """
    short, long = sorted((len(one), len(other)))
    places = {doc_id: place for place, doc_id in enumerate(one)}
    # A doc that both hold is shared from the deeper of its two places on.
    depths = [max(places[doc_id], place) for place, doc_id in enumerate(other) if doc_id in places]
    shared = np.cumsum(np.bincount(np.asarray(depths, np.int64), minlength=long))
    depth = np.arange(1, long + 1)
    at_short, at_long = int(shared[short - 1]), int(shared[-1])
    beyond = np.where(depth > short, at_short * (depth - short) / (short * depth), 0.0)
    weights = persistence**depth
    observed = (1 - persistence) / persistence * float(np.sum(weights * (shared / depth + beyond)))
    return observed + ((at_long - at_short) / long + at_short / short) * float(persistence**long)


def kendalls_tau(one: Ranking, other: Ranking) -> float | None:
    """Kendall's tau over the docs that both hold; None for fewer than two."""
    places = {doc_id: place for place, doc_id in enumerate(one)}
    shared = [places[doc_id] for doc_id in other if doc_id in places]
    if len(shared) < 2:
        return None
    # It takes a second to import, and few commands compare runs.
    from scipy.stats import kendalltau

    return float(kendalltau(shared, np.arange(len(shared))).statistic)


def overlap(one: Ranking, other: Ranking, cutoff: int = _CUTOFF) -> float:
    """The share of the first docs of one ranking that are among the first docs of the other.

    Where both are shorter than the cutoff, the longer length counts.
    """
    return len({*one[:cutoff]} & {*other[:cutoff]}) / min(cutoff, max(len(one), len(other)))


METHODS: dict[str, Callable[[Ranking, Ranking], float | None]] = {
    "RBO": rank_biased_overlap,
    "tau": kendalls_tau,
    f"overlap@{_CUTOFF}": overlap,
}


def agreement(one: Mapping[str, Ranking], other: Mapping[str, Ranking]) -> Agreement:
    """How far two runs agree on the topics that both have."""
    topics = [query_id for query_id in one if query_id in other]
    means: dict[str, float | None] = {}
    for name, method in METHODS.items():
        found = [method(one[query_id], other[query_id]) for query_id in topics]
        values = [value for value in found if value is not None]
        means[name] = sum(values) / len(values) if values else None
    return Agreement(len(topics), means)
