"""Which parameters of a test belong to the second tier."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def slow_but(quick: int | Sequence[Any], values: Iterable[Any]) -> list[Any]:
    """Parameters of a test of which all are slow but the first so many, or these, since the others
    repeat them.
    """
    return [
        value if (at < quick if isinstance(quick, int) else value in quick) else _slow(value)
        for at, value in enumerate(values)
    ]


def _slow(value: Any) -> Any:
    if hasattr(value, "values") and hasattr(value, "marks"):
        return pytest.param(*value.values, id=value.id, marks=[*value.marks, pytest.mark.slow])
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
