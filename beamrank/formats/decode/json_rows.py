"""JSON: an object a line, or a list of objects in a file."""

import itertools
import json
import re
from collections import ChainMap
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import json as arrow_json

from beamrank.errors import DataError
from beamrank.formats.decode.base import (
    BYTE_ORDER_MARK,
    Bad,
    Records,
    Rows,
    Source,
    Wanted,
    WrongFormatError,
    collected,
    ignore,
)
from beamrank.formats.decode.lines import (
    BlocksDecoder,
    blocks_of,
    places_of,
)
from beamrank.formats.values import RowError, type_name

# A list of objects, or an object that continues on the next line.
_LIST = re.compile(rb"\s*(\[\s*(\{|\]\s*\Z)|\{\s*\n)")
_MOST_LIST_BYTES = 1 << 28
# A list is one unit, whose places are elements.
_BEGINNING_BYTES = 1 << 16
SMALL_BYTES = 1 << 13
_FIRST_RECORDS = 100


class JsonDecoder(BlocksDecoder):
    """A file of JSON objects, whose fields are the columns of its first ones; see `Decoder`."""

    def __init__(self, source: Source, optional: Sequence[str]) -> None:
        """Takes names of columns that all objects can lack."""
        super().__init__(source)
        with source.open() as file:
            beginning = file.read(_BEGINNING_BYTES).removeprefix(BYTE_ORDER_MARK)
        self._is_list = _LIST.match(beginning) is not None
        self.noun = "row" if self._is_list else "line"
        records = [record for _, record in itertools.islice(self._records(ignore), _FIRST_RECORDS)]
        # The first one can lack a field.
        present = dict.fromkeys(name for record in records for name in record)
        self.names = tuple(dict.fromkeys([*present, *optional]))
        self.width = len(self.names) if present else 0
        first = ChainMap(
            *({k: v for k, v in record.items() if v is not None} for record in records)
        )
        self.first = [first.get(name) for name in self.names] if present else []

    @property
    def texts(self) -> list[int]:
        return [at for at, value in enumerate(self.first) if isinstance(value, str)]

    @property
    def empty(self) -> list[int]:
        return [at for at, value in enumerate(self.first) if value is None]

    def ranges(self, unit_bytes: int) -> list[tuple[int, int]]:
        return [(0, 0)] if self._is_list else super().ranges(unit_bytes)

    def rows(self, start: int, end: int, wanted: Wanted, bad: Bad) -> Iterator[Rows]:
        if self._is_list:
            return collected(self._values(self._records(bad)), wanted)
        return super().rows(start, end, wanted, bad)

    def _parsed(self, first: int, block: bytes, wanted: Wanted) -> Rows | None:
        if not wanted or len(block) < SMALL_BYTES or b"\n\n" in block:
            return None
        # An integer is an id too, and any number a score.
        integers = {at for at in wanted if type(self.first[at]) is int}
        kinds = {at: pa.int64() if at in integers else kind for at, kind in wanted.items()}
        schema = pa.schema([(self.names[at], kind) for at, kind in kinds.items()])
        try:
            block.decode()
            table = arrow_json.read_json(
                pa.BufferReader(block),
                arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
                arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
            )
        except (ValueError, pa.ArrowException):
            return None
        places = places_of(first, block, self.noun)
        if len(table) != len(places):
            return None
        return Rows({at: table[self.names[at]].combine_chunks() for at in wanted}, places)

    def _of_lines(self, first: int, block: bytes, bad: Bad) -> Iterator[tuple[int, dict[str, Any]]]:
        places = places_of(first, block, self.noun)
        for place, line in zip(places, block.split(b"\n"), strict=False):
            if line.removeprefix(BYTE_ORDER_MARK).strip():
                try:
                    yield place, json_object(line)
                except RowError as error:
                    bad(place, error, line)

    def _split(self, first: int, block: bytes, bad: Bad) -> Records:
        return self._values(self._of_lines(first, block, bad))

    def _values(self, records: Iterator[tuple[int, dict[str, Any]]]) -> Records:
        return ((place, list(map(record.get, self.names))) for place, record in records)

    def _records(self, bad: Bad) -> Iterator[tuple[int, dict[str, Any]]]:
        if not self._is_list:
            with self._source.open() as file:
                for first, block in blocks_of(file, 0, 0):
                    yield from self._of_lines(first, block, bad)
            return
        for place, value in enumerate(self._elements(), 1):
            if isinstance(value, dict):
                yield place, value
            else:
                bad(place, _no_object(value), value)

    def _elements(self) -> list[Any]:
        url = self._source.url
        with self._source.open() as file:
            content = file.read(_MOST_LIST_BYTES + 1)
        if len(content) > _MOST_LIST_BYTES:
            raise DataError(
                f"{url} is one JSON value of more than {_MOST_LIST_BYTES >> 20} MiB, which would "
                "be in memory at once: write a line for each row, with `jq -c '.[]' LIST.json > "
                "ROWS.jsonl`",
                kind="too-large",
                file=url,
            )
        try:
            values = json.loads(content.removeprefix(BYTE_ORDER_MARK))
        except (ValueError, RecursionError) as error:
            line = getattr(error, "lineno", None)
            raise WrongFormatError(
                f"{url}{f':{line}' if line else ''}: not JSON: {error}. The file may be truncated",
                kind="not-utf8" if isinstance(error, UnicodeDecodeError) else "not-json",
                file=url,
                place=line,
            ) from error
        return values if isinstance(values, list) else [values]


def is_json(beginning: bytes) -> bool:
    """Whether a file that begins so holds JSON: a list of objects, or a line with one."""
    line = beginning.lstrip().split(b"\n", 1)[0]
    if _LIST.match(beginning) is not None:
        return True
    try:
        return line.startswith(b"{") and bool(json_object(line))
    except RowError:
        return False


def json_object(line: bytes) -> dict[str, Any]:
    """The object of a line; raises RowError where it is none."""
    try:
        value = json.loads(line)
    except UnicodeDecodeError as error:
        raise RowError(
            f"is not valid UTF-8 (byte 0x{line[error.start]:02x}): convert the file, such as with "
            "`iconv -f latin1 -t utf-8`",
            "not-utf8",
        ) from error
    except json.JSONDecodeError as error:
        raise RowError(f"is not JSON: {error.msg} (character {error.pos})", "not-json") from error
    except (ValueError, RecursionError) as error:
        raise RowError(f"is JSON that cannot be read: {error}", "not-json") from error
    if not isinstance(value, dict):
        raise _no_object(value)
    return value


def _no_object(value: object) -> RowError:
    return RowError(f"is JSON, but {type_name(value)}, not an object", "not-object")
