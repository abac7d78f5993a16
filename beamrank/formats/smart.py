"""SMART's files (CACM, CISI, Cranfield): `.I` and a number begin a record; `.T`, `.A`, `.B`, `.W` are its fields."""

import re
from collections.abc import Iterator

from beamrank.formats.row_checks import RowError

# Title and text.
TEXT_FIELDS = ("T", "W")

_RECORD = re.compile(rb"^\.I(?=\s|$)", re.MULTILINE)
_EMPTY_END = re.compile(rb"(?:^|(?<=\n))\.I\s*\Z")
_NUMBER = re.compile(r"\.I\s+(\S+)\s*")
_FIELD = re.compile(r"\.([A-Z])\s*")


def split(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The records of a file, and any text before the first, each with its line; an empty `.I` at the end is none."""
    content = _EMPTY_END.sub(b"", content)
    starts = [found.start() for found in _RECORD.finditer(content)]
    line = 1
    for start, end in zip([0, *starts], [*starts, len(content)], strict=True):
        record = content[start:end]
        if record.strip():
            yield line, record
        line += record.count(b"\n")


def fields_of(record: str) -> tuple[str, dict[str, str]]:
    """The number of a record, and its fields by their letters, white space collapsed.

    Raises:
        RowError: it does not begin with `.I` and a number.
    """
    first, *lines = record.split("\n")
    number = _NUMBER.fullmatch(first)
    if number is None:
        raise RowError("does not begin with `.I` and a number")
    words: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        name = _FIELD.fullmatch(line)
        if name:
            current = words.setdefault(name[1], [])
        else:
            current += line.split()
    return number[1], {name: " ".join(found) for name, found in words.items()}


def parse(record: str, names: tuple[str, ...] = TEXT_FIELDS) -> tuple[str, str]:
    """The number of a record, and the text of its fields with these letters; one that it lacks is left out.

    Raises:
        RowError: it does not begin with `.I` and a number.
    """
    number, fields = fields_of(record)
    return number, " ".join(filter(None, (fields.get(name) for name in names)))
