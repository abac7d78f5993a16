"""TREC's SGML: <DOC> with <DOCNO> and the elements that hold text; a unit is a file."""

import html
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import BinaryIO

from beamrank.errors import DataError, PreflightError
from beamrank.formats import files
from beamrank.formats.checks import RowError, WrongFormatError, decoded
from beamrank.formats.texts.units import CorpusFormat, CorpusUnit, DocBatch, Fields, parse_rows, whole_file
from beamrank.storage.streams import open_stream

# Those of Anserini's TrecCollection.
TEXT_ELEMENTS = ("TEXT", "HEADLINE", "TITLE", "HL", "HEAD", "TTL", "DD", "DATE", "LP", "LEADPARA")

_READ_BYTES = 1 << 20
_BATCH_DOCS = 1024
_MAX_DOC_BYTES = 64 << 20
_END_OF_FILE = "\x1a"  # DOS's
_ATTRIBUTES = rb"(?:\s[^<>]{0,1000})?"
_OPENING = re.compile(rb"<doc" + _ATTRIBUTES + rb">", re.IGNORECASE)
_CLOSING = re.compile(rb"</doc\s{0,20}>", re.IGNORECASE)
_ELEMENT_NAME = re.compile(rb"<([A-Za-z][A-Za-z0-9_-]{0,40})[\s>]")
_ID_ATTRIBUTE = re.compile(r"<doc\s[^<>]*?\bid\s*=\s*[\"']([^\"'<>]*)[\"']", re.IGNORECASE)
# What is never closed ends with the doc: to look for its end again and again would take quadratic time.
_DOCNO = re.compile(r"<docno>(.*?)(?:</docno\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_HEADER_END = re.compile(r"</dochdr\s*>", re.IGNORECASE)
_NOT_TEXT = re.compile(
    r"<!--.*?(?:-->|\Z)|<(?P<name>script|style)\b.*?(?:</(?P=name)\s*>|\Z)", re.IGNORECASE | re.DOTALL
)
# Inside of words.
_INLINE_TAG = re.compile(r"</?(?:a|b|big|em|font|i|small|span|strong|sub|sup|tt|u)(?:\s[^<>]*)?>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-z!?][^<>]*>", re.IGNORECASE)


def _check(unit: CorpusUnit) -> None:
    with open_stream(unit.url) as file:
        beginning = file.read(_READ_BYTES)
    if beginning.strip() and not _OPENING.search(beginning):
        raise WrongFormatError(f"{unit.url} has no <DOC> in its first {len(beginning):,} bytes")
    found = {name.decode().upper() for name in _ELEMENT_NAME.findall(beginning)}
    missing = next((name for name in unit.fields or () if name.upper() not in found), None)
    if missing is not None:
        raise PreflightError(
            f"{unit.url} has no element <{missing}> of `corpus.fields` in its first {len(beginning):,} bytes; it has: "
            f"{', '.join(sorted(found))}"
        )


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    parse = _parser(unit.fields)
    with open_stream(unit.url) as file:
        parts = _parts(file, unit.url)
        while batch := list(islice(parts, _BATCH_DOCS)):
            yield parse_rows(unit, [line - 1 for line, _ in batch], [part for _, part in batch], parse)


def _parts(file: BinaryIO, url: str) -> Iterator[tuple[int, bytes]]:
    """Each doc from its <DOC> to its </DOC>, and any text between, with the line on which they begin."""
    line, last = 1, b""
    for part in _openings(file, url):
        if last:
            yield from _halves(line, last)
        line, last = line + last.count(b"\n"), part
    if _OPENING.match(last) and not _CLOSING.search(last):
        raise DataError(f"{url} is truncated: it ends inside of the doc that begins on line {line:,}. Fetch it again")
    yield from _halves(line, last)


def _openings(file: BinaryIO, url: str) -> Iterator[bytes]:
    """A file, cut before each <DOC>."""
    buffer = b""
    while block := file.read(_READ_BYTES):
        buffer += block
        starts = [found.start() for found in _OPENING.finditer(buffer) if found.start()]
        for start, end in zip([0, *starts], starts, strict=False):
            yield buffer[start:end]
        buffer = buffer[starts[-1] if starts else 0 :]
        if len(buffer) > _MAX_DOC_BYTES:
            raise DataError(f"{url} holds a doc of more than {_MAX_DOC_BYTES >> 20} MB: is its </DOC> missing?")
    yield buffer


def _halves(line: int, part: bytes) -> Iterator[tuple[int, bytes]]:
    """A doc, and the text after it if there is any; tags without text are none."""
    end = 0
    if _OPENING.match(part):
        closing = _CLOSING.search(part)
        end = closing.end() if closing else len(part)
        yield line, part[:end]
    rest = part[end:].lstrip()
    if _plain(rest.decode("utf-8", "replace")).strip(_END_OF_FILE):
        yield line + part.count(b"\n", 0, len(part) - len(rest)), rest


def _parser(fields: Fields) -> Callable[[bytes], tuple[str, str]]:
    """A function that reads the id and the text of a doc."""
    names = "|".join(map(re.escape, fields or TEXT_ELEMENTS))
    element = re.compile(rf"<({names})(?:\s[^<>]*)?>(.*?)(?:</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL)

    def parse(part: bytes) -> tuple[str, str]:
        doc_id, body = _id_and_body(_decoded(part))
        header = _HEADER_END.search(body)
        body = body[header.end() :] if header else body
        found = [each[2] for each in element.finditer(body)]
        if fields is None and (header or not found):
            return doc_id, _plain(body)
        return doc_id, " ".join(filter(None, map(_plain, found)))

    return parse


def _decoded(part: bytes) -> str:
    if not _OPENING.match(part):
        raise RowError("is text outside of <DOC> and </DOC>")
    if not _CLOSING.search(part):
        raise RowError("is not closed: the next <DOC> begins before its </DOC>")
    return decoded(part)


def _id_and_body(text: str) -> tuple[str, str]:
    number = _DOCNO.search(text)
    if number is not None:
        return number[1].strip(), text[number.end() :]
    attribute = _ID_ATTRIBUTE.match(text)
    if attribute is None:
        raise RowError("has neither <DOCNO> nor an attribute `id`")
    return attribute[1].strip(), text[attribute.end() :].partition(">")[2]


def _plain(text: str) -> str:
    """The text without tags, comments and scripts, entities replaced, white space collapsed."""
    without = _TAG.sub(" ", _INLINE_TAG.sub("", _NOT_TEXT.sub(" ", text)))
    return " ".join(html.unescape(without).split())


TREC = CorpusFormat(
    "trec",
    ("",),
    whole_file,
    _read,
    check=_check,
    look=files.TREC,
    not_docs=re.compile(r"(^|.*/)(readme[^/]*|dtds?/.*)"),
)
