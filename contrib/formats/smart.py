"""SMART's files (CACM, CISI, Cranfield): `.I` and a number begin a record; `.T`, `.A`, `.B`, `.W`
are its fields.
"""

import re
from collections.abc import Iterator

from beamrank.errors import PreflightError
from beamrank.formats.checks import Template, joined
from beamrank.formats.decode.base import BYTE_ORDER_MARK, WrongFormatError
from beamrank.formats.files import Beginning, Look
from beamrank.formats.texts.units import CorpusUnit, DocBatch, TextFormat, parse_texts, whole_file
from beamrank.formats.values import RowError
from beamrank.storage.streams import open_stream

# Title and text.
_TEXT_FIELDS = ("T", "W")
_CHECKED_BYTES = 1 << 18
_BEGINS = re.compile(rb"\s*\.I\s+\S")
_RECORD = re.compile(rb"^\.I(?=\s|$)", re.MULTILINE)
_EMPTY_END = re.compile(rb"(?:^|(?<=\n))\.I\s*\Z")
_NUMBER = re.compile(r"\.I\s+(\S+)\s*")
_FIELD = re.compile(r"\.([A-Z])\s*")


def _begins(beginning: Beginning) -> bool:
    return _BEGINS.match(beginning.content) is not None


def _split(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The records of a file, and any text before the first, each with its line; an empty `.I` at
    the end is none.
    """
    content = _EMPTY_END.sub(b"", content)
    starts = [found.start() for found in _RECORD.finditer(content)]
    line = 1
    for start, end in zip([0, *starts], [*starts, len(content)], strict=True):
        record = content[start:end]
        if record.strip():
            yield line, record
        line += record.count(b"\n")


def _fields_of(record: str) -> tuple[str, dict[str, str]]:
    """The number of a record, and its fields by their letters, white space collapsed."""
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


def _parse(
    record: str, names: tuple[str, ...] = _TEXT_FIELDS, template: Template | None = None
) -> tuple[str, str]:
    """The number of a record, and the text of its fields with these letters; one that it lacks is
    empty.
    """
    number, fields = _fields_of(record)
    return number, joined([fields.get(name, "") for name in names], template)


def _check(unit: CorpusUnit) -> None:
    with open_stream(unit.url) as file:
        beginning = file.read(_CHECKED_BYTES).removeprefix(BYTE_ORDER_MARK)
    found: set[str] = set()
    docs = 0
    for _, record in _split(beginning):
        try:
            found.update(_fields_of(record.decode("utf-8", "replace"))[1])
            docs += 1
        except RowError as error:
            if not docs:
                raise WrongFormatError(
                    f"{unit.url} does not hold SMART's records: its beginning {error}"
                ) from error
    missing = next((name for name in unit.fields or () if name not in found), None)
    if missing is not None and docs:
        raise PreflightError(
            f"none of the first {docs} docs of {unit.url} has the field `{missing}` of "
            f"`corpus.fields`; they have: {', '.join(sorted(found))}"
        )


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    """The docs or topics of a file, which is one unit: such files are small."""
    with open_stream(unit.url) as file:
        content = file.read().removeprefix(BYTE_ORDER_MARK)
    names = unit.fields or _TEXT_FIELDS
    yield parse_texts(unit, _split(content), lambda record: _parse(record, names, unit.template))


CORPUS = TOPICS = TextFormat(
    "smart",
    (".all", ".dat", ".txt"),
    whole_file,
    _read,
    check=_check,
    look=Look("SMART's (it begins with .I)", _begins),
    noun="record",
)
