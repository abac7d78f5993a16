"""TREC topics: <top> with <num> and <title>, which is the text; <DOC> with <DOCNO>, and the text after it; XML.

The XML of the Web, Clinical Trials and TREC-COVID tracks has <topic number="1"> with an element <query> or <title>, or
with only the text.
"""

import html
import re
from collections.abc import Iterator

from beamrank.formats import files
from beamrank.formats.checks import RowError
from beamrank.formats.texts.topics import Topics, TopicsFile, TopicsFormat, parse_topics

_TAG = re.compile(rb"<(/?)(top|doc)\s{0,20}>", re.IGNORECASE)
_PARTS = re.compile(r"<(top|doc)\s*>(.*)</\1\s*>", re.IGNORECASE | re.DOTALL)
_OPENING = re.compile(r"<(top|doc)\s*>", re.IGNORECASE)
_DOCNO = re.compile(r"\s*<docno>(.*?)</docno>(.*)", re.IGNORECASE | re.DOTALL)
# A field of <top> ends at its closing tag, or where a line begins with a different tag.
_FIELD = r"<{tag}>\s*(?:{label}:)?(.*?)(?:</{tag}>|^\s*</?[a-z]|\Z)"
_NUM = re.compile(_FIELD.format(tag="num", label="Number"), re.IGNORECASE | re.DOTALL | re.MULTILINE)
_TITLE = re.compile(_FIELD.format(tag="title", label="Topic"), re.IGNORECASE | re.DOTALL | re.MULTILINE)

# Where they are fields: at the beginning of a line, or after a different tag.
_TOP_TAGS = {tag: re.compile(rf"(?:^[ \t]*|>[ \t]*)<{tag}>", re.IGNORECASE | re.MULTILINE) for tag in ("num", "title")}
_TOPIC_XML = re.compile(rb"<topic\s[^>]*?\bnumber\s*=\s*[\"'][^>]*>.*?</topic\s*>", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"<topic\s[^>]*?\bnumber\s*=\s*([\"'])(.*?)\1[^>]*>(.*)</topic\s*>", re.IGNORECASE | re.DOTALL)
# What is around the topics: the declaration of XML, comments, the element that holds them all.
_AROUND = re.compile(rb"<!--.*?-->|<\?[^>]*>|</?[a-z][^<>]*>", re.IGNORECASE | re.DOTALL)
_ELEMENT = re.compile(r"<([a-z_][\w.-]*)[^>]*?(?:/>|>(.*?)</\1\s*>)", re.IGNORECASE | re.DOTALL)
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_QUERY_ELEMENTS = ("query", "title")


def _split(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The topics of a file and anything else between them, each with its line."""
    if _TOPIC_XML.search(content):
        yield from _split_xml(content)
        return
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


def _split_xml(content: bytes) -> Iterator[tuple[int, bytes]]:
    line, end = 1, 0
    for topic in [*_TOPIC_XML.finditer(content), None]:
        between = content[end : topic.start() if topic else len(content)]
        stray = re.sub(rb"<topic\b", b"topic ", between, flags=re.IGNORECASE)
        if _AROUND.sub(b"", stray).strip():
            yield line, between.strip()
        line += between.count(b"\n")
        if topic:
            yield line, topic[0]
            line, end = line + topic[0].count(b"\n"), topic.end()


def _stray(content: bytes, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    stray = content[start:end].lstrip()
    if stray:
        yield content.count(b"\n", 0, end - len(stray)) + 1, stray


def _parse(text: str) -> tuple[str, str]:
    """The number and the title of a topic, white space in it collapsed.

    Raises:
        RowError: it is not a topic.
    """
    topic = _NUMBER.fullmatch(text)
    if topic is not None:
        return topic[2].strip(), _topic_text(topic[3])
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise RowError("is not inside <top> and </top>, <topic number> and </topic>, or <DOC> and </DOC>")
    tag, body = parts.groups()
    if _OPENING.search(body):
        raise RowError("is not closed before the next one begins")
    return _parse_doc(body) if tag.lower() == "doc" else _parse_top(body)


def _topic_text(body: str) -> str:
    body = _CDATA.sub(lambda section: html.escape(section[1]), body)
    if re.search(r"<topic\b", body, re.IGNORECASE):
        raise RowError("is not closed before the next one begins")
    elements = {found[1].lower(): found[2] or "" for found in reversed(list(_ELEMENT.finditer(body)))}
    name = next((name for name in _QUERY_ELEMENTS if name in elements), None)
    if name is None and elements:
        names = ", ".join(f"<{name}>" for name in reversed(elements))
        raise RowError(
            f"has neither <{'> nor <'.join(_QUERY_ELEMENTS)}>; it has: {names}. Write the topics as `tsv`, with the "
            "text that is the query"
        )
    return _collapsed(html.unescape(body if name is None else elements[name]))


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


def _read(file: TopicsFile) -> Topics:
    return parse_topics(_split(file.content), _parse)


TREC = TopicsFormat(_read, look=files.TREC, noun="topic")
