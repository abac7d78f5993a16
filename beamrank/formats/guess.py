"""Which format a file has: each format says what its name and its first record look like."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic_core import from_json

from beamrank.errors import PreflightError
from beamrank.formats.columns import names_columns, split_tsv
from beamrank.formats.ids import BYTE_ORDER_MARK
from beamrank.formats.row_checks import csv_row
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as, open_stream, without_compression

# The value of `format` that stands for the guessed one.
AUTO = "auto"
_BEGINNING_BYTES = 1 << 18

# How compressed files begin; that of bzip2 is long because text can begin with BZh.
_PACKED = {
    re.compile(rb"\x1f\x8b"): ("gzip", ".gz"),
    re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"): ("bzip2", ".bz2"),
    re.compile(rb"\xfd7zXZ\0"): ("xz", ".xz"),
    re.compile(rb"\x28\xb5\x2f\xfd"): ("zstd", ".zst"),
}
# That of UTF-16 begins that of UTF-32.
_BYTE_ORDER_MARKS = {
    b"\xff\xfe\0\0": "utf-32",
    b"\0\0\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
_FEWEST_BYTES = 8
_LIST = re.compile(rb"\s*\[\s*\{")
# XML's declaration, comments and the element around all topics may come before the first one.
_TREC = re.compile(
    rb"\s*<(top|doc)\b|\s*<[^>]*>(?:[^<]*<[^>]*>){0,20}?[^<]*<topic\s[^>]*number\s*=|\s*<topic\s[^>]*number\s*=", re.I
)


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
        """Whether the file is Parquet."""
        return self.content.startswith(b"PAR1")

    @property
    def is_list(self) -> bool:
        """Whether the file is a JSON list of objects."""
        return _LIST.match(self.content) is not None

    @cached_property
    def record(self) -> dict[str, Any]:
        """The first object of JSON, as far as it can be read; the columns of Parquet, without values."""
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


class _Format(Protocol):
    @property
    def look(self) -> Look | None: ...


def guess_format(beginning: Beginning, formats: Mapping[str, _Format]) -> str | None:
    """The name of the format that a file looks like; None if it looks like none of these."""
    looks = {name: each.look for name, each in formats.items() if each.look is not None}
    found = {name: look for name, look in looks.items() if look.matches(beginning)}
    return min(found, key=lambda name: (found[name].general, found[name].by_name), default=None)


def guessed(url: str, key: str, formats: Mapping[str, _Format]) -> str:
    """The format of a file whose `format` is `auto`.

    Raises:
        PreflightError: the file cannot be read, or looks like none of the formats.
    """
    beginning = Beginning(url)
    name = guess_format(beginning, formats)
    if name is not None:
        return name
    columns = beginning.line.count(b"\t") + 1
    described = f": its first line has {columns} columns, and no header names them" if columns > 2 else ""
    described += packed_as(beginning.content)
    raise PreflightError(
        f"the format of {url} cannot be guessed{described}. Set `{key}` to one of {', '.join(formats)}"
    )


def format_hint(url: str, read_as: str, formats: Mapping[str, _Format], key: str) -> str:
    """The end of a message about a file that cannot be read: the format that it looks like, or nothing.

    Args:
        url: the file.
        read_as: the format that it was read as.
        formats: all formats.
        key: the key of the configuration that takes one of them.
    """
    beginning = Beginning(url)
    packed = packed_as(beginning.content)
    name = guess_format(beginning, formats)
    look = None if name is None else formats[name].look
    if packed or look is None:
        return packed
    own = formats[read_as].look
    if own is not None and own.matches(beginning) and (look.general or not own.general):
        return ""
    return f". The file looks like {look.described}: set `{key}: {name}`"


def check_text(url: str) -> None:
    """Raises PreflightError where a file is not text in UTF-8, as far as its beginning shows it."""
    packed = packed_as(Beginning(url).content)
    if packed:
        raise PreflightError(f"{url} does not hold text{packed}")


def packed_as(beginning: bytes) -> str:
    """A sentence that names how a file is packed whose name does not, or a wide encoding; empty for text in UTF-8."""
    for magic, (name, ending) in _PACKED.items():
        if magic.match(beginning):
            return f". The file is compressed with {name}: give it a name that ends in {ending}"
    if beginning.startswith(b"PK\x03\x04"):
        return ". The file is a zip archive: unpack it"
    if beginning[257:262] == b"ustar":
        return ". The file is a tar archive: give it a name that ends in .tar, or .tar.gz if it is compressed"
    encoding = _wide_encoding(beginning)
    if encoding:
        name = f"UTF-{encoding[4:6]}"
        return f". The file is {name}, as some programs write text: convert it with `iconv -f {encoding} -t utf-8`"
    return ""


def _wide_encoding(beginning: bytes) -> str:
    """The name of UTF-16 or UTF-32 for iconv: by a byte order mark, or by the zero byte in most characters."""
    marked = next((name for mark, name in _BYTE_ORDER_MARKS.items() if beginning.startswith(mark)), "")
    if marked or len(beginning) < _FEWEST_BYTES:
        return marked
    even, odd = beginning[::2].count(0), beginning[1::2].count(0)
    if 4 * max(even, odd) < len(beginning) or min(even, odd):
        return ""
    return "utf-16be" if even else "utf-16le"


def _is_parquet(beginning: Beginning) -> bool:
    return beginning.is_parquet


def _is_beir(beginning: Beginning) -> bool:
    return (
        not beginning.is_list and "_id" in beginning.record and (not beginning.is_parquet or "text" in beginning.record)
    )


def _is_json(beginning: Beginning) -> bool:
    return beginning.is_list or beginning.line.startswith(b"{")


def _is_json_without_beir_id(beginning: Beginning) -> bool:
    return _is_json(beginning) and not _is_beir(beginning)


def _is_trec(beginning: Beginning) -> bool:
    return _TREC.match(beginning.content) is not None


def _is_tsv(beginning: Beginning) -> bool:
    return beginning.line.count(b"\t") == 1 or names_columns(split_tsv(beginning.line))


def _is_csv(beginning: Beginning) -> bool:
    return without_compression(beginning.url).endswith(".csv") or names_columns(csv_row(beginning.line))


PARQUET = Look("Parquet", _is_parquet, general=True)
BEIR = Look("BEIR's JSONL (`_id`)", _is_beir, general=True)
JSONL = Look("JSONL", _is_json, general=True)
JSONL_WITHOUT_BEIR_ID = Look("JSONL", _is_json_without_beir_id, general=True)
TREC = Look("TREC's (<top>, <topic number> or <DOC>)", _is_trec)
TSV = Look("columns with a tab between them", _is_tsv, general=True)
CSV = Look("CSV with a header line", _is_csv, general=True, by_name=True)
