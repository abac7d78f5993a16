"""From duoBERT's pairwise log-odds to one score a candidate (section 3.3, equations 3 to 7).

`z[i, j]` is the log-odds that candidate i is more relevant than candidate j and p = sigma(z) its probability. The
diagonal is never read; off it, NaN stands where a pair was not asked, which only `sample` allows.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from beamrank.errors import ConfigError, DataError

Matrix: TypeAlias = NDArray[np.floating[Any]]
Scores: TypeAlias = NDArray[np.float64]


def sampled_opponents(query_id: str, doc_ids: Sequence[str], opponents: int, seed: int) -> NDArray[np.bool_]:
    """Which pairs SAMPLE(m) asks (equation 7): the opponents of each candidate, drawn without replacement.

    The opponents of i are the m candidates j with the smallest SHA-256 of seed, query_id, doc_id_i, doc_id_j. So a draw
    depends on nothing but these: not on the shards, the order of the candidates or the machine.

    Returns:
        bool[n, n], true at [i, j] where z_ij is asked. Every pair is where `opponents` is n - 1 or more.
    """
    count = len(doc_ids)
    asked = ~np.eye(count, dtype=np.bool_)
    if opponents >= count - 1:
        return asked
    asked[:] = False
    for row, doc_id in enumerate(doc_ids):
        prefix = hashlib.sha256(f"{seed}\0{query_id}\0{doc_id}\0".encode())
        digests = [(_digest(prefix, other), column) for column, other in enumerate(doc_ids) if column != row]
        asked[row, [column for _, column in sorted(digests)[:opponents]]] = True
    return asked


def simulate_sample(z: Matrix, query_id: str, doc_ids: Sequence[str], opponents: int, seed: int) -> Matrix:
    """A full matrix as SAMPLE(m) would have left it: NaN where it asks nothing. float32[n, n]."""
    _check_square(z)
    return np.where(sampled_opponents(query_id, doc_ids, opponents, seed), z, np.float32(np.nan))


def restrict(z: Matrix, k1: int) -> Matrix:
    """The matrix of a smaller k1 at the same k0: the leading block, float32[k1, k1] (all of it where n <= k1)."""
    _check_square(z)
    return z[:k1, :k1]


def aggregate(z: Matrix, method: str) -> Scores:
    """One score a candidate; higher is better.

    Sums of sigma and log sigma are float64. With one candidate every method gives 0.

    Args:
        z: float32[n, n], row-major log-odds.
        method: sum, binary, min, max, sample, sym_sum, log_sum or sym_log_sum.

    Returns:
        float64[n].

    Raises:
        ConfigError: there is no such method.
        DataError: a pair was not asked and the method needs it, or a log-odds is infinite.
    """
    if method not in METHODS:
        raise ConfigError(f"unknown aggregation {method!r}: choose one of {', '.join(METHODS)}")
    _check_square(z)
    others = ~np.eye(len(z), dtype=np.bool_)
    _check_values(z, others, method)
    if len(z) < 2:
        return np.zeros(len(z), dtype=np.float64)
    return METHODS[method](z.astype(np.float64), others)


def _sum(z: Scores, others: NDArray[np.bool_]) -> Scores:
    """SUM, equation 3."""
    return _row_sums(expit(z), others)


def _binary(z: Scores, others: NDArray[np.bool_]) -> Scores:
    """BINARY, equation 4: how many opponents i beats; p > 0.5 is z > 0."""
    return _row_sums((z > 0).astype(np.float64), others)


def _min(z: Scores, others: NDArray[np.bool_]) -> Scores:
    """MIN, equation 5, on z: sigma is monotonic, and rounds to 1 where z still tells candidates apart."""
    return np.asarray(np.min(z, axis=1, where=others, initial=np.inf))


def _max(z: Scores, others: NDArray[np.bool_]) -> Scores:
    """MAX, equation 6, on z."""
    return np.asarray(np.max(z, axis=1, where=others, initial=-np.inf))


def _sample(z: Scores, others: NDArray[np.bool_]) -> Scores:
    """SAMPLE, equation 7: SUM over the pairs that were asked."""
    return _row_sums(expit(z), others & ~np.isnan(z))


def _sym_sum(z: Scores, others: NDArray[np.bool_]) -> Scores:
    """The sum over j of p_ij + (1 - p_ji), pygaggle's default for duoT5."""
    return _row_sums(expit(z) + expit(-z.T), others)


def _log_sum(z: Scores, others: NDArray[np.bool_]) -> Scores:
    """The sum over j of log p_ij."""
    return _row_sums(log_expit(z), others)


def _sym_log_sum(z: Scores, others: NDArray[np.bool_]) -> Scores:
    """The sum over j of log p_ij + log(1 - p_ji), from log-odds, so that no p near 1 becomes -inf."""
    return _row_sums(log_expit(z) + log_expit(-z.T), others)


METHODS: Mapping[str, Callable[[Scores, NDArray[np.bool_]], Scores]] = MappingProxyType(
    {
        "sum": _sum,
        "binary": _binary,
        "min": _min,
        "max": _max,
        "sample": _sample,
        "sym_sum": _sym_sum,
        "log_sum": _log_sum,
        "sym_log_sum": _sym_log_sum,
    }
)


def _row_sums(values: Scores, where: NDArray[np.bool_]) -> Scores:
    """Exactly rounded sums, so that candidates with the same text tie whatever the order of their opponents."""
    return np.array([math.fsum(row[asked]) for row, asked in zip(values, where, strict=True)], dtype=np.float64)


def _digest(prefix: "hashlib._Hash", doc_id: str) -> bytes:
    digest = prefix.copy()
    digest.update(doc_id.encode())
    return digest.digest()


def _check_square(z: Matrix) -> None:
    if z.ndim != 2 or z.shape[0] != z.shape[1]:
        raise DataError(f"the pairwise scores of a query must be a square matrix, not one of shape {z.shape}")


def _check_values(z: Matrix, others: NDArray[np.bool_], method: str) -> None:
    if np.isinf(z[others]).any():
        raise DataError("a pairwise log-odds is infinite: the model overflowed; score again with dtype float32")
    missing = int(np.isnan(z[others]).sum())
    if missing and method != "sample":
        raise DataError(
            f"{missing} of {int(others.sum())} pairs were not asked, and aggregation {method!r} needs them all: "
            "the scores come from a run with `aggregation: sample`; use sample, or score again with another aggregation"
        )
