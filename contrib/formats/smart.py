"""SMART's files (CACM, CISI, Cranfield): `.I` and a number begin a record; `.T`, `.A`, `.B`, `.W`
are its fields.
"""

import re
from collections.abc import Iterator, Sequence

from beamrank.errors import PreflightError
from beamrank.formats.checks import Template, joined
from beamrank.formats.decode.base import BYTE_ORDER_MARK, Bad, RecordsDecoder, parsed
from beamrank.formats.files import Beginning, Format, InputFile, Look
from beamrank.formats.schemas import Hints
from beamrank.formats.values import RowError

# Title and text.
_TEXT_FIELDS = ("T", "W")
_BEGINS = re.compile(rb"\s*\.I\s+\S")
_RECORD = re.compile(rb"^\.I(?=\s|$)", re.MULTILINE)
_EMPTY_END = re.compile(rb"(?:^|(?<=\n))\.I\s*\Z")
_NUMBER = re.compile(r"\.I\s+(\S+)\s*")
_FIELD = re.compile(r"\.([A-Z])\s*")
_FIELDS = re.compile(rb"^\.([A-Z])\s*$", re.MULTILINE)


def _begins(beginning: Beginning) -> bool:
    return _BEGINS.match(beginning.content) is not None


def _split(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The records of a file, and any text before the first, each with its line; an empty `.I` at
    the end is none.
    """
    content = _EMPTY_END.sub(b"", content)
    starts = [match.start() for match in _RECORD.finditer(content)]
    line = 1
    for start, end in zip([0, *starts], [*starts, len(content)], strict=True):
        record = content[start:end]
        if record.strip():
            yield line, record
        line += record.count(b"\n")


def _parse(
    record: str, names: Sequence[str] = _TEXT_FIELDS, template: Template | None = None
) -> tuple[str, str]:
    """The number of a record, and the text of its fields with these letters, white space collapsed;
    one that it lacks is empty.
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
    return number[1], joined([" ".join(words.get(name, [])) for name in names], template)


def _open(file: InputFile, hints: Hints) -> RecordsDecoder:
    """The docs or topics of a file, which is one unit: such files are small."""

    def records(bad: Bad) -> Iterator[tuple[int, Sequence[str]]]:
        with file.source.open() as opened:
            content = opened.read().removeprefix(BYTE_ORDER_MARK)
        there = {name.decode() for name in _FIELDS.findall(content)}
        missing = next((name for name in hints.fields or () if name not in there), None)
        if missing is not None and there:
            raise PreflightError(
                f"no doc of {file.url} has the field `{missing}` of `corpus.fields`; they have: "
                f"{', '.join(sorted(there))}"
            )
        names = hints.fields or _TEXT_FIELDS
        parse = lambda record: _parse(record, names, hints.template)  # noqa: E731
        return parsed(_split(content), parse, bad, lone_cr=True)

    return RecordsDecoder(("id", "text"), records)


CORPUS = TOPICS = Format(
    Look("SMART's (it begins with .I)", _begins), _open, endings=(".all", ".dat", ".txt")
)
