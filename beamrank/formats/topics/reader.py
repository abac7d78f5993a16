"""Topics of any format. There are few, so anything wrong with one is an error."""

from typing import TypeVar

from beamrank.errors import DataError, PreflightError
from beamrank.formats.columns import Names, column_names, header_notes
from beamrank.formats.folders import find_files, folder_files, folder_hint, format_of_folder
from beamrank.formats.guess import AUTO, format_hint, guessed
from beamrank.formats.ids import IdError, check_query_id
from beamrank.formats.notes import Problems, counted
from beamrank.formats.row_checks import RowError, WrongFormatError
from beamrank.formats.topics.registry import FORMATS, TopicsConfig, TopicsFile
from beamrank.records import Topic
from beamrank.storage import files as storage

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
        _read_file(url, config, topics)
    found = list(topics.values())
    return found if config.ids == "file" else [Topic(str(i), each.text) for i, each in enumerate(found, 1)]


def _read_file(url: str, config: TopicsConfig, topics: dict[str, Topic]) -> None:
    """Adds the topics of a file."""
    topics_format = FORMATS[config.format]
    file = TopicsFile(url, column_names(config.columns), config.header, config.decoding == "original")
    problems, lines = Problems(), dict[str, int]()
    try:
        for line, row in topics_format.read(file):
            try:
                _add(row, line, topics_format.repeats, topics, lines)
            except (RowError, IdError) as error:
                problems.add(line, f"the topic {error}")
    except RowError as error:
        problems.add(1, f"the file {error}")
    except WrongFormatError as error:
        raise PreflightError(f"{error}{_hint(url, config)}") from error
    except DataError as error:
        raise PreflightError(str(error)) from error
    if problems.count:
        raise PreflightError(
            f"{counted(problems.count, topics_format.noun)} of {url} cannot be read as topics of `format: "
            f"{config.format}`{_hint(url, config)}{problems.listed(f'{url}:')}"
        )
    if not lines:
        read_as = f"(read as `format: {config.format}`)"
        raise PreflightError(f"{url} holds no topics {read_as}: there is nothing to rank{_hint(url, config)}")


def _hint(url: str, config: TopicsConfig) -> str:
    return format_hint(url, config.format, FORMATS, "topics.format")


def _add(
    row: tuple[str, str] | RowError, line: int, repeats: bool, topics: dict[str, Topic], lines: dict[str, int]
) -> None:
    """Adds a topic to those of all files, and its line to those of this file."""
    if isinstance(row, RowError):
        raise row
    topic = Topic(*row)
    query_id, text = topic
    check_query_id(query_id)
    if "\0" in text:
        raise RowError(f"{query_id!r} has a NUL character in its text")
    if not text.strip():
        raise RowError(f"{query_id!r} has no text")
    before = topics.setdefault(query_id, topic)
    if before is not topic and not (repeats and before == topic):
        where = f"line {lines[query_id]}" if query_id in lines else "an earlier file"
        other = "with another text" if repeats else "too"
        raise RowError(f"has the query_id {query_id!r}, which {where} has {other}: remove one")
    lines.setdefault(query_id, line)


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
    if base is None:
        raise _is_a_folder(path)
    return folder_files(path, base)


def _check_exists(path: str) -> None:
    if not storage.exists(path):
        raise PreflightError(f"there are no topics at {path}: give `topics.path` a file")


def _is_a_folder(path: str) -> PreflightError:
    hint = folder_hint(storage.sizes_bytes(path), FORMATS, "topics.format")
    return PreflightError(f"the topics {path} are a folder: give `topics.path` a file{hint}")


def resolved(config: _Config) -> _Config:
    """Topics with the name of their format, where that is `auto`: the first file decides.

    Raises:
        PreflightError: there is no file, its format cannot be guessed, or has no named columns or header and the
            topics name some.
    """
    if config.format == AUTO:
        first = find_files(config.path)[0]
        _check_exists(first)
        is_folder = storage.is_folder(first)
        name = format_of_folder(first, FORMATS) if is_folder else guessed(first, "topics.format", FORMATS)
        if name is None:
            raise _is_a_folder(first)
        config = config.model_copy(update={"format": name})
    topics_format = FORMATS[config.format]
    for key, usable in (("columns", topics_format.has_columns), ("header", topics_format.table is not None)):
        if getattr(config, key) is not None and not usable:
            raise PreflightError(f"`topics.{key}` means nothing to `format: {config.format}`: leave it out")
    return config


def notes(config: TopicsConfig) -> list[str]:
    """Notes for the user on the headers that were recognized."""
    if FORMATS[config.format].table != "tsv" or config.header is not None:
        return []  # A CSV has a header.
    return header_notes("topics", topics_files(config), Names("query_id", column_names(config.columns)))
