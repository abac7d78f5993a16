"""Topics of any format. There are few, so anything wrong with one is an error."""

import re
from typing import TypeVar

from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora.readers.mteb import is_mteb
from beamrank.formats.folders import find_files, folder_files, folder_hint
from beamrank.formats.guess import AUTO, check_text, format_hint, guessed
from beamrank.formats.header import Names, header_notes
from beamrank.formats.ids import BYTE_ORDER_MARK, IdError, check_query_id
from beamrank.formats.names import given_columns
from beamrank.formats.notes import Problems, counted
from beamrank.formats.row_checks import RowError
from beamrank.formats.topics.registry import FORMATS, TopicsConfig
from beamrank.records import Topic
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as, open_stream

_Config = TypeVar("_Config", bound=TopicsConfig)

_HINT_BYTES = 1 << 16
# A line of TREC CAR's topics, or of its qrels.
_CAR_SECTION = re.compile(rb"[^\s{<]*(enwiki:|%20)\S*(?P<judgment>\s+\S+\s+\S+\s+\d+)?\s*$")
_LONE_CR = re.compile(rb"\r(?!\n)")


def read_topics(config: TopicsConfig) -> list[Topic]:
    """Reads all topics, in the order of the files; ids are kept unchanged, unless `ids` numbers them.

    A file may be compressed with gzip, bzip2, xz or zstd. Empty lines between topics are skipped.

    Raises:
        PreflightError: a file cannot be read or holds no topics, or some cannot be used: no text, a duplicate
            query_id, one that breaks the rule of formats/ids.py, invalid UTF-8, wrong columns. It counts the problems
            and shows the first of each kind.
    """
    config = resolved(config)
    topics: dict[str, Topic] = {}
    for url in topics_files(config):
        _read_file(url, config, topics)
    found = list(topics.values())
    return found if config.ids == "file" else [Topic(str(i), each.text) for i, each in enumerate(found, 1)]


def _read_file(url: str, config: TopicsConfig, topics: dict[str, Topic]) -> None:
    """Adds the topics of a file."""
    topics_format = FORMATS[config.format]
    if topics_format.read is not None:
        check_text(url)
        for topic in topics_format.read(url):
            if topics.setdefault(topic.query_id, topic) != topic:
                raise PreflightError(f"{url} has another text of query {topic.query_id!r} than an earlier file")
        return
    with errors_as(PreflightError, url), open_stream(url) as file:
        content = file.read().removeprefix(BYTE_ORDER_MARK)
    try:
        count, problems = _parse(content, url, config, topics)
    except (DataError, PreflightError) as error:
        raise PreflightError(f"{url}: {error}") from error
    if count and not problems.count:
        return
    # Topics of `car` are lines, never CBOR.
    read_as = topics_format.looks_like | {config.format, "car"}
    hint = format_hint(content[:_HINT_BYTES], read_as, FORMATS, "topics.format")
    if problems.count:
        total = counted(problems.count, topics_format.noun)
        raise PreflightError(
            f"{total} of {url} cannot be read as topics of `format: {config.format}`{hint}{problems.listed(f'{url}:')}"
        )
    raise PreflightError(f"{url} holds no topics (read as `format: {config.format}`): there is nothing to rank{hint}")


def topics_files(config: TopicsConfig) -> list[str]:
    """The files that hold the topics.

    Raises:
        PreflightError: one does not exist, or is a folder that does not hold the one file of the format.
    """
    config = resolved(config)
    return [url for path in find_files(config.path) for url in _topics_files(path, config.format)]


def resolved(config: _Config) -> _Config:
    """Topics with the name of their format, where that is `auto`: the first file decides.

    Raises:
        PreflightError: there is no file, its format cannot be guessed, or has no named columns or header and the
            topics name some.
    """
    if config.format == AUTO:
        first = find_files(config.path)[0]
        if not storage.exists(first):
            raise PreflightError(f"there are no topics at {first}: give `topics.path` a file")
        config = config.model_copy(update={"format": _guessed(first)})
    topics_format = FORMATS[config.format]
    for key, usable in (("columns", topics_format.named is not None), ("header", topics_format.has_header)):
        if getattr(config, key) is not None and not usable:
            raise PreflightError(f"`topics.{key}` means nothing to `format: {config.format}`: leave it out")
    return config


def notes(config: TopicsConfig) -> list[str]:
    """What a user should know of the headers that were recognized."""
    if config.format != "tsv" or config.header is not None:
        return []  # A CSV has a header.
    names = Names("query_id", given_columns(config.columns))
    return header_notes("topics", topics_files(config), names)


def _guessed(url: str) -> str:
    if storage.is_folder(url):
        return "beir"
    with errors_as(PreflightError, url), open_stream(url) as file:
        section = _CAR_SECTION.match(file.readline().removeprefix(BYTE_ORDER_MARK))
    if section is None:
        name = guessed(url, "topics.format", FORMATS)
        return "mteb" if name == "parquet" and is_mteb(url) else name
    return "car-qrels" if section["judgment"] else "car"


def _topics_files(path: str, name: str) -> list[str]:
    if not storage.exists(path):
        raise PreflightError(f"there are no topics at {path}: give `topics.path` a file")
    if not storage.is_folder(path):
        return [path]
    base = FORMATS[name].file_in_folder
    if base is not None:
        return folder_files(path, base)
    hint = folder_hint(storage.sizes_bytes(path), FORMATS, "topics.format")
    raise PreflightError(f"the topics {path} are a folder: give `topics.path` a file{hint}")


def _parse(content: bytes, url: str, config: TopicsConfig, topics: dict[str, Topic]) -> tuple[int, Problems]:
    """Adds the valid topics of a file; returns how many rows are valid, and the problems of the others."""
    topics_format = FORMATS[config.format]
    original = topics_format.parse_original if config.decoding == "original" else None
    parse = original or topics_format.parse
    problems = Problems()
    lines: dict[str, int] = {}
    count = 0
    try:
        if topics_format.named is not None:
            given, parse = topics_format.named(content, url, given_columns(config.columns), config.header)
        else:
            given = topics_format.split(content)
        rows = list(given)
    except RowError as error:
        problems.add(1, f"the file {error}")
        return 0, problems
    for line, row in rows:
        try:
            topic = _checked(*parse(_decoded(row)))
            if topic.query_id in topics and not topics_format.repeats:
                first = lines.get(topic.query_id)
                where = "an earlier file" if first is None else f"line {first}"
                raise RowError(f"has the query_id {topic.query_id!r}, which {where} has too: remove one")
        except (RowError, IdError) as error:
            problems.add(line, f"the topic {error}")
            continue
        count += 1
        if topics.setdefault(topic.query_id, topic) is topic:
            lines[topic.query_id] = line
    return count, problems


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
