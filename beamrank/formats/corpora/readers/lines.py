"""Line by line formats: units that are byte ranges, read in large blocks of whole lines."""

from collections.abc import Callable, Iterator
from typing import BinaryIO

import numpy as np

from beamrank.formats.corpora.units import CorpusFormat, CorpusUnit, DocBatch, WrongFormatError, parse_rows
from beamrank.formats.ids import BYTE_ORDER_MARK
from beamrank.formats.row_checks import RowError
from beamrank.storage import files as storage
from beamrank.storage.streams import compression, open_stream

_BLOCK_BYTES = 1 << 20
_CHECKED_BYTES = 1 << 18
_NEWLINE = ord("\n")

ParseLine = Callable[[str], tuple[str, str]]


def byte_ranges(url: str, unit_bytes: int) -> list[tuple[int, int]]:
    """A file split into ranges of `unit_bytes`; one range (0, 0) if it is compressed, none if it is empty."""
    size = storage.size_bytes(url)
    if compression(url) is not None:
        return [(0, 0)]
    return [(start, min(start + unit_bytes, size)) for start in range(0, size, unit_bytes)]


def read_lines(unit: CorpusUnit, parse: ParseLine) -> Iterator[DocBatch]:
    """The docs of the lines that begin in a unit; a header is none.

    Raises:
        DataError: the file cannot be read to its end.
    """
    with open_stream(unit.url) as file:
        if unit.end:
            for offset, block in _blocks_between(file, unit.start, unit.end):
                lines = _decoded_lines(block, first=offset == 0)
                skip = _header_end(lines) if unit.header and offset == 0 else 0
                yield parse_rows(unit, _line_starts(block, offset)[skip:], lines[skip:], _valid_only(parse))
            return
        ordinal = 0
        for block in _blocks(file):
            lines = _decoded_lines(block, first=ordinal == 0)
            skip = _header_end(lines) if unit.header and ordinal == 0 else 0
            yield parse_rows(unit, range(ordinal + skip, ordinal + len(lines)), lines[skip:], _valid_only(parse))
            ordinal += len(lines)


def check_lines(url: str, corpus_format: CorpusFormat, parse: ParseLine, header: bool = False) -> None:
    """Checks that something at the beginning of a file can be used.

    Raises:
        WrongFormatError: there are lines, but none is a doc.
    """
    with open_stream(url) as file:
        block = _whole_lines(file, _CHECKED_BYTES)
    end = 0 if compression(url) else len(block)
    lines = _decoded_lines(block, first=True) if block else []
    positions = _line_starts(block, 0) if end else list(range(len(lines)))
    unit = CorpusUnit(0, url, corpus_format, None, 0, end)
    skip = _header_end(lines) if header else 0
    batch = parse_rows(unit, positions[skip:], lines[skip:], _valid_only(parse))
    if batch.bad and not batch.doc_ids:
        first = batch.bad[0]
        raise WrongFormatError(
            f"none of the first {len(batch.bad)} lines of {url} can be read as `format: {corpus_format.name}`. "
            f"{first.place}: {first.reason}"
        )


def _header_end(lines: list[str | None]) -> int:
    """How many lines there are up to the header, the first that is not empty."""
    return next((number for number, line in enumerate(lines, 1) if line != ""), len(lines))


def _valid_only(parse: ParseLine) -> Callable[[str | None], tuple[str, str]]:
    def parse_valid(line: str | None) -> tuple[str, str]:
        if line is None:
            raise RowError("is not valid UTF-8")
        try:
            return parse(line)
        except RowError as error:
            if "\r" in line:
                raise RowError(
                    f"{error}; it holds a carriage return (CR), and lines must end in LF or CR LF"
                ) from error
            raise

    return parse_valid


def _blocks_between(file: BinaryIO, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Blocks of the lines that begin in [start, end), each with its offset."""
    offset = start
    if start:
        file.seek(start - 1)
        offset += len(file.readline()) - 1
    while offset < end:
        block = _whole_lines(file, min(_BLOCK_BYTES, end - offset))
        if not block:
            return
        yield offset, block
        offset += len(block)


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := _whole_lines(file, _BLOCK_BYTES):
        yield block


def _whole_lines(file: BinaryIO, size_bytes: int) -> bytes:
    """About `size_bytes` from the position of the file, up to the end of a line; empty at the end of the file."""
    block = file.read(size_bytes)
    return block if block.endswith(b"\n") or not block else block + file.readline()


def _decoded_lines(block: bytes, first: bool) -> list[str | None]:
    """The lines of a block without their line ends; None for one that is not valid UTF-8."""
    if first:
        block = block.removeprefix(BYTE_ORDER_MARK)
    lines: list[str | None]
    try:
        lines = list(block.decode().split("\n"))
    except UnicodeDecodeError:
        lines = [_decoded(line) for line in block.split(b"\n")]
    if block.endswith(b"\n"):
        lines.pop()
    if b"\r" in block:
        lines = [None if line is None else line.removesuffix("\r") for line in lines]
    return lines


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _line_starts(block: bytes, offset: int) -> list[int]:
    """The byte at which each line of a block begins; `offset` is the block's own."""
    ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == _NEWLINE) + 1
    return [offset, *(ends[ends < len(block)] + offset).tolist()]
