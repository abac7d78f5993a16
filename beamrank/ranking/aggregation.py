"""Aggregations: from duoBERT's pairwise log-odds to one score a candidate (section 3.3, equations 3
to 7).

`z[i, j]` is the log-odds that candidate i is more relevant than candidate j, and p = sigma(z) its
probability. The diagonal is ignored. Elsewhere NaN marks a pair that was not scored, which only
`sample` allows. A new aggregation is a function and its line in `METHODS`.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from beamrank.errors import ConfigError, DataError

Matrix: TypeAlias = NDArray[np.floating[Any]]
Scores: TypeAlias = NDArray[np.float64]
Order: TypeAlias = NDArray[np.int64]


def sampled_opponents(
    query_id: str, doc_ids: Sequence[str], opponents: int, seed: int
) -> NDArray[np.bool_]:
    """The pairs that SAMPLE(m) scores (equation 7): bool[n, n], true at [i, j] where z_ij is
    scored.

    The opponents of i are the m candidates j with the smallest SHA-256 of seed, query_id, doc_id_i,
    doc_id_j. So a draw depends only on these: not on the shards, the order of the candidates or the
    machine.
    """
    count = len(doc_ids)
    drawn = ~np.eye(count, dtype=np.bool_)
    if opponents < count - 1:
        drawn[:] = False
        np.put_along_axis(
            drawn, opponent_order(query_id, doc_ids, seed)[:, :opponents], True, axis=1
        )
    return drawn


def pair_inferences(candidates: float, k: int, opponents: int | None) -> float:
    """The number of ordered pairs that are scored for a query with so many candidates."""
    compared = min(k, candidates)
    return compared * max(0, min(opponents or compared, compared - 1))


def opponent_order(query_id: str, doc_ids: Sequence[str], seed: int) -> Order:
    """The order in which SAMPLE draws the opponents of each candidate: int64[n, n - 1], the
    positions of the others.

    Among only the first k candidates, the order is the same without the others.
    """
    others = [doc_id.encode() for doc_id in doc_ids]
    rows = []
    for row, doc_id in enumerate(others):
        prefix = hashlib.sha256(f"{seed}\0{query_id}\0".encode() + doc_id + b"\0")
        digests = []
        for other in others:
            digest = prefix.copy()
            digest.update(other)
            digests.append(digest.digest())
        drawn = sorted(range(len(others)), key=digests.__getitem__)
        drawn.remove(row)
        rows.append(drawn)
    return np.array(rows, dtype=np.int64).reshape(len(others), max(len(others) - 1, 0))


def sample_sums(z: Matrix, order: Order, opponents: Sequence[int]) -> dict[int, Scores]:
    """SAMPLE(m) of a full matrix for several m in one pass: equal to `aggregate` over
    `simulate_sample`.

    From float32[n, n] log-odds and int64[..., n, n - 1], one or several of `opponent_order`, to
    float64[..., n] by m.
    """
    drawn = _sigmoid(z.astype(np.float64))[np.arange(len(z))[:, None], order]
    sums: dict[int, Scores] = {}
    # The exact sum is high + low, and rounding it once is what fsum does.
    high, low = np.zeros(order.shape[:-1]), np.zeros(order.shape[:-1])
    for column in range(order.shape[-1]):
        if column in opponents:
            sums[column] = high + low
        value = drawn[..., column]
        total = high + value
        rest = total - high
        low = low + ((high - (total - rest)) + (value - rest))
        high = total
    return {count: sums.get(count, high + low) for count in opponents}


def simulate_sample(
    z: Matrix, query_id: str, doc_ids: Sequence[str], opponents: int, seed: int
) -> Matrix:
    """A full matrix as SAMPLE(m) would have left it, with NaN for the pairs that it does not score.
    float32[n, n].
    """
    _check_square(z)
    return np.where(sampled_opponents(query_id, doc_ids, opponents, seed), z, np.float32(np.nan))


def aggregate(z: Matrix, method: str) -> Scores:
    """One score a candidate, float64[n], from float32[n, n] log-odds; higher is better. With n = 1
    it is 0.

    Raises:
        ConfigError: the method is not in `METHODS`.
        DataError: a pair was not scored and the method needs it, or a log-odds is infinite.
    """
    check_method(method)
    _check_square(z)
    log_odds: Scores = z.astype(np.float64)
    np.fill_diagonal(log_odds, np.nan)
    if np.isinf(log_odds).any():
        raise DataError(
            "a pairwise log-odds is infinite: the model overflowed; score again with dtype float32"
        )
    pairs = len(z) * (len(z) - 1)
    missing = pairs - int((~np.isnan(log_odds)).sum())
    if missing and method != "sample":
        raise DataError(
            f"{missing} of {pairs} pairs were not scored, and aggregation {method!r} needs them "
            "all: the scores come from a run with `aggregation: sample`; use sample, or score "
            "again with a different aggregation"
        )
    return METHODS[method](log_odds) if len(z) > 1 else np.zeros(len(z), dtype=np.float64)


def check_method(method: str) -> None:
    """Makes sure that an aggregation exists; ConfigError if not."""
    if method not in METHODS:
        raise ConfigError(f"unknown aggregation {method!r}: choose one of {', '.join(METHODS)}")


def sum_probabilities(z: Scores) -> Scores:
    """SUM, equation 3; over the pairs that were scored it is SAMPLE, equation 7."""
    return _row_sums(_sigmoid(z))


def count_wins(z: Scores) -> Scores:
    """BINARY, equation 4: how many opponents i beats; p > 0.5 is z > 0."""
    return _row_sums((z > 0).astype(np.float64))


def min_log_odds(z: Scores) -> Scores:
    """MIN, equation 5, on z: sigma is monotonic, and rounds to 1 where z still tells candidates
    apart.
    """
    return np.asarray(np.nanmin(z, axis=1))


def max_log_odds(z: Scores) -> Scores:
    """MAX, equation 6, on z."""
    return np.asarray(np.nanmax(z, axis=1))


def sum_both_directions(z: Scores) -> Scores:
    """The sum over j of p_ij + (1 - p_ji), the default of pygaggle for duoT5."""
    return _row_sums(_sigmoid(z) + _sigmoid(-z.T))


def sum_logs(z: Scores) -> Scores:
    """The sum over j of log p_ij."""
    return _row_sums(_log_sigmoid(z))


def sum_logs_of_both_directions(z: Scores) -> Scores:
    """The sum over j of log p_ij + log(1 - p_ji), from log-odds, so that no p near 1 becomes
    -inf.
    """
    return _row_sums(_log_sigmoid(z) + _log_sigmoid(-z.T))


# Each takes float64[n, n] log-odds, n >= 2, with NaN on the diagonal, and returns float64[n]
# scores, higher is better.
METHODS: dict[str, Callable[[Scores], Scores]] = {
    "sum": sum_probabilities,
    "binary": count_wins,
    "min": min_log_odds,
    "max": max_log_odds,
    "sample": sum_probabilities,
    "sym_sum": sum_both_directions,
    "log_sum": sum_logs,
    "sym_log_sum": sum_logs_of_both_directions,
}


def _row_sums(values: Scores) -> Scores:
    """Exactly rounded sums without NaN, so that candidates with the same text tie in any order of
    their opponents.
    """
    return np.array([math.fsum(row[~np.isnan(row)].tolist()) for row in values], dtype=np.float64)


def _sigmoid(z: Scores) -> Scores:
    # SciPy takes half a second to import, and every command imports the names of the aggregations.
    from scipy.special import expit

    return np.asarray(expit(z))


def _log_sigmoid(z: Scores) -> Scores:
    from scipy.special import log_expit

    return np.asarray(log_expit(z))


def _check_square(z: Matrix) -> None:
    if z.ndim != 2 or z.shape[0] != z.shape[1]:
        raise DataError(
            f"the pairwise scores of a query must be a square matrix, not one of shape {z.shape}"
        )
