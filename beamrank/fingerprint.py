"""Stable digests. Python's own `hash()` differs from process to process."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

SHORT = 12


def sha256(content: bytes) -> str:
    """The SHA-256 of some bytes, in hex."""
    return hashlib.sha256(content).hexdigest()


def digest(value: Any) -> str:
    """The SHA-256 of a JSON value, whatever the order of its keys."""
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode())


def hash64(text: str) -> int:
    """A 64-bit hash of a string, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def hashes64(texts: Iterable[str]) -> npt.NDArray[np.uint64]:
    """`hash64` of each string: uint64[n]."""
    blake2b = hashlib.blake2b
    joined = b"".join([blake2b(text.encode(), digest_size=8).digest() for text in texts])
    return np.frombuffer(joined, dtype="<u8")
