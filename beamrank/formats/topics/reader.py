"""Topics of any format. There are few, so anything wrong with one is an error."""

import re

from beamrank.errors import PreflightError
from beamrank.formats.folders import folder_file, folder_hint
from beamrank.formats.guess import format_hint
from beamrank.formats.ids import BYTE_ORDER_MARK, IdError, check_query_id
from beamrank.formats.problems import Problems, counted
from beamrank.formats.row_checks import RowError
from beamrank.formats.topics.registry import FORMATS, TopicsConfig, TopicsFormat
from beamrank.records import Topic
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as, open_stream

_HINT_BYTES = 1 << 16
_LONE_CR = re.compile(rb"\r(?!\n)")


def read_topics(config: TopicsConfig) -> list[Topic]:
    """Reads all topics, in the order of the file; ids are kept unchanged.

    A file may be compressed with gzip, bzip2, xz or zstd. Empty lines between topics are skipped.

    Raises:
        PreflightError: the file cannot be read or holds no topics, or some cannot be used: no text, a duplicate
            query_id, one that breaks the rule of formats/ids.py, invalid UTF-8, wrong columns. It counts the problems
            and shows the first of each kind.
    """
    url = topics_file(config)
    topics_format = FORMATS[config.format]
    with errors_as(PreflightError, url), open_stream(url) as file:
        content = file.read().removeprefix(BYTE_ORDER_MARK)
    topics, problems = _parsed(content, topics_format)
    if topics and not problems.count:
        return topics
    # Topics of `car` are lines, never CBOR.
    read_as = topics_format.looks_like | {config.format, "car"}
    hint = format_hint(content[:_HINT_BYTES], read_as, FORMATS, "topics.format")
    if problems.count:
        total = counted(problems.count, topics_format.noun)
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
    base = FORMATS[config.format].file_in_folder
    if base is not None:
        return folder_file(config.path, base)
    hint = folder_hint(storage.sizes_bytes(config.path), FORMATS, "topics.format")
    raise PreflightError(f"the topics {config.path} are a folder: give `topics.path` a file{hint}")


def _parsed(content: bytes, topics_format: TopicsFormat) -> tuple[list[Topic], Problems]:
    """The valid topics, and the problems of the others."""
    topics: list[Topic] = []
    problems = Problems()
    lines: dict[str, int] = {}
    for line, row in topics_format.split(content):
        try:
            topic = _checked(*topics_format.parse(_decoded(row)))
            if topic.query_id in lines:
                raise RowError(
                    f"has the query_id {topic.query_id!r}, which line {lines[topic.query_id]} has too: remove one"
                )
        except (RowError, IdError) as error:
            problems.add(line, f"the topic {error}")
            continue
        lines[topic.query_id] = line
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
