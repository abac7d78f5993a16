"""TREC topics: <top> with <num> and <title>, which is the text; or <DOC> with <DOCNO>, and the text after it."""

import re
from collections.abc import Iterator

from beamrank.formats.row_checks import RowError

_TAG = re.compile(rb"<(/?)(top|doc)\s{0,20}>", re.IGNORECASE)
_PARTS = re.compile(r"<(top|doc)\s*>(.*)</\1\s*>", re.IGNORECASE | re.DOTALL)
_OPENING = re.compile(r"<(top|doc)\s*>", re.IGNORECASE)
_DOCNO = re.compile(r"\s*<docno>(.*?)</docno>(.*)", re.IGNORECASE | re.DOTALL)
# A field of <top> ends at its closing tag, or where a line begins with another tag.
_FIELD = r"<{tag}>\s*(?:{label}:)?(.*?)(?:</{tag}>|^\s*</?[a-z]|\Z)"
_NUM = re.compile(_FIELD.format(tag="num", label="Number"), re.IGNORECASE | re.DOTALL | re.MULTILINE)
_TITLE = re.compile(_FIELD.format(tag="title", label="Topic"), re.IGNORECASE | re.DOTALL | re.MULTILINE)

# Where they are fields: at the beginning of a line, or after another tag.
_TOP_TAGS = {tag: re.compile(rf"(?:^[ \t]*|>[ \t]*)<{tag}>", re.IGNORECASE | re.MULTILINE) for tag in ("num", "title")}


def split(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The topics of a file and anything else between them, each with its line."""
    end = 0
    opening: re.Match[bytes] | None = None
    for tag in _TAG.finditer(content):
        if not tag[1]:
            opening = opening or tag
        elif opening is not None and tag[2].lower() == opening[2].lower():
            yield from _stray(content, end, opening.start())
            yield content.count(b"\n", 0, opening.start()) + 1, content[opening.start() : tag.end()]
            end, opening = tag.end(), None
    yield from _stray(content, end, len(content))


def _stray(content: bytes, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    stray = content[start:end].lstrip()
    if stray:
        yield content.count(b"\n", 0, end - len(stray)) + 1, stray


def parse(text: str) -> tuple[str, str]:
    """The number and the title of a topic, white space in it collapsed.

    Raises:
        RowError: it is not a topic.
    """
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise RowError("is not inside <top> and </top>, or <DOC> and </DOC>")
    tag, body = parts.groups()
    if _OPENING.search(body):
        raise RowError("is not closed before the next one begins")
    return _parse_doc(body) if tag.lower() == "doc" else _parse_top(body)


def _parse_doc(body: str) -> tuple[str, str]:
    match = _DOCNO.fullmatch(body)
    if match is None:
        raise RowError("does not begin with <DOCNO> and </DOCNO>")
    return match[1].strip(), _collapsed(match[2])


def _parse_top(body: str) -> tuple[str, str]:
    for tag, found in _TOP_TAGS.items():
        if len(found.findall(body)) > 1:
            raise RowError(f"has more than one <{tag}>: a </top> and a <top> may be missing between two topics")
    number, title = _NUM.search(body), _TITLE.search(body)
    if number is None or title is None:
        raise RowError(f"has no {'<num>' if number is None else '<title>'}")
    return number[1].strip(), _collapsed(title[1])


def _collapsed(text: str) -> str:
    return " ".join(text.split())
