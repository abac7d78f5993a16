"""Files that change: without a trace in their size and time of writing, and JSON."""

import json
import os
from pathlib import Path
from typing import Any


def rewrite(path: Path, content: bytes) -> None:
    """Writes a file, and restores its time of writing."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def flip_bit(path: Path, position: int | None = None, bit: int = 2) -> None:
    """Flips one bit of a file, by default in the middle, and restores its time of writing."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if position is None else position] ^= 1 << bit
    rewrite(path, bytes(content))


def edit_json(path: Path, /, **changes: Any) -> None:
    """Writes other values of some keys into a JSON object."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
