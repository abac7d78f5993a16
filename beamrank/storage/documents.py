"""Small JSON documents that may be damaged or written by others, and stable digests of their
values.

Every problem of a document is a ValueError of one line. Python's own `hash()` differs from process
to process.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Annotated, Any, BinaryIO, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from beamrank.errors import PreflightError
from beamrank.findings import place_of, problem_of
from beamrank.storage import files as storage

# In a receipt, for example. Sums and rates of these are numbers that can be printed.
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Seconds = Annotated[float, Field(ge=0, lt=1e12)]
SHORT = 12
TEXT_DIGEST_BYTES = 16
_CHECK = "check"
_TOO_DEEP = "it is nested too deeply"
_Value = TypeVar("_Value")


def read_at_most(url: str, most_bytes: int) -> bytes:
    """A whole file that should be small; raises ValueError if it is larger, before the rest is
    read.
    """
    with storage.open_binary(url) as file:
        return at_most(file, most_bytes)


def at_most(file: BinaryIO, most_bytes: int) -> bytes:
    """The rest of an open file; raises ValueError if it is larger."""
    content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it is larger than {most_bytes:,} bytes")
    return content


def parse_json(content: bytes | str) -> Any:
    """The value of a JSON text; raises ValueError, also for NaN, Infinity, and thousands of digits
    or levels.
    """
    try:
        return json.loads(content, parse_constant=_refuse)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def _refuse(name: str) -> Any:
    raise ValueError(f"it holds {name}, which is not JSON")


def validated(kind: TypeAdapter[_Value], values: Any) -> _Value:
    """A value, converted to its type; a ValueError names the first place that is not of that
    type.
    """
    try:
        return kind.validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(
            ": ".join(filter(None, (place_of(first, values), problem_of(first))))
        ) from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def usable(kind: type[_Value], values: Any, place: str) -> _Value:
    """`validated` for a document of others; raises PreflightError, with its place, where it cannot
    be used.
    """
    try:
        document: _Value = validated(adapter(kind), values)  # type: ignore[arg-type]
        return document
    except ValueError as error:
        raise PreflightError(f"{place} cannot be used: {error}") from error


def read_usable(kind: type[_Value], url: str, most_bytes: int) -> _Value:
    """`usable` for a JSON file; raises FileNotFoundError, and PreflightError where the file is
    damaged or too large.
    """
    try:
        values = parse_json(read_at_most(url, most_bytes))
    except (ValueError, IsADirectoryError) as error:
        raise PreflightError(f"{url} is not valid JSON: {error}") from error
    return usable(kind, values, url)


def sha256(content: bytes | memoryview) -> str:
    """The SHA-256 of some bytes, in hex."""
    return hashlib.sha256(content).hexdigest()


def holds_content(name: str, content: bytes | memoryview) -> bool:
    """Whether a file that is named after its content holds it."""
    return name.rpartition("-")[2].partition(".")[0] == sha256(content)[:SHORT]


def digest(value: Any) -> str:
    """The SHA-256 of a JSON value, whatever the order of its keys."""
    return sha256(
        json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
    )


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with every text in it changed, keys among them."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key): with_texts(item, change) for key, item in value.items()}
    return (
        [with_texts(item, change) for item in value] if isinstance(value, list | tuple) else value
    )


def checked_json(values: Mapping[str, Any]) -> bytes:
    """A JSON object as a file, with a digest of its values that detects a flipped bit."""
    return json.dumps({**values, _CHECK: digest(values)[:SHORT]}, sort_keys=True, indent=1).encode()


def checked_values(content: bytes) -> dict[str, Any]:
    """The values in a file of `checked_json`; a file without a digest is not checked. Raises
    ValueError.
    """
    values = parse_json(content)
    if not isinstance(values, dict):
        raise ValueError("it does not hold a JSON object")
    check = values.pop(_CHECK, None)
    try:
        if check is not None and check != digest(values)[:SHORT]:
            raise ValueError("it was changed after it was written")
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    return values


def checked_record(kind: TypeAdapter[_Value], content: bytes) -> _Value | None:
    """The record in a file of `checked_json`; None if the bytes are truncated or of a different
    type.
    """
    try:
        return validated(kind, checked_values(content))
    except ValueError:
        return None


@dataclass(frozen=True)
class Document:
    """The base of a frozen dataclass that is the content of a small file; a file with other keys is
    damaged.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    def to_json(self) -> bytes:
        return checked_json(asdict(self))

    @classmethod
    def from_json(cls, content: bytes) -> Self | None:
        """The content of a file; None if the bytes are truncated or invalid."""
        document: Self | None = checked_record(adapter(cls), content)  # type: ignore[arg-type]
        return document

    @classmethod
    def read(cls, folder: str, names: Sequence[str]) -> list[Self]:
        """The documents in some files of a folder, without files that are gone or damaged."""
        documents = map(cls.from_json, storage.read_files(folder, names).values())
        return [document for document in documents if document is not None]


@cache
def adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Pydantic's adapter of a type, which takes milliseconds to make, once in a process."""
    return TypeAdapter(kind)


def hash64(text: str) -> int:
    """A 64-bit hash of a string, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def text_digests(texts: Sequence[str]) -> list[bytes]:
    """BLAKE2b of each text, `TEXT_DIGEST_BYTES` long: texts with one digest are the same."""
    size, blake2b = TEXT_DIGEST_BYTES, hashlib.blake2b
    return [blake2b(text.encode(), digest_size=size).digest() for text in texts]


def hashes64(texts: Iterable[str | memoryview]) -> npt.NDArray[np.uint64]:
    """`hash64` of each string, or of the bytes of each buffer: uint64[n]."""
    blake2b = hashlib.blake2b
    contents = (text.encode() if isinstance(text, str) else text for text in texts)
    joined = b"".join([blake2b(content, digest_size=8).digest() for content in contents])
    return np.frombuffer(joined, dtype="<u8")
