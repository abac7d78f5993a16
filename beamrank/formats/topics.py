"""Topics of any format. There are few, so anything wrong with one is an error."""

from typing import Annotated, Literal, Self, TypeVar

from pydantic import model_validator

from beamrank.errors import DataError, PreflightError
from beamrank.formats.checks import RowError, WrongFormatError, check_query_id
from beamrank.formats.columns import Names, TopicColumns, check_header, column_names, header_notes
from beamrank.formats.files import AUTO, Choice, find_files, folder_files
from beamrank.formats.notes import Problems, counted
from beamrank.formats.texts.topics import TopicsFile, TopicsFormat
from beamrank.plugins import Registry
from beamrank.records import Topic
from beamrank.section import OneOf, Paths, Section
from beamrank.storage import files as storage

FORMATS: Registry[TopicsFormat] = Registry(
    "topics format",
    "beamrank.topics",
    {
        "beir": "beamrank.formats.texts.topics:BEIR",
        "csv": "beamrank.formats.texts.topics:CSV",
        "jsonl": "beamrank.formats.texts.topics:JSONL",
        "parquet": "beamrank.formats.texts.topics:PARQUET",
        "top1000": "beamrank.formats.texts.top1000:TOPICS",
        "trec": "beamrank.formats.texts.trec_topics:TREC",
        "tsv": "beamrank.formats.texts.topics:TSV",
    },
)
_CHOICE = Choice("topics", FORMATS)


class TopicsConfig(Section):
    """The topics."""

    path: Paths
    """A file, a glob, or a list of them."""
    format: Annotated[str, OneOf(FORMATS, (AUTO,))] = AUTO
    """Its format; `auto` guesses it from the first file."""
    decoding: Literal["full", "original"] = "full"
    """Of TREC CAR's ids: `full` decodes every percent escape, `original` only `%20`, as the code of 2019 does."""
    ids: Literal["file", "order"] = "file"
    """`order` numbers the topics from 1 in the order of the file, as the qrels of Cranfield do."""
    columns: TopicColumns | None = None
    """Where the id or the text has a different name than usual."""
    header: bool | None = None
    """Whether the first line of each TSV or CSV file names the columns; default: recognized, and said."""
    only_judged: bool = False
    """Keep only the topics of the qrels (BEIR has the topics of all splits in one file)."""

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        check_header(self.header, {"columns": self.columns})
        if self.decoding == "original" and self.format != AUTO and not FORMATS[self.format].has_original:
            having = ", ".join(name for name, each in FORMATS.items() if each.has_original)
            raise ValueError(f"decoding `original` exists for the formats {having}, not for {self.format}")
        return self


_Config = TypeVar("_Config", bound=TopicsConfig)


def read_topics(config: TopicsConfig) -> list[Topic]:
    """Reads all topics, in the order of the files; ids are kept unchanged, unless `ids` numbers them.

    A file may be compressed with gzip, bzip2, xz or zstd. Empty lines between topics are skipped.

    Raises:
        PreflightError: a file cannot be read or holds no topics, or some cannot be used: no text, a duplicate
            query_id, one that breaks the rule of formats/checks.py, invalid UTF-8, wrong columns. It counts the
            problems and shows the first of each kind.
    """
    config = resolved(config)
    topics: dict[str, Topic] = {}
    for url in topics_files(config):
        _read_file(url, config, topics)
    found = list(topics.values())
    return found if config.ids == "file" else [Topic(str(i), each.text) for i, each in enumerate(found, 1)]


def _read_file(url: str, config: TopicsConfig, topics: dict[str, Topic]) -> None:
    """Adds the topics of a file."""
    own = FORMATS[config.format]
    file = TopicsFile(url, column_names(config.columns), config.header, config.decoding == "original")
    problems, lines = Problems(), dict[str, int]()
    try:
        for line, row in own.read(file):
            try:
                _add(row, line, own.repeats, topics, lines)
            except RowError as error:
                problems.add(line, f"the topic {error}")
    except RowError as error:
        problems.add(1, f"the file {error}")
    except WrongFormatError as error:
        raise PreflightError(f"{error}{_CHOICE.hint(url, config.format)}") from error
    except DataError as error:
        raise PreflightError(str(error)) from error
    if problems.count:
        raise PreflightError(
            f"{counted(problems.count, own.noun)} of {url} cannot be read as topics of `format: {config.format}`"
            f"{_CHOICE.hint(url, config.format)}{problems.listed(f'{url}:')}"
        )
    if not lines:
        read_as = f"(read as `format: {config.format}`)"
        hint = _CHOICE.hint(url, config.format)
        raise PreflightError(f"{url} holds no topics {read_as}: there is nothing to rank{hint}")


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
        other = "with a different text" if repeats else "too"
        raise RowError(f"has the query_id {query_id!r}, which {where} has {other}: remove one")
    lines.setdefault(query_id, line)


def topics_files(config: TopicsConfig) -> list[str]:
    """The files that hold the topics."""
    config = resolved(config)
    base = FORMATS[config.format].file_in_folder
    files: list[str] = []
    for path in find_files(config.path):
        if not _is_folder(path):
            files.append(path)
        elif base is None:
            raise _is_a_folder(path)
        else:
            files += folder_files(path, base)
    return files


def _is_folder(path: str) -> bool:
    if not storage.exists(path):
        raise PreflightError(f"there are no topics at {path}: give `topics.path` a file")
    return storage.is_folder(path)


def _is_a_folder(path: str) -> PreflightError:
    hint = _CHOICE.folder_hint(storage.sizes_bytes(path))
    return PreflightError(f"the topics {path} are a folder: give `topics.path` a file{hint}")


def resolved(config: _Config) -> _Config:
    """Topics with the name of their format, where that is `auto`: the first file decides.

    Raises:
        PreflightError: there is no file, its format cannot be guessed, or has no named columns or header and the
            topics name some.
    """
    if config.format == AUTO:
        first = find_files(config.path)[0]
        name = _CHOICE.of_folder(first) if _is_folder(first) else _CHOICE.guessed(first)
        if name is None:
            raise _is_a_folder(first)
        config = config.model_copy(update={"format": name})
    own = FORMATS[config.format]
    _CHOICE.check_keys(config, {"columns": own.has_columns, "header": own.table is not None})
    return config


def notes(config: TopicsConfig) -> list[str]:
    """Notes for the user on the headers that were recognized; a CSV always has one."""
    names = Names("query_id", column_names(config.columns), None, config.header)
    is_tsv = FORMATS[config.format].table == "tsv"
    return header_notes("topics", topics_files(config), names) if is_tsv else []
