"""Errors by their class, kind and place: docs/reference/errors.md shows a change of their words."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from beamrank.errors import BeamrankError


@contextmanager
def refuses(
    error: type[BeamrankError], kind: str, place: int | None = None, file: object = ""
) -> Iterator[pytest.ExceptionInfo[BeamrankError]]:
    """The block raises such an error; its file's name ends in `file`."""
    with pytest.raises(error) as caught:
        yield caught
    told = caught.value
    assert (told.kind, told.place) == (kind, place), f"{told.kind} {told.place}: {told}"
    assert told.file.endswith(str(file)), told.file
