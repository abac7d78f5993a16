"""TREC's SGML and XML; a unit is a file.

Docs: <DOC> with <DOCNO> and the elements that hold text. Topics: <top> with <num> and <title>,
which is the text; <DOC> with <DOCNO>, and the text after it; <topic number="1"> with an element
<query> or <title>, or with only the text, as the Web, Clinical Trials and TREC-COVID tracks have
it.
"""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO

from beamrank.errors import DataError, PreflightError
from beamrank.formats.checks import Template, joined
from beamrank.formats.decode.base import (
    BYTE_ORDER_MARK,
    Bad,
    RecordsDecoder,
    WrongFormatError,
    parsed,
)
from beamrank.formats.files import Beginning, Format, InputFile, Look
from beamrank.formats.schemas import Hints, plain_name
from beamrank.formats.values import RowError

# As in Anserini's TrecCollection.
TEXT_ELEMENTS = ("TEXT", "HEADLINE", "TITLE", "HL", "HEAD", "TTL", "DD", "DATE", "LP", "LEADPARA")

# XML's declaration, comments and the element around all topics may come before the first one.
_BEGINS = re.compile(
    rb"\s*<(top|doc)\b|\s*<[^>]*>(?:[^<]*<[^>]*>){0,20}?[^<]*<topic\s[^>]*number\s*=|\s*<topic\s[^>]*number\s*=",
    re.I,
)
_READ_BYTES = 1 << 20
_MAX_DOC_BYTES = 64 << 20
_END_OF_FILE = "\x1a\ufeff"  # of DOS; byte order marks of files that were put together
_OPENED = re.compile(r"<doc(?:\s[^<>]{0,1000})?>", re.IGNORECASE)
_CLOSED = re.compile(r"</doc\s{0,20}>", re.IGNORECASE)
_OPENING, _CLOSING = (re.compile(tag.pattern.encode(), re.IGNORECASE) for tag in (_OPENED, _CLOSED))
_ELEMENT_NAME = re.compile(rb"<([A-Za-z][A-Za-z0-9_-]{0,40})[\s>]")
_ID_ATTRIBUTE = re.compile(r"<doc\s[^<>]*?\bid\s*=\s*[\"']([^\"'<>]*)[\"']", re.IGNORECASE)
# An element that is never closed ends with the doc: to look for its end again and again would take
# quadratic time.
_DOCNO = re.compile(r"<docno>(.*?)(?:</docno\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_HEADER_END = re.compile(r"</dochdr\s*>", re.IGNORECASE)
_NOT_TEXT = re.compile(
    r"<!--.*?(?:-->|\Z)|<(?P<name>script|style)\b.*?(?:</(?P=name)\s*>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
# Inside of words.
_INLINE_TAG = re.compile(
    r"</?(?:a|b|big|em|font|i|small|span|strong|sub|sup|tt|u)(?:\s[^<>]*)?>", re.IGNORECASE
)
_TAG = re.compile(r"</?[a-z!?][^<>]*>", re.IGNORECASE)

_TOPIC_TAG = re.compile(rb"<(/?)(top|doc|topic)(?:\s[^<>]{0,1000})?>", re.IGNORECASE)
_TOPIC = re.compile(r"<(top|doc|topic)\b([^>]*)>(.*)</\1\s*>", re.IGNORECASE | re.DOTALL)
_NESTED = re.compile(r"<(?:top|doc)\s*>|<topic\b", re.IGNORECASE)
_NUMBER = re.compile(r"\bnumber\s*=\s*([\"'])(.*?)\1", re.IGNORECASE | re.DOTALL)
# Parts that may be around the topics: the declaration of XML, comments, the element that holds them
# all.
_AROUND = re.compile(
    rb"<!--.*?-->|<\?[^>]*>|</?(?!(?:top|doc|topic)\b)[a-z][^<>]*>", re.IGNORECASE | re.DOTALL
)
# A field of <top> ends at its closing tag, or where a line begins with a different tag.
_FIELD = r"<{tag}>\s*(?:{label}:)?(.*?)(?:</{tag}>|^\s*</?[a-z]|\Z)"
_FLAGS = re.IGNORECASE | re.DOTALL | re.MULTILINE
# The label that begins the text of a field, if it is not its own name.
_LABELS = {
    "num": "Number",
    "dom": "Domain",
    "title": "Topic",
    "desc": "Description",
    "smry": "Summary",
    "narr": "Narrative",
    "con": "Concept(s)",
    "fac": "Factor(s)",
    "def": "Definition(s)",
}
# The places where a tag is a field: at the beginning of a line, or after a different tag.
_AS_FIELD = re.compile(r"(?:^|(?<=>))[ \t]*<([a-z][\w.-]*)>", re.IGNORECASE | re.MULTILINE)
_TOPIC_DOCNO = re.compile(r"\s*<docno>(.*?)</docno>(.*)", re.IGNORECASE | re.DOTALL)
_ELEMENT = re.compile(r"<([a-z_][\w.-]*)[^>]*?(?:/>|>(.*?)</\1\s*>)", re.IGNORECASE | re.DOTALL)
_TAGS = {"top": _AS_FIELD, "topic": _ELEMENT}
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_QUERY_ELEMENTS = ("query", "title")


def _open(file: InputFile, hints: Hints) -> RecordsDecoder:
    fields, parse = hints.fields, _parser(hints.fields, hints.template)

    def records(bad: Bad) -> Iterator[tuple[int, Sequence[Any]]]:
        with file.source.open() as opened:
            yield from parsed(_parts(opened, file.url, fields or ()), parse, bad, lone_cr=True)

    return RecordsDecoder(("doc_id", "text"), records)


def _parts(file: BinaryIO, url: str, fields: Sequence[str]) -> Iterator[tuple[int, bytes]]:
    """Each doc from its <DOC> to its </DOC>, and any text between, with the line on which they
    begin.
    """
    line, last = 1, b""
    for part in _openings(file, url, fields):
        if last:
            yield from _halves(line, last)
        line, last = line + last.count(b"\n"), part
    if _OPENING.match(last) and not _CLOSING.search(last):
        raise DataError(
            f"{url} is truncated: it ends inside of the doc that begins on line {line:,}. Fetch "
            "it again",
            kind="truncated",
            file=url,
        )
    yield from _halves(line, last)


def _check_beginning(beginning: bytes, url: str, fields: Sequence[str]) -> None:
    if beginning.strip() and not _OPENING.search(beginning):
        raise WrongFormatError(f"{url} has no <DOC> in its first {len(beginning):,} bytes")
    elements = (
        {name.decode().upper() for name in _ELEMENT_NAME.findall(beginning)} if fields else ()
    )
    missing = next((name for name in fields if name.upper() not in elements), None)
    if missing is not None and elements:
        raise PreflightError(
            f"{url} has no element <{missing}> of `corpus.fields` in its first "
            f"{len(beginning):,} bytes; it has: {', '.join(sorted(elements))}"
        )


def _openings(file: BinaryIO, url: str, fields: Sequence[str]) -> Iterator[bytes]:
    """A file, cut before each <DOC>."""
    buffer = b""
    for number, block in enumerate(iter(lambda: file.read(_READ_BYTES), b"")):
        if not number:
            _check_beginning(block, url, fields)
        buffer += block
        starts = [opening.start() for opening in _OPENING.finditer(buffer) if opening.start()]
        for start, end in zip([0, *starts], starts, strict=False):
            yield buffer[start:end]
        buffer = buffer[starts[-1] if starts else 0 :]
        if len(buffer) > _MAX_DOC_BYTES:
            raise DataError(
                f"{url} holds a doc of more than {_MAX_DOC_BYTES >> 20} MB: is its </DOC> missing?"
            )
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


def _parser(
    fields: Sequence[str] | None, template: Template | None
) -> Callable[[str], tuple[str, str]]:
    """A function that reads the id and the text of a doc."""
    names = "|".join(map(re.escape, fields or TEXT_ELEMENTS))
    element = re.compile(
        rf"<({names})(?:\s[^<>]*)?>(.*?)(?:</\1\s*>|\Z)", re.IGNORECASE | re.DOTALL
    )

    def parse(part: str) -> tuple[str, str]:
        if not _OPENED.match(part):
            raise RowError("is text outside of <DOC> and </DOC>")
        if not _CLOSED.search(part):
            raise RowError("is not closed: the next <DOC> begins before its </DOC>")
        doc_id, body = _id_and_body(part)
        header = _HEADER_END.search(body)
        body = body[header.end() :] if header else body
        texts = [match[2] for match in element.finditer(body)]
        if fields is None and (header or not texts):
            return doc_id, _plain(body)
        if fields is None or template is None:
            return doc_id, joined(list(map(_plain, texts)))
        named = [(match[1].upper(), _plain(match[2])) for match in element.finditer(body)]
        return doc_id, joined(
            [joined([text for tag, text in named if tag == name.upper()]) for name in fields],
            template,
        )

    return parse


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


def _open_topics(file: InputFile, hints: Hints) -> RecordsDecoder:
    def topics() -> Iterator[tuple[int, bytes]]:
        with file.source.open() as opened:
            content = opened.read().removeprefix(BYTE_ORDER_MARK)
        return _topics_in(content)

    # Of templates; the query is the text.
    fields = {*map(plain_name, hints.names.values())} - {"text"}
    tags = dict.fromkeys(tag for _, topic in topics() for tag in _tags(topic)) if fields else {}
    wanted = tuple(tag for tag in tags if plain_name(tag) in fields)
    names = wanted if len(wanted) >= len(fields) else tuple(tags)
    parse = partial(_parse_topic, names)
    return RecordsDecoder(("query_id", "text", *names), lambda bad: parsed(topics(), parse, bad))


def _tags(topic: bytes) -> list[str]:
    """The names of the fields of a topic, in lower case."""
    parts = _TOPIC.fullmatch(topic.decode("utf-8", "replace"))
    tag = parts and _TAGS.get(parts[1].lower())
    return [match[1].lower() for match in tag.finditer(parts[3])] if parts and tag else []


def _topics_in(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The topics of a file, and any text between them, each with its line."""
    line, end = 1, 0
    for start, stop in [*_topic_spans(content), (len(content), len(content))]:
        between = content[end:start]
        if _AROUND.sub(b"", between).strip():
            stray = between.lstrip()
            yield line + between.count(b"\n", 0, len(between) - len(stray)), stray
        line += between.count(b"\n")
        if start < stop:
            yield line, content[start:stop]
        line, end = line + content.count(b"\n", start, stop), stop


def _topic_spans(content: bytes) -> Iterator[tuple[int, int]]:
    opening: re.Match[bytes] | None = None
    for tag in _TOPIC_TAG.finditer(content):
        if not tag[1]:
            opening = opening or tag
        elif opening is not None and tag[2].lower() == opening[2].lower():
            yield opening.start(), tag.end()
            opening = None


def _parse_topic(names: Sequence[str], text: str) -> list[str | None]:
    """The number of a topic, its query and the fields with these names, white space in them
    collapsed; only a topic without such names must have a query.
    """
    topic = _TOPIC.fullmatch(text)
    number = topic and _NUMBER.search(topic[2])
    if topic is None or (number is None) == (topic[1].lower() == "topic"):
        raise RowError(
            "is not inside <top> and </top>, <topic number> and </topic>, or <DOC> and </DOC>",
            "outside",
        )
    body, fields = topic[3], list[tuple[str, str]]()
    if _NESTED.search(body):
        raise RowError("is not closed before the next one begins", "not-closed")
    if topic[1].lower() == "doc":
        match = _TOPIC_DOCNO.fullmatch(body)
        if match is None:
            raise RowError("does not begin with <DOCNO> and </DOCNO>", "tag-missing")
        query_id, query = match[1], match[2]
    elif number is not None:
        query_id, query, fields = number[2], *_elements(body)
    else:
        query_id, query, fields = _fields(body, names)
    if query is None and not names:
        others = ", ".join(dict.fromkeys(f"<{tag}>" for tag, _ in fields))
        raise RowError(
            f"has neither <{'> nor <'.join(_QUERY_ELEMENTS)}>; it has: {others}. Write the topics "
            "as `tsv`, with the text that is the query",
            "no-query",
        )
    texts = [" ".join(text for tag, text in fields if tag == name) for name in names]
    return [query_id.strip(), *(text and " ".join(text.split()) for text in (query, *texts))]


def _elements(body: str) -> tuple[str | None, list[tuple[str, str]]]:
    """The query of a topic, if it has one, and its elements."""
    body = _CDATA.sub(lambda section: html.escape(section[1]), body)
    elements = [
        (field[1].lower(), html.unescape(field[2] or "")) for field in _ELEMENT.finditer(body)
    ]
    queries = (text for name in _QUERY_ELEMENTS for tag, text in elements if tag == name)
    return next(queries, None) if elements else html.unescape(body), elements


def _fields(body: str, names: Sequence[str]) -> tuple[str, str | None, list[tuple[str, str]]]:
    """The number of a topic, its title, and its fields with some names."""
    by_tag = {
        tag: re.findall(
            _FIELD.format(tag=re.escape(tag), label=re.escape(_LABELS.get(tag, tag))), body, _FLAGS
        )
        for tag in ("num", "title", *names)
    }
    for tag in ("num", "title"):
        if len(re.findall(rf"(?:^[ \t]*|>[ \t]*)<{tag}>", body, _FLAGS)) > 1:
            raise RowError(
                f"has more than one <{tag}>: a </top> and a <top> may be missing between "
                "two topics",
                "tag-twice",
            )
        if not by_tag[tag] and (tag == "num" or not names):
            raise RowError(f"has no <{tag}>", "tag-missing")
    texts = [(tag, text) for tag, texts_of_tag in by_tag.items() for text in texts_of_tag]
    return by_tag["num"][0], next(iter(by_tag["title"]), None), texts


def _is_trec(beginning: Beginning) -> bool:
    return _BEGINS.match(beginning.content) is not None


_LOOK = Look("TREC's (<top>, <topic number> or <DOC>)", _is_trec)
TREC = Format(_LOOK, _open, endings=("",), not_docs=re.compile(r"(^|.*/)(readme[^/]*|dtds?/.*)"))
TOPICS = Format(_LOOK, _open_topics)
