"""TREC CAR paragraphs in CBOR: v1.5, items one after another, and v2, a header and one list.

A paragraph is [0, id, bodies]; a body is [0, text] or, for a link, [1, [0, page, sections, page id, anchor text]].
A page or an outline is [0, name, id, ...]. A header is ["CAR", [kind], provenance].
"""

import io
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import cbor2

from beamrank.errors import DataError, PreflightError
from beamrank.formats.corpora.units import (
    CorpusFormat,
    CorpusUnit,
    DocBatch,
    Fields,
    WrongFormatError,
    parse_rows,
    whole_file,
)
from beamrank.formats.row_checks import RowError
from beamrank.storage.streams import open_stream

_READ_BYTES = 1 << 20
_BATCH_ITEMS = 1024
_MAX_ITEM_BYTES = 64 << 20
_LIST, _BREAK = b"\x9f", b"\xff"
_PARAGRAPHS = 2
_KINDS = {"[0]": "pages (articles)", "[1]": "outlines"}


def _check(url: str, fields: Fields) -> None:
    if fields is not None:
        raise PreflightError(f"the paragraphs of TREC CAR have no named fields: leave `fields` out for {url}")
    with open_stream(url) as file:
        _read_header(file, url)


def _read(unit: CorpusUnit) -> Iterator[DocBatch]:
    with open_stream(unit.url) as file:
        beginning, has_header = _read_header(file, unit.url)
        items = _items(file, unit.url, beginning, has_header)
        ordinal = 0
        while batch := list(islice(items, _BATCH_ITEMS)):
            yield parse_rows(unit, range(ordinal, ordinal + len(batch)), batch, _paragraph)
            ordinal += len(batch)


def _read_header(file: BinaryIO, url: str) -> tuple[bytes, bool]:
    """The bytes read so far from the first paragraph on, and whether they are a list after a header.

    Raises:
        PreflightError: the file does not hold paragraphs.
    """
    beginning = file.read(_READ_BYTES)
    try:
        first, end = next(_whole_items(beginning))
    except (StopIteration, cbor2.CBORDecodeError) as error:
        raise WrongFormatError(
            f"{url} does not begin with CBOR: it is not a TREC CAR file, or it is truncated"
        ) from error
    match first:
        case [0, bytes(), list()]:
            return beginning, False
        case ["CAR", list(kinds), *_] if kinds[:1] != [_PARAGRAPHS]:
            raise _wrong_kind(url, _KINDS.get(str(kinds), "an unknown kind"))
        case ["CAR", list(), *_] if beginning[end : end + 1] == _LIST:
            return beginning[end + 1 :], True
        case ["CAR", list(), *_]:
            raise PreflightError(f"{url} has a TREC CAR header but no list of paragraphs after it: it may be truncated")
        case [_, str(), bytes(), _, *_]:
            raise _wrong_kind(url, "pages or outlines")
    raise WrongFormatError(f"{url} does not hold paragraphs of TREC CAR")


def _wrong_kind(url: str, kind: str) -> PreflightError:
    return PreflightError(f"{url} holds {kind}: give `corpus.path` the file of paragraphs (such as *.cbor.paragraphs)")


def _items(file: BinaryIO, url: str, buffer: bytes, has_header: bool) -> Iterator[Any]:
    """The items of a file, decoded from memory: a decoder that reads a compressed file itself must seek back."""
    count = 0
    while True:
        used = 0
        try:
            for item, end in _whole_items(buffer):
                yield item
                count, used = count + 1, end
        except cbor2.CBORDecodeError as error:
            raise DataError(f"{url} is damaged after its first {count} paragraphs: {error}") from error
        buffer = buffer[used:]
        if buffer[:1] == _BREAK or len(buffer) > _MAX_ITEM_BYTES:
            break
        more = file.read(max(_READ_BYTES, len(buffer)))
        if not more:
            break
        buffer += more
    if has_header and buffer == _BREAK and not file.read(1):
        return
    if has_header or buffer:
        raise DataError(
            f"{url} is damaged or truncated after its first {count} paragraphs: what follows is neither a complete "
            f"paragraph nor the end of the file. Fetch it again"
        )


def _whole_items(buffer: bytes) -> Iterator[tuple[Any, int]]:
    """The complete items in a buffer, each with its end.

    Text that is not UTF-8 keeps its bytes as surrogates, so that it costs one paragraph and not the file.
    """
    stream = io.BytesIO(buffer)
    decoder = cbor2.CBORDecoder(stream, str_errors="surrogateescape")
    end = 0
    while end < len(buffer) and buffer[end : end + 1] != _BREAK:
        try:
            item = decoder.decode()
        except cbor2.CBORDecodeEOF:
            return
        end = stream.tell()
        yield item, end


def _paragraph(item: Any) -> tuple[str, str]:
    match item:
        case [0, bytes(identifier), list(bodies)]:
            try:
                text = " ".join([_body_text(body) for body in bodies])
                return identifier.decode(), text.encode("utf-8", "surrogateescape").decode()
            except UnicodeError as error:
                raise RowError("is not valid UTF-8") from error
    raise RowError("is not a paragraph ([0, id, bodies])")


def _body_text(body: Any) -> str:
    match body:
        case [0, str(text)] | [1, [0, _, _, _, str(text)]]:
            return text
    raise RowError("has a body that is neither text ([0, text]) nor a link ([1, [0, page, sections, id, anchor]])")


def _place(unit: CorpusUnit, position: int) -> str:
    return f"{unit.url} at paragraph {position} (from 0)"


FORMAT = CorpusFormat("car", (".cbor", ".paragraphs"), _check, whole_file, _read, _place)
