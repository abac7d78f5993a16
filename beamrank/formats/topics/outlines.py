"""The sections of TREC CAR's outlines or pages in CBOR as topics."""

import io
from collections.abc import Iterator

from beamrank.errors import DataError
from beamrank.formats.corpora.readers.car_cbor import OUTLINES, read_items, section_paths
from beamrank.formats.row_checks import RowError


def split(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The id of each section, with the number of its outline.

    Raises:
        DataError: the content is damaged, or holds something else.
        PreflightError: it does not begin with an outline or a page.
    """
    for number, outline in enumerate(read_items(io.BytesIO(content), "the file", OUTLINES), 1):
        try:
            yield from ((number, path) for path in section_paths(outline))
        except RowError as error:
            raise DataError(f"item {number} of the file {error}") from error
