"""One value of a row: an id, a text, a number; and columns of them.

In a run, white space ends a column. Readers disagree about which characters are white space (Python
splits at U+00A0, C does not), and a NUL ends a string in C. So an id that holds white space of any
kind, or a control character, would be a different id in a different tool. One rule holds for
topics, corpora, runs and qrels, where they are read.
"""

import math
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beamrank.errors import DataError

_REFUSED = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ufeff\ud800-\udfff]")
# Printable ASCII: an id of such bytes needs no look at its characters.
_PLAIN = bytes(range(0x21, 0x7F))
_SHOWN = 40
_TYPE_NAMES: Mapping[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
    str: "a string",
    bytes: "not valid UTF-8",
}
_TEXT_TYPES = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
)
_NUMBER_TYPES = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
_STRING = pa.string()
_EXACT_FLOAT = 1 << 53
# Below these, each float type tells all whole numbers apart.
_EXACT: Mapping[pa.DataType, int] = {
    pa.float16(): 1 << 11,
    pa.float32(): 1 << 24,
    pa.float64(): 1 << 53,
}


class RowError(ValueError):
    """A row cannot be used; the message continues "the row ...".

    Attributes:
        kind: a short constant for what is wrong: `empty-id`, `not-utf8`.
        row: the row, where the reader knows it.
        fatal: whether it is an error however many rows may be left out.
    """

    row: Any = ""

    def __init__(self, reason: str, kind: str = "", *, fatal: bool = False) -> None:
        super().__init__(reason)
        self.kind = kind
        self.fatal = fatal


def shown(value: str | bytes) -> str:
    """A string or a column of a file, shortened for a message."""
    text = value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def is_usable(identifier: str) -> bool:
    """Whether a string can be an id: not empty, no white space, control characters, BOM or
    surrogates.
    """
    # Almost every id ends here, several times faster than with the pattern.
    if identifier.isprintable() and " " not in identifier:
        return identifier != ""
    return _REFUSED.search(identifier) is None


def are_usable(identifiers: Sequence[str]) -> bool:
    """Whether all of many strings can be ids: as one string, they are checked at once."""
    return all(identifiers) and (not identifiers or is_usable("".join(identifiers)))


def check_id(identifier: str) -> str:
    """Returns an id; raises RowError for one that `is_usable` refuses."""
    if is_usable(identifier):
        return identifier
    refused = _REFUSED.search(identifier)
    if refused is None:
        raise RowError("has an empty id", "empty-id")
    character = refused[0]
    if "\ud800" <= character <= "\udfff":
        raise RowError(
            f"has the id {shown(identifier)}, which holds half of a surrogate pair: UTF-8 cannot "
            "carry it",
            "id-surrogate",
        )
    if character == "\ufeff":
        holds, kind = "a byte order mark", "id-byte-order-mark"
    elif character.isspace():
        holds, kind = "white space", "id-white-space"
    else:
        holds, kind = "a control character", "id-control"
    raise RowError(
        f"has the id {shown(identifier)}, which holds {holds} (U+{ord(character):04X}): programs "
        "that read runs would take it for a different id",
        kind,
    )


def check_query_id(query_id: str) -> str:
    """`check_id`; raises RowError also for an id that begins with `#`, a comment to trec_eval
    10.
    """
    if query_id.startswith("#"):
        raise RowError(
            f"has the id {shown(query_id)}, which begins with `#`: trec_eval would read its lines "
            "of a run as comments",
            "comment-id",
        )
    return check_id(query_id)


def check_query(text: str) -> None:
    """Raises RowError for a text that no topic can have."""
    if "\0" in text:
        raise RowError("has a NUL character in its text", "topic-nul")
    if not text.strip():
        raise RowError("has no text", "topic-empty")


def whole_of(value: Any) -> Any:
    """A whole number of any type as an integer; any other value as it is."""
    is_number = isinstance(value, (Real, Decimal)) and not isinstance(value, bool)
    try:
        return int(value) if is_number and value == int(value) else value
    except (ValueError, OverflowError):
        return value


def type_name(value: object) -> str:
    return _TYPE_NAMES.get(type(value), f"of type {type(value).__name__}")


class Kind(Protocol):
    """The type of a column's values.

    Attributes:
        wanted: the Arrow type that a decoder of text should read.
        stored: the Arrow type of a column of a batch.
    """

    @property
    def wanted(self) -> pa.DataType: ...

    @property
    def stored(self) -> pa.DataType: ...

    def fits(self, kind: pa.DataType) -> bool:
        """Whether a column of this type, which is no encoding, can hold such values."""

    def value(self, name: str, value: object) -> Any:
        """The value of the column `name` of a row; raises RowError where it cannot be used."""

    def array(self, column: Any) -> pa.Array:
        """A whole column; raises ValueError (or Arrow's) where one value needs a look."""


@dataclass(frozen=True)
class Id:
    """An id: a string, or a whole number of any type as its decimal digits.

    Attributes:
        check: raises RowError for one that cannot be used; `str` takes all.
        stored: string, or an integer type.
    """

    check: Callable[[str], str] = check_id
    stored: pa.DataType = _STRING

    @property
    def wanted(self) -> pa.DataType:
        return self.stored

    def fits(self, kind: pa.DataType) -> bool:
        return holds_texts(kind) or _is_of(kind, *_NUMBER_TYPES)

    def value(self, name: str, value: object) -> Any:
        is_text = isinstance(value, str | uuid.UUID)
        if is_text and pa.types.is_string(self.stored):
            return self.check(str(value))
        if value is None:
            raise RowError(f"has no `{name}`", "null")
        if isinstance(value, bytes):
            raise RowError(f"has an id in `{name}` that is not valid UTF-8", "not-utf8")
        written = _written_number(name, value)
        try:
            return pa.scalar(written).cast(self.stored).as_py()
        except pa.ArrowException as error:
            reason = f"has the `{name}` {written}, which is no {self.stored}"
            raise RowError(reason, "number-range") from error

    def array(self, column: Any) -> pa.Array:
        ids = strings_of(column).cast(self.stored)
        ids.validate(full=True)
        is_usable = self.check is str or _are_plain(ids)
        if ids.null_count or not is_usable:
            values = ids.to_pylist()
            if not are_usable(values) or any(value[0] == "#" for value in values):
                raise ValueError("an id needs a look")
        return ids


def _written_number(name: str, value: object) -> str:
    integer = whole_of(value)
    if type(integer) is not int:
        is_number = isinstance(value, Real | Decimal) and not isinstance(value, bool)
        what = f"{value}, no whole number" if is_number else type_name(value)
        raise RowError(f"has an id in `{name}` that is {what}", "id-type")
    exact = _EXACT.get(pa.scalar(value).type) if isinstance(value, float | np.floating) else None
    if exact is not None and abs(integer) >= exact:
        raise RowError(
            f"has the id {integer} in `{name}`, a number with a fraction whose type does not tell "
            f"whole numbers from {exact:,} on apart: write ids as strings or integers",
            "id-inexact",
        )
    return str(integer)


def _are_plain(ids: pa.StringArray) -> bool:
    """Whether all ids are of printable ASCII, and none is empty or a comment."""
    if not len(ids):
        return True
    offsets = np.frombuffer(ids.buffers()[1], np.int32)[ids.offset : ids.offset + len(ids) + 1]
    data = ids.buffers()[2]
    content = bytes(data[offsets[0] : offsets[-1]]) if data is not None else b""
    return bool(
        (np.diff(offsets) > 0).all()
        and not content.translate(None, _PLAIN)
        and not (b"#" in content and pc.any(pc.starts_with(ids, "#")).as_py())
    )


def strings_of(column: Any) -> pa.StringArray:
    """A column of ids as strings; raises ValueError (or Arrow's) where a value needs a look.

    Whole numbers of any type become their digits, a UUID its usual form; bytes must be UTF-8.
    """
    if isinstance(column, list):
        if all(type(value) is str for value in column):
            return pa.array(column, pa.string())
        raise ValueError("values of several types")
    column = plain_values(column)
    kind = column.type
    if holds_texts(kind) or pa.types.is_integer(kind):
        return column.cast(pa.string())
    raise ValueError("values that need a look")


def plain_values(column: Any) -> Any:
    """A column without its encoding: dictionary, run-end or extension; an error stays Arrow's."""
    if isinstance(column, pa.ExtensionArray):
        if column.type.extension_name == "arrow.uuid":
            return pa.array([str(value) for value in column.to_pylist()], pa.string())
        column = column.storage
    if pa.types.is_dictionary(column.type):
        values = plain_values(column.dictionary)
        if pa.types.is_string_view(values.type):  # these cannot be taken
            values = values.cast(pa.large_string())
        return values.take(column.indices)
    if pa.types.is_run_end_encoded(column.type):
        return pc.run_end_decode(column)
    return column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column


@dataclass(frozen=True)
class Text:
    """A text.

    Attributes:
        or_empty: whether one that is null or missing is empty.
        check: raises RowError for one that cannot be used.
    """

    or_empty: bool = False
    check: Callable[[str], None] | None = None
    wanted: ClassVar = pa.string()
    stored: ClassVar = pa.large_string()

    def fits(self, kind: pa.DataType) -> bool:
        return holds_texts(kind)

    def value(self, name: str, value: object) -> str:
        if isinstance(value, str):
            if self.check is not None:
                self.check(value)
            return check_utf8(value)
        if value is None and self.or_empty:
            return ""
        if value is None:
            raise RowError(f"has no `{name}`", "null")
        if isinstance(value, bytes):
            raise RowError(
                f"has a text in `{name}` that is not valid UTF-8: convert the file, such as with "
                "`iconv -f latin1 -t utf-8`",
                "not-utf8",
            )
        raise RowError(f"has a `{name}` that is {type_name(value)}, not a string", "text-type")

    def array(self, column: Any) -> pa.Array:
        if isinstance(column, list):
            texts = pa.array(column, self.stored)
        else:
            column = plain_values(column)
            if not holds_texts(column.type) and column.null_count < len(column):
                raise ValueError("values that need a look")
            texts = column.cast(self.stored)
            texts.validate(full=True)
        if texts.null_count and not self.or_empty:
            raise ValueError("a text is missing")
        if self.check is not None:
            for text in texts.to_pylist():
                self.check(text)
        return pc.fill_null(texts, "") if texts.null_count else texts


def values_of(column: Any) -> list[Any]:
    """A column as Python values; text that is not UTF-8 is bytes."""
    if isinstance(column, list):
        return column
    if holds_texts(plain_type(column.type)):
        return [
            None if value is None else text_or_bytes(value)
            for value in plain_values(column).cast(pa.large_binary()).to_pylist()
        ]
    try:
        values = column.to_pylist()
        if pa.types.is_floating(column.type):  # its type tells which whole numbers are exact
            make = column.type.to_pandas_dtype()
            return [None if value is None else make(value) for value in values]
        return list(values)
    except (ValueError, OverflowError) as error:
        raise DataError(f"a value cannot be read: {error}", kind="damaged") from error


def text_or_bytes(column: bytes) -> str | bytes:
    """Bytes as text; as they are where they are not UTF-8."""
    try:
        return column.decode()
    except UnicodeDecodeError:
        return column


def holds_texts(kind: pa.DataType) -> bool:
    """Whether a type without its encoding holds strings, or bytes that can be."""
    return _is_of(kind, *_TEXT_TYPES)


def _is_of(kind: pa.DataType, *tests: Callable[[pa.DataType], bool]) -> bool:
    return any(test(kind) for test in tests)


def check_utf8(text: str) -> str:
    """Returns a text; raises RowError where it holds half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RowError(
            "holds half of a UTF-16 surrogate pair (\\ud800 to \\udfff), which UTF-8 cannot carry",
            "surrogate",
        ) from error
    return text


@dataclass(frozen=True)
class Number:
    """A number.

    Attributes:
        stored: its type in a batch.
        most: its largest absolute value.
        what: the numbers that are taken, for messages.
        advice: what to do about another one.
        booleans: whether true is 1, and false 0.
    """

    stored: pa.DataType
    most: float
    what: str
    advice: str = ""
    booleans: bool = False

    @property
    def is_integer(self) -> bool:
        return bool(pa.types.is_integer(self.stored))

    @property
    def wanted(self) -> pa.DataType:
        # Arrow's integers can have hexadecimal digits.
        return pa.float64()

    def fits(self, kind: pa.DataType) -> bool:
        is_boolean = bool(pa.types.is_boolean(kind))
        return holds_texts(kind) or _is_of(kind, *_NUMBER_TYPES) or (is_boolean and self.booleans)

    def value(self, name: str, value: object) -> float:
        if value is None:
            raise RowError(f"has no `{name}`", "null")
        is_boolean = isinstance(value, bool | np.bool_)
        number = None if is_boolean and not self.booleans else _number_of(value)
        number = whole_of(number)
        is_int = type(number) is int
        if number is None or (not is_int and math.isnan(number)):
            raise self._error(name, value, "number")
        if self.is_integer and not is_int and math.isfinite(number):
            raise self._error(name, value, "number-fraction")
        if not abs(number) <= self.most:
            raise self._error(name, value, "number-range")
        return number if self.is_integer else float(number)

    def _error(self, name: str, value: object, kind: str) -> RowError:
        quoted = shown(value) if isinstance(value, str | bytes) else f"{value!s:.60}"
        return RowError(f"has the {name} {quoted}, which is not {self.what}{self.advice}", kind)

    def array(self, column: Any) -> pa.Array:
        values = _numbers_of(column)
        if not (np.abs(values) <= self.most).all():  # NaN is not
            raise ValueError("a number out of range")
        with np.errstate(over="ignore", invalid="ignore"):
            stored = values.astype(self.stored.to_pandas_dtype())
        if self.is_integer and not (stored == values).all():
            raise ValueError("a number with a fraction")
        if self.is_integer and values.dtype == np.float64 and (np.abs(values) > _EXACT_FLOAT).any():
            raise ValueError("a number that is not exact")
        return pa.array(stored, self.stored)


def _number_of(value: object) -> Any:
    """A number, or the number that a text holds; None for any other value."""
    if isinstance(value, bytes):
        value = value.decode("latin1")
    if isinstance(value, str):
        # Python takes underscores, and digits of other scripts.
        if "_" in value or not value.isascii():
            return None
        for parse in (int, float):
            try:
                return parse(value)
            except ValueError:
                continue
        return None
    if isinstance(value, bool | np.bool_):
        return int(value)
    return value if isinstance(value, Real | Decimal) else None


def _numbers_of(column: Any) -> Any:
    """A column as int64 or float64; raises ValueError (or Arrow's) where a value needs a look."""
    if isinstance(column, list):
        if all(isinstance(value, str) for value in column):
            numbers = [_number_of(value) for value in column]
            if None in numbers:
                raise ValueError("no number")
            column = numbers
        return np.asarray(pa.array(column, pa.float64()))
    column = plain_values(column)
    if column.null_count:
        raise ValueError("a number is missing")
    kind = column.type
    if pa.types.is_integer(kind):
        return column.cast(pa.int64()).to_numpy()
    if pa.types.is_floating(kind):
        return column.to_numpy().astype(np.float64)
    raise ValueError("values that need a look")


def plain_type(kind: pa.DataType) -> pa.DataType:
    """A type without its encoding."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    return kind
