"""What makes two rates comparable: both sides read the same inputs, and differ no more than float32 rounds.

Log-odds alone do not tell other inputs from rounding: how much of it a checkpoint makes is its own, 1e-5 of one that
was trained and 1e-2 of `embedded:mono`. So the inputs are compared token by token, and the log-odds' limit comes from
float64.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from beamrank.ranking.input_layout import PackedInputs, lay_out

Input = tuple[bytes, bytes]
"""The int32 token ids of an input without padding, and its token types."""

_MOST_ROUNDINGS = 3.0
"""Of all pairs together: two sides that round alike and independently differ by 1.4 times what one is off."""
_MOST_OF_ONE = 20.0
"""Of any one pair: rounding has a long tail."""


def unpadded(token_ids: npt.ArrayLike, token_types: npt.ArrayLike, lengths: npt.ArrayLike) -> Iterator[Input]:
    """Yields the inputs of a padded batch.

    Args:
        token_ids: int[b, width], padded on the right.
        token_types: int[b, width].
        lengths: int[b], of each input in tokens.
    """
    ids, types = np.asarray(token_ids, np.int32), np.asarray(token_types, np.int32)
    for row, length in enumerate(np.asarray(lengths)):
        yield ids[row, :length].tobytes(), types[row, :length].tobytes()


def packed_inputs(packed: PackedInputs) -> set[Input]:
    """The different inputs of a shard."""
    batch = lay_out(packed, np.arange(len(packed)), int(packed.lengths.max()))
    return set(unpadded(*batch))


def check_inputs(ours: set[Input], theirs: set[Input]) -> None:
    """Compares to the token.

    Raises:
        RuntimeError: a side has an input that the other has not.
    """
    if ours != theirs:
        raise RuntimeError(
            f"of {len(ours)} different inputs of ours and {len(theirs)} of CrossEncoder's, {len(ours & theirs)} are "
            "the same to the token: the rates would be of different work"
        )


def check_log_odds(
    ours: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32], theirs_off: npt.NDArray[np.float32]
) -> None:
    """Compares float32 log-odds.

    Args:
        ours: float32[n].
        theirs: float32[n].
        theirs_off: float32[m], what theirs are off in a sample of the pairs: less what float64 gives.

    Raises:
        RuntimeError: they differ more than rounding can make them.
    """
    rounding, differences = _root_mean_square(theirs_off), ours - theirs
    difference, largest = _root_mean_square(differences), float(np.abs(differences).max())
    if not (difference <= _MOST_ROUNDINGS * rounding and largest <= _MOST_OF_ONE * rounding):
        raise RuntimeError(
            f"ours and CrossEncoder's float32 log-odds of the same inputs differ by {difference:.2g} (root mean "
            f"square) and by {largest:.2g} at most; rounding, {rounding:.2g} in CrossEncoder's, explains no more than "
            f"{_MOST_ROUNDINGS:g} and {_MOST_OF_ONE:g} times that"
        )


def _root_mean_square(values: npt.NDArray[np.floating]) -> float:
    return float(np.sqrt(np.square(values, dtype=np.float64).mean()))
