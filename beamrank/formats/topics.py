"""Topics: TSV, JSONL, BEIR, TREC and TREC CAR. There are few, so anything wrong with one is an error."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import unquote

from beamrank.errors import PreflightError
from beamrank.formats.config import TopicsConfig
from beamrank.formats.corpora import beir, tsv
from beamrank.formats.corpora.lines import BYTE_ORDER_MARK
from beamrank.formats.corpora.row_checks import RowError, check_surrogates, id_of, json_object, missing_field, text_of
from beamrank.formats.guess import topics_hint
from beamrank.formats.ids import IdError, check_query_id
from beamrank.formats.problems import Problems
from beamrank.records import Topic
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as, open_stream

_HINT_BYTES = 1 << 16

_LONE_CR = re.compile(rb"\r(?!\n)")
_TREC_TAG = re.compile(rb"<(/?)(top|doc)\s{0,20}>", re.IGNORECASE)
_TREC_PARTS = re.compile(r"<(top|doc)\s*>(.*)</\1\s*>", re.IGNORECASE | re.DOTALL)
_TREC_OPENING = re.compile(r"<(top|doc)\s*>", re.IGNORECASE)
_DOCNO = re.compile(r"\s*<docno>(.*?)</docno>(.*)", re.IGNORECASE | re.DOTALL)
# A field of <top> ends at its closing tag, or where a line begins with another tag.
_FIELD = r"<{tag}>\s*(?:{label}:)?(.*?)(?:</{tag}>|^\s*</?[a-z]|\Z)"
_NUM = re.compile(_FIELD.format(tag="num", label="Number"), re.IGNORECASE | re.DOTALL | re.MULTILINE)
_TITLE = re.compile(_FIELD.format(tag="title", label="Topic"), re.IGNORECASE | re.DOTALL | re.MULTILINE)

# Where they are fields: at the beginning of a line, or after another tag.
_TOP_TAGS = {tag: re.compile(rf"(?:^[ \t]*|>[ \t]*)<{tag}>", re.IGNORECASE | re.MULTILINE) for tag in ("num", "title")}


class _Row(NamedTuple):
    """One topic as it stands in the file, and the line on which it begins."""

    line: int
    content: bytes


def read_topics(config: TopicsConfig) -> list[Topic]:
    """Reads all topics, in the order of the file; ids are kept to the letter.

    A file may be compressed with gzip, bzip2, xz or zstd. Empty lines between topics are skipped. The formats:

    * tsv: id<TAB>text.
    * jsonl: one object a line, with `query_id`, `_id` or `id` (an integer becomes its decimal digits), and `text` or
      `query`.
    * beir: one object a line, with `_id` and `text`, or the folder that holds the file as queries.jsonl. All its
      queries are topics, though the qrels of one split judge only some of them.
    * trec: <top> with <num> and <title>, which is the text; or <DOC> with <DOCNO>, the text being all that follows it.
      Whitespace in the text is collapsed.
    * car: one id a line; the text is the id without a leading `enwiki:`, percent-decoded, with each `/` a space.

    Raises:
        PreflightError: the file cannot be read or holds no topics, or some cannot be used: no text, a duplicate
            query_id, one that breaks the rule of formats/ids.py, invalid UTF-8, wrong columns. It counts the problems
            and shows the first of each kind.
    """
    url = topics_file(config)
    with errors_as(PreflightError, url), open_stream(url) as file:
        content = file.read().removeprefix(BYTE_ORDER_MARK)
    rows = _trec_rows(content) if config.format == "trec" else _line_rows(content)
    topics, problems = _parsed(rows, _PARSERS[config.format], config.format)
    if topics and not problems.count:
        return topics
    hint = topics_hint(content[:_HINT_BYTES], config.format)
    if problems.count:
        noun = "topic" if config.format == "trec" else "line"
        total = f"1 {noun}" if problems.count == 1 else f"{problems.count:,} {noun}s"
        raise PreflightError(
            f"{total} of {url} cannot be read as topics of `format: {config.format}`{hint}{problems.listed(f'{url}:')}"
        )
    raise PreflightError(f"{url} holds no topics (read as `format: {config.format}`): there is nothing to rank{hint}")


def topics_file(config: TopicsConfig) -> str:
    """The file that holds the topics.

    Raises:
        PreflightError: it does not exist, or there is more than one.
    """
    if not storage.exists(config.path):
        raise PreflightError(f"there are no topics at {config.path}: give `topics.path` a file")
    if not storage.is_folder(config.path):
        return config.path
    if config.format != "beir":
        is_beir = any(name.startswith("queries.jsonl") for name in storage.sizes_bytes(config.path))
        hint = ", or set `topics.format: beir` for the queries.jsonl in it" if is_beir else ""
        raise PreflightError(f"the topics {config.path} are a folder: give `topics.path` a file{hint}")
    return beir.member(config.path, "queries.jsonl")


def _parsed(
    rows: Iterator[_Row], parse: Callable[[str], tuple[str, str]], topics_format: str
) -> tuple[list[Topic], Problems]:
    """The topics that can be used, and what is wrong with the others."""
    topics: list[Topic] = []
    problems = Problems()
    lines: dict[str, int] = {}
    for row in rows:
        try:
            topic = _checked(*parse(_decoded(row.content)))
            if topic.query_id in lines:
                hint = " (`sort -u` leaves one of each)" if topics_format == "car" else ""
                raise RowError(f"has the query_id {topic.query_id!r}, which line {lines[topic.query_id]} has too{hint}")
        except (RowError, IdError) as error:
            problems.add(row.line, f"the topic {error}")
            continue
        lines[topic.query_id] = row.line
        topics.append(topic)
    return topics, problems


def _decoded(content: bytes) -> str:
    if _LONE_CR.search(content):
        raise RowError("holds a carriage return (CR) without a line feed. Lines must end in LF or CR LF")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise RowError(f"is not valid UTF-8 (byte 0x{content[error.start]:02x})") from error


def _checked(query_id: str, text: str) -> Topic:
    check_query_id(query_id)
    if "\0" in text:
        raise RowError(f"{query_id!r} has a NUL character in its text")
    if not text.strip():
        raise RowError(f"{query_id!r} has no text")
    return Topic(query_id, text)


def _line_rows(content: bytes) -> Iterator[_Row]:
    for number, line in enumerate(content.split(b"\n"), start=1):
        line = line.removesuffix(b"\r")
        if line:
            yield _Row(number, line)


def _trec_rows(content: bytes) -> Iterator[_Row]:
    """The topics of a TREC file, and whatever else stands between them."""
    end = 0
    opening: re.Match[bytes] | None = None
    for tag in _TREC_TAG.finditer(content):
        if not tag[1]:
            opening = opening or tag
        elif opening is not None and tag[2].lower() == opening[2].lower():
            yield from _stray_row(content, end, opening.start())
            yield _Row(content.count(b"\n", 0, opening.start()) + 1, content[opening.start() : tag.end()])
            end, opening = tag.end(), None
    yield from _stray_row(content, end, len(content))


def _stray_row(content: bytes, start: int, end: int) -> Iterator[_Row]:
    stray = content[start:end].lstrip()
    if stray:
        yield _Row(content.count(b"\n", 0, end - len(stray)) + 1, stray)


def _parse_trec(text: str) -> tuple[str, str]:
    parts = _TREC_PARTS.fullmatch(text)
    if parts is None:
        raise RowError("is not inside <top> and </top>, or <DOC> and </DOC>")
    tag, body = parts.groups()
    if _TREC_OPENING.search(body):
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


def _json_parser(id_keys: tuple[str, ...], text_keys: tuple[str, ...]) -> Callable[[str], tuple[str, str]]:
    def key_of(row: dict[str, object], keys: tuple[str, ...]) -> str:
        for key in keys:
            if key in row:
                return key
        raise missing_field("` or `".join(keys), row)

    def parse(line: str) -> tuple[str, str]:
        row = json_object(line)
        text_key = key_of(row, text_keys)
        query_id, text = id_of(row[key_of(row, id_keys)]), text_of(text_key, row[text_key])
        check_surrogates(line, query_id, text)
        return query_id, text

    return parse


def _parse_car(line: str) -> tuple[str, str]:
    try:
        text = unquote(line.removeprefix("enwiki:"), errors="strict")
    except UnicodeDecodeError as error:
        raise RowError(f"{line!r} is not UTF-8 when percent-decoded") from error
    return line, text.replace("/", " ")


_PARSERS: dict[str, Callable[[str], tuple[str, str]]] = {
    "beir": _json_parser(("_id",), ("text",)),
    "car": _parse_car,
    "jsonl": _json_parser(("query_id", "_id", "id"), ("text", "query")),
    "trec": _parse_trec,
    "tsv": tsv.parse,
}
