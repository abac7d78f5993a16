"""TREC CAR's files of paragraphs, pages and outlines: v1.5, CBOR items one after another; v2, a
header and one list.

A paragraph is [0, id, bodies]; a body is [0, text] or, for a link, [1, [0, page, sections, page id,
anchor text]]. A page or an outline is [0, name, id, skeleton, ...]. A header is ["CAR", [kind],
provenance].
"""

import io
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

import cbor2

from beamrank.errors import DataError, PreflightError
from beamrank.formats.decode.base import WrongFormatError
from beamrank.formats.values import RowError

_READ_BYTES = 1 << 20
_MAX_ITEM_BYTES = 64 << 20
_LIST, _BREAK = b"\x9f", b"\xff"
# A paragraph: three items, 0, an id of 1 to 255 bytes. So many in a row are not found in a text.
_PARAGRAPH = re.compile(rb"\x83\x00(?:[\x41-\x57]|\x58.)", re.DOTALL)
_SURE = 3
_NAMES = {0: "pages (articles)", 1: "outlines", 2: "paragraphs"}


class Kind(NamedTuple):
    """A kind of file: one of its items, the kinds that its v2 header may name, and what to do with
    another kind.
    """

    noun: str
    headers: tuple[int, ...]
    remedy: str


PARAGRAPHS = Kind(
    "paragraph",
    (2,),
    "give `corpus.path` the file of paragraphs (such as *.cbor.paragraphs), or set "
    "`corpus.format: car-pages` for the paragraphs in pages",
)
PAGES = Kind("page", (0,), "give `corpus.path` the file of pages (such as fold-*.cbor)")
OUTLINES = Kind(
    "outline", (0, 1), "give `topics.path` the file of outlines (such as *.cbor.outlines)"
)


def find_ranges(file: BinaryIO, size: int, unit_bytes: int) -> list[tuple[int, int]]:
    """Cuts a file of paragraphs into ranges of about `unit_bytes`, each from the first byte of a
    paragraph.

    Only the bytes after each multiple of `unit_bytes` are read. Were they to look like paragraphs
    without being some, `read_items` would find a paragraph that does not end where the range does.
    """
    starts = [0]
    for at in range(unit_bytes, size, unit_bytes):
        start = None if at <= starts[-1] else _find_paragraph(file, at)
        starts += [] if start is None else [start]
    return list(zip(starts, [*starts[1:], size], strict=True))


def _find_paragraph(file: BinaryIO, at: int) -> int | None:
    """The first byte from `at` on where paragraphs begin; None where too few follow."""
    file.seek(at)
    window = b""
    while len(window) <= _MAX_ITEM_BYTES and (more := file.read(_READ_BYTES)):
        window += more
        for hit in _PARAGRAPH.finditer(window):
            try:
                items = [item for item, _ in islice(_whole_items(window[hit.start() :]), _SURE)]
            except cbor2.CBORDecodeError:
                continue
            if len(items) == _SURE and all(_is_paragraph(item) for item in items):
                return at + hit.start()
    return None


def _is_paragraph(item: Any) -> bool:
    match item:
        case [0, bytes(), list()]:
            return True
    return False


def read_items(
    file: BinaryIO, where: str, kind: Kind, start: int = 0, end: int = 0
) -> Iterator[tuple[int, Any]]:
    """The items of a file, each with its first byte.

    They are decoded from memory: a decoder that reads a compressed file itself must seek back.

    Args:
        file: the file at its beginning.
        where: names it in errors.
        kind: what it must hold.
        start: the beginning of a range of `find_ranges`.
        end: the end of the range; 0 for the whole file.

    Raises:
        PreflightError: it does not hold such items.
        DataError: it is damaged or truncated.
    """
    buffer, place, has_header = _read_header(file, where, kind)
    if start:
        file.seek(start)
        buffer, place, where = b"", start, f"{where} from byte {start} on"
    buffer = buffer[: end - place] if end else buffer
    count = 0
    while True:
        used = 0
        try:
            for item, after in _whole_items(buffer):
                yield place + used, item
                count, used = count + 1, after
        except cbor2.CBORDecodeError as error:
            raise DataError(
                f"{where} is damaged after its first {count} {kind.noun}s: {error}",
                kind="damaged",
            ) from error
        buffer, place = buffer[used:], place + used
        if buffer[:1] == _BREAK or len(buffer) > _MAX_ITEM_BYTES:
            break
        wanted = max(_READ_BYTES, len(buffer))
        more = file.read(min(wanted, end - place - len(buffer)) if end else wanted)
        if not more:
            break
        buffer += more
    if end:
        file.seek(end)
    is_last = not file.read(1)
    if buffer != (_BREAK if has_header and is_last else b"") or not (is_last or end):
        raise DataError(
            f"{where} is damaged or truncated after its first {count} {kind.noun}s: what follows "
            f"is neither a complete {kind.noun} nor the end of the file. Fetch it again",
            kind="damaged",
        )


def _read_header(file: BinaryIO, where: str, kind: Kind) -> tuple[bytes, int, bool]:
    """The bytes read so far from the first item on, its first byte, and whether the items are a
    list after a header.

    Raises:
        PreflightError: the file does not hold items of this kind.
    """
    beginning = file.read(_READ_BYTES)
    try:
        # A first item that is longer is read further.
        while (first_item := next(_whole_items(beginning), None)) is None and len(
            beginning
        ) <= _MAX_ITEM_BYTES:
            more = file.read(len(beginning) or 1)
            if not more:
                break
            beginning += more
    except cbor2.CBORDecodeError:
        first_item = None
    if first_item is None:
        raise WrongFormatError(
            f"{where} does not begin with CBOR: it is not a TREC CAR file, or it is truncated",
            kind="not-car",
        )
    first, end = first_item
    match first:
        case ["CAR", list(kinds), *_]:
            if kinds[:1] not in ([number] for number in kind.headers):
                named = next(
                    (name for number, name in _NAMES.items() if kinds[:1] == [number]),
                    "an unknown kind",
                )
                raise PreflightError(f"{where} holds {named}: {kind.remedy}", kind="other-part")
            if beginning[end : end + 1] != _LIST:
                raise PreflightError(
                    f"{where} has a TREC CAR header but no list of {kind.noun}s after it: it may "
                    "be truncated",
                    kind="damaged",
                )
            return beginning[end + 1 :], end + 1, True
        case [0, bytes(), list()]:
            if kind is PARAGRAPHS:
                return beginning, 0, False
            raise PreflightError(f"{where} holds paragraphs: {kind.remedy}", kind="other-part")
        case [_, str(), bytes(), _, *_]:
            if kind is not PARAGRAPHS:
                return beginning, 0, False
            raise PreflightError(
                f"{where} holds pages or outlines: {kind.remedy}", kind="other-part"
            )
    raise WrongFormatError(f"{where} does not hold {kind.noun}s of TREC CAR", kind="not-car")


def _whole_items(buffer: bytes) -> Iterator[tuple[Any, int]]:
    """The complete items in a buffer, each with its end.

    Text that is not UTF-8 keeps its bytes as surrogates, so that it costs one paragraph and not the
    file.
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


def parse_paragraph(item: Any) -> tuple[str, str]:
    """The id and the text of a paragraph: its bodies, joined by one space.

    Raises:
        RowError: it is not a paragraph, or not valid UTF-8.
    """
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
    raise RowError(
        "has a body that is neither text ([0, text]) nor a link ([1, [0, page, sections, id, "
        "anchor]])"
    )


def page_paragraphs(page: Any) -> Iterator[Any]:
    """The paragraphs of a page in the order of the text, also of lists and captions.

    Raises:
        RowError: it is not a page.
    """
    for part, _ in _parts(page):
        match part:
            case [1, paragraph] | [3, _, paragraph]:
                yield paragraph


def section_paths(page: Any) -> Iterator[bytes]:
    """The ids of a page's sections in the order of the text: the ids of the page and of the
    headings, joined by `/`.

    Raises:
        RowError: it is not a page or an outline.
    """
    for part, path in _parts(page):
        if part[0] == 0:
            yield path


def _parts(page: Any) -> Iterator[tuple[list[Any], bytes]]:
    """The parts of a page's skeleton in the order of the text, each with the path of its section,
    itself included.
    """
    match page:
        case [_, str(), bytes(identifier), list(skeleton), *_]:
            stack = [(part, identifier) for part in reversed(skeleton)]
        case _:
            raise RowError("is not a page ([0, name, id, skeleton])")
    while stack:
        part, path = stack.pop()
        match part:
            case [0, str(), bytes(heading), list(children)]:
                path = path + b"/" + heading
                stack += [(child, path) for child in reversed(children)]
            case [2, _, list(caption)]:
                stack += [(child, path) for child in reversed(caption)]
            case [1, _] | [3, _, _]:
                pass
            case _:
                raise RowError("has a part that is not a section, a paragraph, an image or a list")
        yield part, path
