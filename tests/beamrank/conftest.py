"""What the tests of the core share."""

import pytest


@pytest.fixture(autouse=True)
def _small_blocks_are_read_as_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of tests are small, and would all be read row by row."""
    monkeypatch.setattr("beamrank.formats.decode.lines.SMALL_BYTES", 1)
    monkeypatch.setattr("beamrank.formats.decode.json_rows.SMALL_BYTES", 1)
