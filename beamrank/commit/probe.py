"""Tries what the commit protocol relies on at a store: a file that exists is not created again, and
is read and listed at once.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from beamrank.commit.listing import PROBE, PROBING
from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import checked_json, digest
from beamrank.system import system

_AT_ONCE, _RACES = 8, 3


def check_store(output: str) -> None:
    """Raises PreflightError where the store of an output, or its file system, would lose files.

    One that passed once is believed for this output, if it is reached by the same address.
    """
    place = storage.place(output)
    kept = PROBE.name(digest(place))
    if storage.read_files(output, [kept]).get(kept):
        return
    names = [PROBING.name(system.uuid4().hex) for _ in range(1 + _RACES)]
    try:
        fault = _fault(output, names)
        if fault:
            raise PreflightError(
                f"{output} cannot hold an output: its store ({', '.join(filter(None, place))}) "
                f"{fault}. Two processes at one shard could then replace or miss each other's "
                "files: use a store, or a version or mount of it, that creates a file only where "
                "there is none, also for creates at once (docs/guide/storage.md)",
                kind="store-not-safe",
                file=output,
            )
        storage.publish(storage.join(output, kept), checked_json({"store": place}))
    finally:
        with suppress(OSError):
            storage.remove_files(output, names)


def _fault(output: str, names: Sequence[str]) -> str:
    """What a store does wrong with new files of these names, the first in sequence, the others at
    once; empty for nothing.
    """
    url = storage.join(output, names[0])
    # Its own answer may be lost, and the create be sent again: it is refused then.
    storage.publish(url, b"first")
    if storage.publish(url, b"second"):
        return "creates a file that exists a second time"
    if storage.read_files(output, names[:1]).get(names[0]) != b"first":
        return "does not keep the bytes of a file that it refuses to create again"
    if names[0] not in storage.entry_names(output):
        return "does not list a file that was just written"
    contents = [b"%d" % number for number in range(_AT_ONCE)]
    for name in names[1:]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            created = list(pool.map(partial(storage.publish, storage.join(output, name)), contents))
        first = [content for content, is_new in zip(contents, created, strict=True) if is_new]
        if len(first) > 1:
            return f"lets {len(first)} of {_AT_ONCE} creates of one file at once succeed"
        if storage.read_files(output, [name]).get(name) not in (first or contents):
            return "does not keep the bytes of the one create of several at once that succeeds"
    return ""
