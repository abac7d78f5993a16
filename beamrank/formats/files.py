"""The files that a key names, and which format they have: each format says what its name and first
record look like.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic_core import from_json

from beamrank.errors import PreflightError
from beamrank.formats.checks import BYTE_ORDER_MARK, csv_row
from beamrank.formats.columns import names_columns, split_tsv
from beamrank.storage import files as storage
from beamrank.storage.globs import NOT_DATA, find, is_data
from beamrank.storage.streams import errors_as, has_ending, open_stream, without_compression

# The value of `format` that stands for the guessed one.
AUTO = "auto"
_BEGINNING_BYTES = 1 << 18
_HUB_ENDINGS = (".parquet", ".jsonl")
_GLOB = re.compile(r"[*?\[]")
_NAMED = "compressed with {}: give it a name that ends in {}"
_WIDE = "UTF-{}, as some programs write text: convert it with `iconv -f {} -t utf-8`"
# How packed files begin; bzip2's beginning is long because text can begin with BZh, and UTF-16's
# begins UTF-32's too.
_PACKED = {
    re.compile(rb"\x1f\x8b"): _NAMED.format("gzip", ".gz"),
    re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"): _NAMED.format("bzip2", ".bz2"),
    re.compile(rb"\xfd7zXZ\0"): _NAMED.format("xz", ".xz"),
    re.compile(rb"\x28\xb5\x2f\xfd"): _NAMED.format("zstd", ".zst"),
    re.compile(rb"PK\x03\x04"): "a zip archive: unpack it",
    re.compile(
        rb".{257}ustar", re.DOTALL
    ): "a tar archive: give it a name that ends in .tar or .tar.gz",
    re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff"): _WIDE.format(32, "utf-32"),
    re.compile(rb"\xff\xfe|\xfe\xff"): _WIDE.format(16, "utf-16"),
}
_FEWEST_BYTES = 8
_LIST = re.compile(rb"\s*\[\s*\{")
# XML's declaration, comments and the element around all topics may come before the first one.
_TREC = re.compile(
    rb"\s*<(top|doc)\b|\s*<[^>]*>(?:[^<]*<[^>]*>){0,20}?[^<]*<topic\s[^>]*number\s*=|\s*<topic\s[^>]*number\s*=",
    re.I,
)


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


def find_files(paths: Paths) -> list[str]:
    """The files of a key that takes one or several: each path, or what its glob matches, sorted;
    each file once.
    """
    files: dict[str, None] = {}
    for path in paths_of(paths):
        with errors_as(PreflightError, path):
            is_glob = _GLOB.search(path) and not storage.exists(path)
            found = find(path, folders=True) if is_glob else [path]
        if not found:
            raise PreflightError(
                f"no file matches {path}: give a path, a glob, or a list of them. {NOT_DATA}"
            )
        files |= dict.fromkeys(found)
    return list(files)


def hash_files(paths: Paths) -> dict[str, str]:
    """The SHA-256 of each of these files, by its URL; raises as `find_files`, and OSError."""
    return {url: storage.sha256(url) for url in find_files(paths)}


class Beginning:
    """The beginning of a file, by which a format recognizes it.

    Attributes:
        url: the file.
        content: its first bytes, decompressed, without a byte order mark.
    """

    def __init__(self, url: str) -> None:
        """Raises PreflightError if the file cannot be read."""
        self.url = url
        with errors_as(PreflightError, url), open_stream(url) as file:
            self.content = file.read(_BEGINNING_BYTES).removeprefix(BYTE_ORDER_MARK)

    @cached_property
    def line(self) -> bytes:
        """The first line that is not empty."""
        return self.content.lstrip().split(b"\n", 1)[0]

    @property
    def is_parquet(self) -> bool:
        return self.content.startswith(b"PAR1")

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
        text = text.removeprefix("[").lstrip() if self.is_list else text
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


class Choice(NamedTuple):
    """The formats among which a key of a configuration chooses: each is a `TextFormat`, which needs
    this module.
    """

    key: str
    formats: Mapping[str, Any]

    def guess(self, beginning: Beginning) -> str | None:
        """The name of the format that a file looks like; None if it looks like none of these."""
        looks = {name: each.look for name, each in self.formats.items() if each.look is not None}
        found = {name: look for name, look in looks.items() if look.matches(beginning)}
        return min(found, key=lambda name: (found[name].general, found[name].by_name), default=None)

    def guessed(self, url: str) -> str:
        """The format of a file whose `format` is `auto`."""
        beginning = Beginning(url)
        name = self.guess(beginning)
        if name is not None:
            return name
        columns = beginning.line.count(b"\t") + 1
        described = (
            f": its first line has {columns} columns, and no header names them"
            if columns > 2
            else ""
        )
        described += packed_as(beginning.content)
        raise PreflightError(
            f"the format of {url} cannot be guessed{described}. Set `{self.key}.format` to one of "
            f"{', '.join(self.formats)}"
        )

    def hint(self, url: str, read_as: str) -> str:
        """The end of a message about a file that cannot be read: the format that it looks like, or
        nothing.
        """
        beginning = Beginning(url)
        packed, name = packed_as(beginning.content), self.guess(beginning)
        look = None if name is None else self.formats[name].look
        if packed or look is None:
            return packed
        own = self.formats[read_as].look
        if own is not None and own.matches(beginning) and (look.general or not own.general):
            return ""
        return f". The file looks like {look.described}: set `{self.key}.format: {name}`"

    def of_folder(self, folder: str) -> str | None:
        """The format whose packaging a folder has."""
        below = {
            name: each.file_in_folder
            for name, each in self.formats.items()
            if each.file_in_folder is not None
        }
        return next((name for name, base in below.items() if any(_packaged(folder, base))), None)

    def check_keys(self, section: Any) -> None:
        """Raises PreflightError where a section of a configuration has a key that its format does
        not use.
        """
        own = self.formats[section.format]
        usable = {
            "fields": own.has_fields,
            "template": own.has_fields,
            "columns": own.has_columns,
            "header": own.table is not None,
        }
        for name, is_usable in usable.items():
            if getattr(section, name, None) is not None and not is_usable:
                raise PreflightError(
                    f"`{self.key}.{name}` means nothing to `format: {section.format}`: leave it out"
                )


def folder_files(folder: str, base: str) -> list[str]:
    """The file `base` of a folder, which may be compressed, or the files of the folder below it
    that is named so.

    `queries.jsonl` is BEIR's own packaging; `queries/test-00000-of-00001.parquet` that of its data
    sets at Hugging Face, which may be several files.
    """
    names, below = _packaged(folder, base)
    if below:
        return below
    if len(names) != 1:
        found = f"holds {' and '.join(sorted(names))}" if names else f"holds no {base}"
        raise PreflightError(f"the folder {folder} {found}: give the path of the one file to read")
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
    """Whether a path below a folder is that of the file `base`, or of one in the folder that is
    named so.
    """
    below, _, name = path.rpartition("/")
    if below:
        return below == base.partition(".")[0] and is_data(name) and has_ending(name, _HUB_ENDINGS)
    return name == base or name.startswith(f"{base}.")


def check_text(url: str) -> None:
    """Raises PreflightError where a file is not text in UTF-8, as far as its beginning shows it."""
    packed = packed_as(Beginning(url).content)
    if packed:
        raise PreflightError(f"{url} does not hold text{packed}")


def packed_as(beginning: bytes) -> str:
    """A sentence that names how a file is packed whose name does not, or a wide encoding; empty for
    text in UTF-8.
    """
    for magic, sentence in _PACKED.items():
        if magic.match(beginning):
            return f". The file is {sentence}"
    # Without a byte order mark: the zero byte in most characters, on one side.
    even, odd = beginning[::2].count(0), beginning[1::2].count(0)
    if len(beginning) < _FEWEST_BYTES or 4 * max(even, odd) < len(beginning) or min(even, odd):
        return ""
    return f". The file is {_WIDE.format(16, 'utf-16be' if even else 'utf-16le')}"


def _is_parquet(beginning: Beginning) -> bool:
    return beginning.is_parquet


def _is_beir(beginning: Beginning) -> bool:
    has_text = not beginning.is_parquet or "text" in beginning.record
    return not beginning.is_list and "_id" in beginning.record and has_text


def _is_json(beginning: Beginning) -> bool:
    return beginning.is_list or beginning.line.startswith(b"{")


def _is_json_without_beir_id(beginning: Beginning) -> bool:
    return _is_json(beginning) and not _is_beir(beginning)


def _is_trec(beginning: Beginning) -> bool:
    return _TREC.match(beginning.content) is not None


def _is_tsv(beginning: Beginning) -> bool:
    return beginning.line.count(b"\t") == 1 or names_columns(split_tsv(beginning.line))


def _is_csv(beginning: Beginning) -> bool:
    return without_compression(beginning.url).endswith(".csv") or names_columns(
        csv_row(beginning.line)
    )


PARQUET = Look("Parquet", _is_parquet, general=True)
BEIR = Look("BEIR's JSONL (`_id`)", _is_beir, general=True)
JSONL = Look("JSONL", _is_json, general=True)
JSONL_WITHOUT_BEIR_ID = Look("JSONL", _is_json_without_beir_id, general=True)
TREC = Look("TREC's (<top>, <topic number> or <DOC>)", _is_trec)
TSV = Look("columns with a tab between them", _is_tsv, general=True)
CSV = Look("CSV with a header line", _is_csv, general=True, by_name=True)
