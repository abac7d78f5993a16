"""A store is tried before the first run into an output, and refused if it would lose files."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import fsspec
import pytest

from beamrank.commit.listing import PROBE
from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import checked_values
from pipelines.plan.make_plan import check_writable
from tests.stores.conftest import reach
from tests.support.processes import refused
from tests.support.services import stores
from tests.support.services.careless_stores import (
    ignoring,
    in_sequence,
    listing_late,
    replacing,
)
from tests.support.services.stores import BUCKET, Store
from tests.support.small_collection import small_cascade

_CARELESS: dict[str, tuple[Callable[[], AbstractContextManager[Store]], str]] = {
    "ignores the condition": (partial(stores.s3, around=ignoring), "second time"),
    "looks, then writes": (partial(stores.s3, around=in_sequence), r"[2-8] of 8 creates"),
    "replaces what it says to keep": (partial(stores.s3, around=replacing), "keep the bytes"),
    "lists late": (partial(stores.s3, around=listing_late), "not list"),
    "an emulator that ignores it": (partial(stores.gcs, heeds_conditions=False), "second time"),
}


@pytest.fixture(params=_CARELESS)
def careless(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Store, str]]:
    """A store that does not keep its promises, and what is said of it."""
    start, words = _CARELESS[request.param]
    with start() as store:
        yield reach(store, monkeypatch), words


def test_store_that_may_lose_files_is_refused_by_name(careless, tmp_path):
    store, words = careless
    output = f"{store.url}/{tmp_path.name}"
    named = re.compile(rf"^{output} .*{store.endpoint}.* {words}")
    for _ in range(2):
        with pytest.raises(PreflightError, match=named) as raised:
            check_writable(output)
        assert (raised.value.kind, raised.value.file) == ("store-not-safe", output)
        assert storage.entry_names(output) == set()


def test_run_into_a_store_that_may_lose_files_writes_nothing(tmp_path, monkeypatch):
    with stores.s3(around=ignoring) as store:
        output = f"{reach(store, monkeypatch).url}/{tmp_path.name}"
        config = small_cascade(tmp_path).path
        refused("run", config, "--output", output, "--only", "0/1", code=3)
        assert storage.entry_names(output) == set()


def _remembered(output: str) -> list[dict[str, Any]]:
    """What the files of an output hold, which all remember that a store was tried."""
    names = sorted(storage.entry_names(output))
    assert all(re.fullmatch(PROBE.pattern, name) for name in names), names
    contents = storage.read_files(output, names).values()
    return [checked_values(content) for content in contents]


def test_store_that_keeps_files_passes(every_store, tmp_path):
    """Twice, as another attempt and other processes do."""
    output = f"{every_store.url}/{tmp_path.name}"
    check_writable(output)
    (remembered,) = _remembered(output)
    kind, address, bucket = remembered["store"]
    assert kind.endswith("FileSystem")
    assert address in every_store.endpoint
    assert bucket == BUCKET
    check_writable(output)
    assert _remembered(output) == [remembered]


def test_launchers_at_once_all_pass(s3, tmp_path):
    output = f"{s3.url}/{tmp_path.name}"
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(check_writable, [output] * 3))
    assert len(_remembered(output)) == 1


def test_store_is_asked_once_for_an_output_and_an_address(s3, tmp_path, monkeypatch):
    output = f"{s3.url}/{tmp_path.name}"

    def asked() -> list[int]:
        check_writable(output)
        counts = [len(s3.sent(method, "/.probing-")) for method in ("PUT", "GET", "DELETE")]
        counts.append(len(s3.sent("/probe-")))
        s3.requests.clear()
        return counts

    again = [0, 0, 0, 1]
    assert asked() == [2 + 3 * 8, 4, 4, 2]
    assert asked() == again
    by_name = s3.endpoint.replace("127.0.0.1", "localhost")
    monkeypatch.setenv("AWS_ENDPOINT_URL", by_name)
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    assert asked()[0] == 2 + 3 * 8
    assert asked() == again
    assert [one["store"][1] for one in _remembered(output)].count(by_name) == 1
    assert len(_remembered(output)) == 2
