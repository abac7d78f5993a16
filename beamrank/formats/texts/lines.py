"""Formats of packages with a doc or a topic a line, whose units are byte ranges, read in large
blocks.
"""

from collections.abc import Callable, Iterator

from beamrank.formats.checks import decoded
from beamrank.formats.decode.base import BYTE_ORDER_MARK
from beamrank.formats.decode.lines import (
    blocks_of,
    line_starts,
)
from beamrank.formats.texts.units import LONE_CR, CorpusUnit, DocBatch, parse_rows
from beamrank.formats.values import RowError, text_or_bytes
from beamrank.notes import counted
from beamrank.storage.streams import open_stream

_MOST_BLOCK_ROWS = 1 << 16

ParseLine = Callable[[str], tuple[str, str]]


def read_lines(unit: CorpusUnit, parse: ParseLine) -> Iterator[DocBatch]:
    """The docs or topics of the lines that begin in a unit."""
    with open_stream(unit.url) as file:
        for first, block in blocks_of(file, unit.start, unit.end):
            yield from _docs(unit, parse, block, first if unit.end else first - 1)


def _docs(unit: CorpusUnit, parse: ParseLine, block: bytes, first: int) -> Iterator[DocBatch]:
    """The docs of a block; `first` is the byte, or in a compressed file the number, of its first
    line.
    """
    lines = _decoded_lines(block.removeprefix(BYTE_ORDER_MARK) if first == 0 else block)
    positions = (
        line_starts(block, first).tolist() if unit.end else [*range(first, first + len(lines))]
    )
    if unit.of_topics:
        positions = [position for position, line in zip(positions, lines, strict=True) if line]
        lines = [line for line in lines if line]

    def parse_valid(line: str | bytes) -> tuple[str, str]:
        text = decoded(line) if isinstance(line, bytes) else line
        if "\r" not in text:
            return parse(text)
        if unit.of_topics:
            raise RowError(LONE_CR)
        try:
            return parse(text)
        except RowError as error:
            raise RowError(f"{error}; it {LONE_CR}") from error

    # A block of empty lines has a million rows, and a bad row is kept with its reason.
    for start in range(0, len(lines), _MOST_BLOCK_ROWS):
        rows = slice(start, start + _MOST_BLOCK_ROWS)
        yield parse_rows(unit, positions[rows], lines[rows], parse_valid)


def numbered_lines(url: str) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not empty, each with its number from 1, without line ends."""
    with open_stream(url) as file:
        for number, line in enumerate(file, 1):
            text = (
                (line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line)
                .removesuffix(b"\n")
                .removesuffix(b"\r")
            )
            if text:
                yield number, text


def _decoded_lines(block: bytes) -> list[str | bytes]:
    """The lines of a block without their line ends; bytes for one that is not valid UTF-8."""
    lines: list[str | bytes]
    try:
        lines = list(block.decode().split("\n"))
    except UnicodeDecodeError:
        lines = [text_or_bytes(line) for line in block.split(b"\n")]
    if block.endswith(b"\n"):
        lines.pop()
    if b"\r" in block:
        lines = [line.removesuffix("\r") if isinstance(line, str) else line for line in lines]
    return lines


def parse_tsv(line: str) -> tuple[str, str]:
    """The id and the text of a line; raises RowError if it does not have exactly two columns."""
    columns = line.split("\t")
    if len(columns) != 2:
        if not line:
            raise RowError("is empty")
        raise RowError(
            f"has {counted(len(columns), 'column')} where id<TAB>text, exactly 2, are expected"
        )
    return columns[0], columns[1]
