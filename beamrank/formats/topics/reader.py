"""Topics of any format. There are few, so anything wrong with one is an error."""

from typing import TypeVar

from beamrank.errors import DataError, PreflightError
from beamrank.formats.columns import Names, column_names, header_notes
from beamrank.formats.folders import find_files, folder_files, folder_hint, format_of_folder
from beamrank.formats.guess import AUTO, check_text, format_hint, guessed
from beamrank.formats.ids import BYTE_ORDER_MARK, IdError
from beamrank.formats.notes import Problems, counted
from beamrank.formats.row_checks import RowError
from beamrank.formats.topics.registry import FORMATS, TopicsConfig, TopicsFile, checked_topic, decoded
from beamrank.records import Topic
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as, open_stream

_Config = TypeVar("_Config", bound=TopicsConfig)


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
        if FORMATS[config.format].read is None:
            _read_rows(url, config, topics)
        else:
            _read_whole(url, config, topics)
    found = list(topics.values())
    return found if config.ids == "file" else [Topic(str(i), each.text) for i, each in enumerate(found, 1)]


def _read_whole(url: str, config: TopicsConfig, topics: dict[str, Topic]) -> None:
    """Adds the topics of a file that its format reads as a whole."""
    read = FORMATS[config.format].read
    assert read is not None
    check_text(url)
    try:
        found = read(url)
    except DataError as error:
        raise PreflightError(str(error)) from error
    if not found:
        raise PreflightError(f"{url} holds no topics (read as `format: {config.format}`): there is nothing to rank")
    for topic in found:
        if topics.setdefault(topic.query_id, topic) != topic:
            raise PreflightError(f"{url} has another text of query {topic.query_id!r} than an earlier file")


def _read_rows(url: str, config: TopicsConfig, topics: dict[str, Topic]) -> None:
    """Adds the topics of a file."""
    with errors_as(PreflightError, url), open_stream(url) as file:
        content = file.read().removeprefix(BYTE_ORDER_MARK)
    try:
        count, problems = _parse(content, url, config, topics)
    except (DataError, PreflightError) as error:
        raise PreflightError(f"{url}: {error}") from error
    if count and not problems.count:
        return
    hint = format_hint(url, config.format, FORMATS, "topics.format")
    if problems.count:
        total = counted(problems.count, FORMATS[config.format].noun)
        raise PreflightError(
            f"{total} of {url} cannot be read as topics of `format: {config.format}`{hint}{problems.listed(f'{url}:')}"
        )
    raise PreflightError(f"{url} holds no topics (read as `format: {config.format}`): there is nothing to rank{hint}")


def _parse(content: bytes, url: str, config: TopicsConfig, topics: dict[str, Topic]) -> tuple[int, Problems]:
    """Adds the valid topics of a file; returns how many rows are valid, and the problems of the others."""
    topics_format = FORMATS[config.format]
    problems = Problems()
    lines: dict[str, int] = {}
    count = 0
    try:
        if topics_format.rows is not None:
            found, parse = topics_format.rows(TopicsFile(url, content, column_names(config.columns), config.header))
        else:
            original = topics_format.parse_original if config.decoding == "original" else None
            found, parse = topics_format.split(content), original or topics_format.parse_row
        rows = list(found)
    except RowError as error:
        problems.add(1, f"the file {error}")
        return 0, problems
    for line, row in rows:
        try:
            topic = checked_topic(*parse(decoded(row) if isinstance(row, bytes) else row))
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


def topics_files(config: TopicsConfig) -> list[str]:
    """The files that hold the topics.

    Raises:
        PreflightError: one does not exist, or is a folder that does not hold the one file of the format.
    """
    config = resolved(config)
    return [url for path in find_files(config.path) for url in _topics_files(path, config.format)]


def _topics_files(path: str, name: str) -> list[str]:
    _check_exists(path)
    if not storage.is_folder(path):
        return [path]
    base = FORMATS[name].file_in_folder
    if base is not None:
        return folder_files(path, base)
    raise _is_a_folder(path)


def _is_a_folder(path: str) -> PreflightError:
    hint = folder_hint(storage.sizes_bytes(path), FORMATS, "topics.format")
    return PreflightError(f"the topics {path} are a folder: give `topics.path` a file{hint}")


def _check_exists(path: str) -> None:
    if not storage.exists(path):
        raise PreflightError(f"there are no topics at {path}: give `topics.path` a file")


def resolved(config: _Config) -> _Config:
    """Topics with the name of their format, where that is `auto`: the first file decides.

    Raises:
        PreflightError: there is no file, its format cannot be guessed, or has no named columns or header and the
            topics name some.
    """
    if config.format == AUTO:
        first = find_files(config.path)[0]
        _check_exists(first)
        if storage.is_folder(first):
            name = format_of_folder(first, FORMATS)
            if name is None:
                raise _is_a_folder(first)
        else:
            name = guessed(first, "topics.format", FORMATS)
        config = config.model_copy(update={"format": name})
    topics_format = FORMATS[config.format]
    for key, usable in (("columns", topics_format.rows is not None), ("header", topics_format.table is not None)):
        if getattr(config, key) is not None and not usable:
            raise PreflightError(f"`topics.{key}` means nothing to `format: {config.format}`: leave it out")
    return config


def notes(config: TopicsConfig) -> list[str]:
    """Notes for the user on the headers that were recognized."""
    if FORMATS[config.format].table != "tsv" or config.header is not None:
        return []  # A CSV has a header.
    return header_notes("topics", topics_files(config), Names("query_id", column_names(config.columns)))
