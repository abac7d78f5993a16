"""Stable digests. Python's own `hash()` differs from process to process."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from beamrank.storage.documents import parse_json, validated

SHORT = 12
_CHECK = "check"
_Record = TypeVar("_Record")


def sha256(content: bytes | memoryview) -> str:
    """The SHA-256 of some bytes, in hex."""
    return hashlib.sha256(content).hexdigest()


def digest(value: Any) -> str:
    """The SHA-256 of a JSON value, whatever the order of its keys."""
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode())


def checked_json(values: Mapping[str, Any]) -> bytes:
    """A JSON object as a file, with a digest of its values that detects a flipped bit."""
    return json.dumps({**values, _CHECK: digest(values)[:SHORT]}, sort_keys=True, indent=1).encode()


def checked_values(content: bytes) -> dict[str, Any]:
    """The values in a file of `checked_json`; a file without a digest is not checked.

    Raises:
        ValueError: the bytes are not a JSON object (truncated, for example), or were changed.
    """
    values = parse_json(content)
    if not isinstance(values, dict):
        raise ValueError("it does not hold a JSON object")
    check = values.pop(_CHECK, None)
    try:
        if check is not None and check != digest(values)[:SHORT]:
            raise ValueError("it was changed after it was written")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return values


def checked_record(kind: TypeAdapter[_Record], content: bytes) -> _Record | None:
    """The record in a file of `checked_json`; None if the bytes are truncated or of another type."""
    try:
        return validated(kind, checked_values(content))
    except ValueError:
        return None


def hash64(text: str) -> int:
    """A 64-bit hash of a string, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def hashes64(texts: Iterable[str]) -> npt.NDArray[np.uint64]:
    """`hash64` of each string: uint64[n]."""
    blake2b = hashlib.blake2b
    joined = b"".join([blake2b(text.encode(), digest_size=8).digest() for text in texts])
    return np.frombuffer(joined, dtype="<u8")
