"""Errors by their class, kind and place: docs/reference/errors.md shows a change of their words."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from beamrank.errors import BeamrankError


@contextmanager
def refuses(error: type[BeamrankError], kind: str, place: int | None = None) -> Iterator[None]:
    """The block raises such an error."""
    with pytest.raises(error) as caught:
        yield
    assert (caught.value.kind, caught.value.place) == (kind, place), caught.value
