"""Guesses a file's format by its first bytes: hints for messages about a file of another format than the given one."""

import json
import re
from collections.abc import Collection
from typing import NamedTuple

from beamrank.errors import PreflightError
from beamrank.formats.csv_rows import csv_row
from beamrank.formats.header import Names, find_header, split_tsv
from beamrank.formats.ids import BYTE_ORDER_MARK
from beamrank.storage.streams import errors_as, open_stream, without_compression

_GUESSED_BYTES = 1 << 16

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
_TREC = re.compile(rb"\s*<(top|doc)\b", re.IGNORECASE)
# XML's declaration, comments and the element around all topics may come before the first one.
_TOPIC_XML = re.compile(
    rb"\s*<[^>]*>(?:[^<]*<[^>]*>){0,20}?[^<]*<topic\s[^>]*number\s*=|\s*<topic\s[^>]*number\s*=", re.I
)
# The value of `format` that stands for the guessed one.
AUTO = "auto"

_SMART = re.compile(rb"\s*\.I\s+\S")
_LOOKED_LINES = 20
_RANK_LLM = re.compile(
    rb'(?=.*"candidates"\s*:)\s*(\[\s*)?\{\s*"(query|candidates)"\s*:\s*[{\[]'
    rb'|(?=.*"hits"\s*:\s*\[)\s*(\[\s*)?\{\s*"(query|hits)"\s*:\s*["{\[]',
    re.DOTALL,
)
_MTEB = re.compile(rb'(?=.*"(positive|negative)"\s*:\s*\[)\{\s*"(query|positive|negative)"\s*:\s*["\[]')
_LIST = re.compile(rb"\s*\[\s*\{")
_CBOR = re.compile(rb"\x83(\x00|\x63CAR)")


class _Look(NamedTuple):
    format: str
    described: str


def format_hint(beginning: bytes, read_as: Collection[str], formats: Collection[str], key: str) -> str:
    """The end of a message: the format that a file looks like, or nothing.

    Args:
        beginning: the file's first bytes, decompressed by its name.
        read_as: the format that it was read as, and others that look the same.
        formats: the names of all formats.
        key: the key of the configuration that takes one of them.
    """
    packed = packed_as(beginning)
    if packed:
        return packed
    look = _look(beginning)
    if look is None or look.format in read_as:
        return ""
    remedy = f"set `{key}: {look.format}`" if look.format in formats else f"`{key}` accepts {', '.join(formats)}"
    return f". The file looks like {look.described}: {remedy}"


def guess_format(beginning: bytes) -> str | None:
    """The name of the format that a file of topics or docs looks like; None if its lines have a single column."""
    look = _look(beginning)
    return None if look is None else look.format


def guessed(url: str, key: str, formats: Collection[str]) -> str:
    """The format of a file whose `format` is `auto`.

    Raises:
        PreflightError: the file cannot be read, or looks like none of the formats.
    """
    with errors_as(PreflightError, url), open_stream(url) as file:
        beginning = file.read(_GUESSED_BYTES)
    name = guess_format(beginning)
    if name is None and without_compression(url).endswith(".csv"):
        name = "csv"
    if name in formats:
        return str(name)
    described = "" if name is None else f": it looks like {name}"
    columns = beginning.split(b"\n", 1)[0].count(b"\t") + 1
    if name is None and columns > 2:
        described = (
            f": its first line has {columns} columns (`tsv` has an id and a text; `top1000` two ids, the query and"
        )
        described += " the passage; others need a header line that names them)"
    raise PreflightError(
        f"the format of {url} cannot be guessed{described}{packed_as(beginning)}. Set `{key}` to one of "
        f"{', '.join(formats)}"
    )


def check_text(url: str) -> None:
    """Raises PreflightError where a file is not text in UTF-8, as far as its beginning shows it."""
    with errors_as(PreflightError, url), open_stream(url) as file:
        packed = packed_as(file.read(_GUESSED_BYTES))
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


def _look(beginning: bytes) -> _Look | None:
    beginning = beginning.removeprefix(BYTE_ORDER_MARK)
    line = beginning.lstrip().split(b"\n", 1)[0]
    if beginning.startswith(b"PAR1"):
        return _Look("parquet", "Parquet")
    if _CBOR.match(beginning):
        return _Look("car", "TREC CAR's CBOR")
    if _TREC.match(beginning):
        return _Look("trec", "TREC's (it begins with <top> or <DOC>)")
    if _TOPIC_XML.match(beginning):
        return _Look("trec", "TREC's (it has <topic number>)")
    if _SMART.match(beginning):
        return _Look("smart", "SMART's (it begins with .I)")
    if _RANK_LLM.match(beginning):
        return _Look("rank_llm", "rank_llm's JSON (a query and its candidates)")
    if _MTEB.match(line):
        return _Look("mteb", "MTEB's re-ranking rows (query, positive, negative)")
    if _LIST.match(beginning):
        return _Look("jsonl", "a JSON list")
    if line.startswith(b"{"):
        return _Look("beir", "BEIR's JSONL (`_id`)") if _has_beir_id(line) else _Look("jsonl", "JSONL")
    if _is_top1000(beginning.split(b"\n")[:_LOOKED_LINES]):
        return _Look("top1000", "MS MARCO's top1000 (query_id, doc_id, query, passage)")
    if line.count(b"\t") == 1:
        return _Look("tsv", "two columns with a tab between them")
    if _names_columns(split_tsv(line)):
        return _Look("tsv", "columns with tabs between them, below a header line")
    if _names_columns(csv_row(line)):
        return _Look("csv", "CSV with a header line")
    return None


def _names_columns(line: list[str]) -> bool:
    return any(find_header("", line, Names(meaning, {})) for meaning in ("doc_id", "query_id"))


def _is_top1000(lines: list[bytes]) -> bool:
    """Whether rows are a query_id, a doc_id, a query, the same for each query_id, and a passage.

    Qrels have four columns too, of one word each; MS MARCO's docs have a URL and a title before the text.
    """
    queries: dict[bytes, bytes] = {}
    has_words = False
    for line in lines:
        columns = line.split(b"\t")
        if len(columns) != 4:
            continue
        query_id, doc_id, query, _ = columns
        if any(len(each.split()) != 1 or b"://" in each for each in (query_id, doc_id)):
            return False
        if queries.setdefault(query_id, query) != query:
            return False
        has_words = has_words or len(line.split()) > 6
    return has_words


def _has_beir_id(line: bytes) -> bool:
    try:
        return "_id" in json.loads(line)
    except (ValueError, RecursionError):
        return False
