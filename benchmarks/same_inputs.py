"""Checks that two rates are comparable: both sides read the same inputs, and their scores differ
only by rounding.

Log-odds alone cannot distinguish other inputs from rounding, because the size of rounding errors
depends on the checkpoint: 1e-5 for a trained one, 1e-2 for `embedded:mono`. So inputs are compared
token by token, and the tolerance of the log-odds comes from float64.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from beamrank.ranking.input_layout import PackedInputs, lay_out

Input = tuple[bytes, bytes]
"""The int32 token ids of an input without padding, and its token types."""

_MOST_ROUNDINGS = 3.0
"""For all pairs together: two independent sides differ by 1.4 times the error of one."""
_MOST_OF_ONE = 20.0
"""For a single pair: rounding errors have a long tail."""


def unpadded(
    token_ids: npt.ArrayLike, token_types: npt.ArrayLike, lengths: npt.ArrayLike
) -> Iterator[Input]:
    """Yields the inputs of a batch, int[b, width], padded on the right; `lengths` is int[b]."""
    ids, types = np.asarray(token_ids, np.int32), np.asarray(token_types, np.int32)
    for row, length in enumerate(np.asarray(lengths)):
        yield ids[row, :length].tobytes(), types[row, :length].tobytes()


def packed_inputs(packed: PackedInputs) -> set[Input]:
    """The distinct inputs of a shard."""
    batch = lay_out(packed, np.arange(len(packed)), int(packed.lengths.max()))
    return set(unpadded(*batch))


def check_inputs(ours: set[Input], theirs: set[Input]) -> None:
    """Compares the inputs of both sides.

    Raises:
        RuntimeError: they differ.
    """
    if ours != theirs:
        raise RuntimeError(
            f"of {len(ours)} distinct inputs of ours and {len(theirs)} of CrossEncoder's, "
            f"{len(ours & theirs)} are equal to the token: the rates would not be comparable"
        )


def check_log_odds(
    ours: npt.NDArray[np.float32],
    theirs: npt.NDArray[np.float32],
    theirs_off: npt.NDArray[np.float32],
) -> None:
    """Compares float32 log-odds.

    Args:
        ours: float32[n].
        theirs: float32[n].
        theirs_off: float32[m], the error of theirs against float64, for a sample of the pairs.

    Raises:
        RuntimeError: they differ by more than rounding.
    """
    rounding, differences = _root_mean_square(theirs_off), ours - theirs
    difference, largest = _root_mean_square(differences), float(np.abs(differences).max())
    if not (difference <= _MOST_ROUNDINGS * rounding and largest <= _MOST_OF_ONE * rounding):
        raise RuntimeError(
            "ours and CrossEncoder's float32 log-odds of the same inputs differ by "
            f"{difference:.2g} (root mean square) and by {largest:.2g} at most; rounding, "
            f"{rounding:.2g} in CrossEncoder's, explains no more than {_MOST_ROUNDINGS:g} and "
            f"{_MOST_OF_ONE:g} times that"
        )


def _root_mean_square(values: npt.NDArray[np.floating]) -> float:
    return float(np.sqrt(np.square(values, dtype=np.float64).mean()))
