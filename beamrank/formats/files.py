"""The files that a key names, and which format they have: each format says what its name and first
record look like.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeAlias, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic_core import from_json

from beamrank.errors import DataError, PreflightError
from beamrank.formats.decode.base import BYTE_ORDER_MARK, Decoder, Source, WrongFormatError
from beamrank.formats.decode.json_rows import JsonDecoder
from beamrank.formats.decode.packing import check_binary, check_text, packing_hint
from beamrank.formats.decode.tables import is_table, open_table_file
from beamrank.formats.schemas import Hints, Schema
from beamrank.formats.values import RowError, values_of
from beamrank.storage import files as storage
from beamrank.storage.globs import NOT_DATA, find, is_data, root_of
from beamrank.storage.streams import errors_as, has_ending, open_stream, without_compression

# The value of `format` that stands for the guessed one.
AUTO = "auto"
# A section of docs or topics.
_Section = TypeVar("_Section", bound=Any)
_BEGINNING_BYTES = 1 << 18
_HUB_ENDINGS = (".parquet", ".jsonl")
_LIST = re.compile(rb"\s*\[\s*(\{|\]\s*\Z)")


class _Located(Protocol):
    @property
    def path(self) -> str | Sequence[str]: ...


# A path, a glob, several, or the section of a configuration that holds them.
Paths: TypeAlias = str | Sequence[str] | _Located


def paths_of(paths: Paths) -> tuple[str, ...]:
    """The paths of a key that takes one or several, or a section with them."""
    path = paths if isinstance(paths, str | Sequence) else paths.path
    return (path,) if isinstance(path, str) else tuple(path)


def shown_paths(paths: Paths) -> str:
    """The value of such a key, for messages."""
    return ", ".join(paths_of(paths))


def hash_files(paths: Paths) -> dict[str, str]:
    """The SHA-256 of each of these files, by its URL; raises as `input_files`, and OSError."""
    return {file.url: storage.sha256(file.url) for file in input_files(paths, "file")}


# Files that lie beside the files of data, and are none.
_BESIDE = re.compile(
    r"(readme|license).*|.*\.crc|(dataset_info|dataset_dict|state)\.json", re.IGNORECASE
)
_KINDS = {
    **dict.fromkeys(("parquet", "pq", "arrow", "feather", "ipc"), "tables"),
    **dict.fromkeys(("jsonl", "ndjson", "json"), "JSON"),
    **{ending: ending for ending in ("csv", "trec", "run", "qrels")},
    **dict.fromkeys(("", "tsv", "txt"), "text"),
}
_ENDINGS = tuple(f".{ending}" for ending in _KINDS if ending)
# A folder whose name holds the value of a column for all files below it.
_PARTITION = re.compile(r"([^/=]+)=([^/]*)/")
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class InputFile:
    """A file of an input.

    Attributes:
        url: its URL.
        root: the path that was given, below which folders name columns, as Hive and Spark do; empty
            for the file itself.
    """

    url: str
    root: str = ""

    @property
    def partition(self) -> dict[str, str | None]:
        """The columns that its folders name, with their values."""
        below = self.url.removeprefix(self.root) if self.root else ""
        return {
            unquote(name): None if value == _NULL_PARTITION else unquote(value)
            for name, value in _PARTITION.findall(below)
        }

    @cached_property
    def source(self) -> Source:
        """The function that opens it; a named pipe can so be opened again."""
        return Source(self.url)

    def beginning(self) -> bytes:
        """Its first bytes, not decompressed."""
        with storage.open_binary(self.url) as file:
            return file.read(16)


def open_records(file: InputFile) -> Decoder:
    """Opens a file of records with names: a table, or else JSON."""
    beginning = file.beginning()
    if is_table(file.url, beginning):
        return open_table_file(file.url, beginning)
    return JsonDecoder(file.source, ())


def records(url: str, names: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The values in some columns of each row of such a file, with the row's place; those that are
    null are left out.

    Raises:
        WrongFormatError: a row cannot be read.
    """

    def bad(place: int, error: RowError, row: Any) -> None:  # noqa: ARG001
        raise wrong_row(url, place, error)

    with errors_as(DataError, url):
        decoder = open_records(InputFile(url))
        wanted = [at for at, name in enumerate(decoder.names) if name in names]
        for rows in decoder.rows(0, 0, dict.fromkeys(wanted, pa.null()), bad):
            columns = [values_of(rows.columns[at]) for at in wanted]
            for place, *values in zip(rows.places, *columns, strict=True):
                named = zip(wanted, values, strict=True)
                yield int(place), {decoder.names[at]: v for at, v in named if v is not None}


def wrong_row(url: str, place: int, error: RowError) -> WrongFormatError:
    """The error of a file with a row that cannot be read."""
    return WrongFormatError(
        f"{url}:{place}: the row {error}", kind=error.kind, file=url, place=place
    )


def input_files(paths: Paths, what: str) -> list[InputFile]:
    """The files of an input: each path, its glob's matches, or its folder's files; sorted, each
    once.

    Files that lie beside data, such as READMEs, are left out of folders and globs.

    Raises:
        PreflightError: there are none, or a folder or a glob has files of several kinds.
    """
    files: dict[str, InputFile] = {}
    for path in paths_of(paths):
        with errors_as(PreflightError, path):
            is_file = storage.exists(path) and not storage.is_folder(path)
            # A pipe is no file that can be listed.
            urls = [path] if is_file else check_kinds(path, find(path))
            root = "" if is_file else root_of(path)
        files |= {url: InputFile(url, root) for url in urls}
    if not files:
        for path in paths_of(paths):
            # A path that no file can have says so.
            with suppress(OSError):
                storage.open_binary(path).close()
        raise PreflightError(
            f"there is no {what} {shown_paths(paths)}: give a file, a folder or a glob. {NOT_DATA}",
            kind="no-file",
        )
    return list(files.values())


def check_kinds(path: str, urls: Sequence[str]) -> list[str]:
    """The files of a folder or a glob that are data.

    Raises:
        PreflightError: their names have endings of several kinds.
    """
    data = [url for url in urls if not _BESIDE.fullmatch(storage.name(url))]
    by_kind: dict[str, str] = {}
    for url in data:
        has_ending(url, _ENDINGS)  # raises for a compression that is not read
        ending = os.path.splitext(storage.name(without_compression(url)))[1][1:]
        if ending in _KINDS:
            by_kind.setdefault(_KINDS[ending], url)
    if len(by_kind) > 1:
        first, second = sorted(by_kind.values())[:2]
        raise PreflightError(
            f"{path} holds files of several kinds, such as {first} and {second}, and they are read "
            "as one input: give a glob that matches files of one kind",
            kind="mixed-files",
        )
    return data


class Beginning:
    """The beginning of a file, by which a format recognizes it.

    Attributes:
        url: the file.
        content: its first bytes, decompressed, without a byte order mark.
    """

    def __init__(
        self, url: str, opened: Callable[[], AbstractContextManager[BinaryIO]] | None = None
    ) -> None:
        """Takes what opens the file, by default its name; raises PreflightError if it cannot be
        read.
        """
        self.url = url
        with errors_as(PreflightError, url), opened() if opened else open_stream(url) as file:
            self.content = file.read(_BEGINNING_BYTES).removeprefix(BYTE_ORDER_MARK)

    @cached_property
    def line(self) -> bytes:
        """The first line that is not empty."""
        return self.content.lstrip().split(b"\n", 1)[0]

    @property
    def is_parquet(self) -> bool:
        return self.content.startswith(b"PAR1")

    @property
    def is_table(self) -> bool:
        return is_table("", self.content)

    @property
    def is_list(self) -> bool:
        return _LIST.match(self.content) is not None

    @cached_property
    def record(self) -> dict[str, Any]:
        """The first object of JSON, as far as it can be read; the columns of Parquet, without
        values.
        """
        if self.is_parquet:
            return dict.fromkeys(self._parquet_columns())
        text = self.content.decode("utf-8", "replace").lstrip()
        text = text.removeprefix("[").lstrip()
        if not text.startswith("{"):
            return {}
        try:
            row, _ = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            try:
                row = from_json(text, allow_partial=True)
            except ValueError:
                return {}
        return row if isinstance(row, dict) else {}

    def _parquet_columns(self) -> list[str]:
        with errors_as(PreflightError, self.url), storage.open_binary(self.url) as file:
            try:
                return list(pq.read_schema(file).names)
            except pa.ArrowInvalid:
                return []


class Look(NamedTuple):
    """How files of a format begin.

    Attributes:
        described: what such a file is called in messages.
        matches: whether a file begins so.
        general: it counts only where no other format matches.
        by_name: its file's name is enough, so that it counts only where no content matches.
    """

    described: str
    matches: Callable[[Beginning], bool]
    general: bool = False
    by_name: bool = False


def _never(_: Beginning) -> bool:
    return False


BY_NAME = Look("", _never)


def unchanged(schema: Schema) -> Schema:
    return schema


@dataclass(frozen=True)
class Format:
    """A named format of docs, topics, runs or qrels.

    Of docs and topics its functions are of the module level, because units with their format are
    sent to workers.

    Attributes:
        look: how its files begin; by default it is only taken by its name.
        open: opens a file of it, as a `Decoder` whose columns have the usual names, of docs with
            the text that `fields` and `template` of the hints make; None where beamrank's own
            decoders read it.
        schema: what an input is in files of it, by what it is in others.
        holds: `tsv`, `csv` or `json` (tables too), which its files are read as.
        keys: the keys of a section of docs or topics that mean something to it.
        endings: of the names of its files below a folder.
        file_in_folder: the only file that is read in a folder.
        not_docs: matches the paths below a folder, in lower case, of other files that the endings
            do not tell apart.
        rules: to raise when the same files are read differently.
        repeats: whether an id can be there again with the same text.
        candidate_order: of docs that are the candidates of one query each, a remark on those
            without scores.
    """

    look: Look = BY_NAME
    open: Callable[[InputFile, Hints], Decoder] | None = None
    schema: Callable[[Schema], Schema] = unchanged
    holds: str = ""
    keys: tuple[str, ...] = ("fields", "template")
    endings: tuple[str, ...] = ()
    file_in_folder: str | None = None
    not_docs: re.Pattern[str] = re.compile("(?!)")  # no path
    rules: int = 1
    repeats: bool = False
    candidate_order: str | None = None

    @property
    def lists_candidates(self) -> bool:
        """Whether each doc is the candidate of one query."""
        return self.candidate_order is not None


class FormatGuesser(NamedTuple):
    """The formats among which a key of a configuration chooses."""

    key: str
    formats: Mapping[str, Format]

    def guess(self, beginning: Beginning) -> str | None:
        """The name of the format that a file looks like; None if it looks like none of these."""
        return next(iter(self._alike(beginning)), None)

    def _alike(self, beginning: Beginning) -> dict[str, Look]:
        """The formats that a file looks like, the likeliest first."""
        looks = [(name, file.look) for name, file in self.formats.items()]
        alike = [(name, look) for name, look in looks if look.matches(beginning)]
        return dict(sorted(alike, key=lambda named: (named[1].general, named[1].by_name)))

    def guessed(self, url: str) -> str:
        """The format of a file whose `format` is `auto`."""
        beginning = Beginning(url)
        content, alike = beginning.content, self._alike(beginning)
        several = [name for name, look in alike.items() if not look.general]
        if len(several) > 1:
            raise PreflightError(
                f"{url} looks like {' and '.join(several)}: set `{self.key}.format` to one of them",
                kind="format-several",
                file=url,
            )
        if alike:
            return next(iter(alike))
        if not content.strip():
            raise PreflightError(f"{url} holds no rows: it is empty", kind="no-rows", file=url)
        check_text(url, content)
        check_binary(url, beginning.line)
        columns = beginning.line.count(b"\t") + 1
        described = f": its first line has {columns} columns, and no header names them"
        raise PreflightError(
            f"the format of {url} cannot be guessed{described * (columns > 2)}. Set "
            f"`{self.key}.format` to one of {', '.join(self.formats)}",
            kind="format-unknown",
            file=url,
        )

    def hint(self, url: str, read_as: str) -> str:
        """The end of a message about a file that cannot be read: the format that it looks like, or
        nothing.
        """
        beginning = Beginning(url)
        alike, packed = self._alike(beginning), packing_hint(beginning.content)
        if packed or not alike:
            return packed
        name, look = next(iter(alike.items()))
        hinted = alike.get(read_as)
        if hinted is not None and hinted.general == look.general:
            return ""
        return f". The file looks like {look.described}: set `{self.key}.format: {name}`"

    def resolved(
        self, section: _Section, path: str, files: Callable[[str], Sequence[str]]
    ) -> _Section:
        """A section of a configuration with the name of its format, where that is `auto`.

        A folder that has the packaging of a format, such as BEIR's, has that format; otherwise the
        first file that is not empty decides.

        Args:
            section: has a format, and keys that not every format uses.
            path: its first one.
            files: the files of a path.

        Raises:
            PreflightError: the format cannot be guessed, or does not use a key that is given.
        """
        if section.format == AUTO:
            with errors_as(PreflightError, path):
                section = section.model_copy(update={"format": self._named(path, files)})
        keys = self.formats[section.format].keys
        for name in ("fields", "template", "columns", "header", "quotes", "decoding"):
            if getattr(section, name, None) not in (None, False, "full") and name not in keys:
                raise PreflightError(
                    f"`{self.key}.{name}` means nothing to `format: {section.format}`: leave it out"
                )
        return section

    def _named(self, path: str, files: Callable[[str], Sequence[str]]) -> str:
        is_folder = storage.is_folder(path)
        for name, file in self.formats.items() if is_folder else ():
            if file.file_in_folder and any(_packaged(path, file.file_in_folder)):
                return name
        *others, last = files(path)  # a server need not tell the size of one
        return self.guessed(next(filter(storage.size_bytes, others), last))


def folder_files(folder: str, base: str) -> list[str]:
    """The file `base` of a folder, which may be compressed, or the files of the folder below it
    that is named so.

    `queries.jsonl` is BEIR's own packaging; `queries/test-00000-of-00001.parquet` is of its data
    sets at Hugging Face, which may be several files.
    """
    names, below = _packaged(folder, base)
    if below:
        return below
    if len(names) != 1:
        content = f"holds {' and '.join(sorted(names))}" if names else f"holds no {base}"
        raise PreflightError(
            f"the folder {folder} {content}: give the path of the one file to read"
        )
    return [storage.join(folder, names[0])]


def _packaged(folder: str, base: str) -> tuple[list[str], list[str]]:
    """The names of the files `base` in a folder, or else the files in the folder below it that is
    named so.
    """
    here = [name for name in storage.sizes_bytes(folder) if is_packaged(name, base)]
    if here:
        return here, []
    below = base.partition(".")[0]
    names = [f"{below}/{name}" for name in storage.sizes_bytes(storage.join(folder, below))]
    return [], [storage.join(folder, name) for name in sorted(names) if is_packaged(name, base)]


def is_packaged(path: str, base: str) -> bool:
    """Whether a path below a folder leads to the file `base`, or into the folder `base`."""
    below, _, name = path.rpartition("/")
    if below:
        return below == base.partition(".")[0] and is_data(name) and has_ending(name, _HUB_ENDINGS)
    return name == base or name.startswith(f"{base}.")
