"""Object stores that run while the tests do, and processes that can reach them."""

from collections.abc import Iterator
from contextlib import ExitStack

import fsspec
import pytest

from tests.support.services.stores import STORES, Store
from tests.support.tiers import slow_but


@pytest.fixture(scope="session")
def started() -> Iterator[dict[str, Store]]:
    """The stores that tests use; each is started once, when the first test needs it."""
    with ExitStack() as stack:

        class Stores(dict[str, Store]):
            def __missing__(self, kind: str) -> Store:
                self[kind] = stack.enter_context(STORES[kind]())
                return self[kind]

        yield Stores()


def reach(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Points this process at a store. fsspec caches file systems with their endpoint, so its cache
    is cleared.
    """
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    fsspec.get_filesystem_class(store.url.partition("://")[0]).clear_instance_cache()
    store.requests.clear()
    return store


@pytest.fixture(params=["s3", "gcs"])
def store(
    request: pytest.FixtureRequest, started: dict[str, Store], monkeypatch: pytest.MonkeyPatch
) -> Store:
    return reach(started[request.param], monkeypatch)


@pytest.fixture(params=slow_but(2, STORES))
def every_store(
    request: pytest.FixtureRequest, started: dict[str, Store], monkeypatch: pytest.MonkeyPatch
) -> Store:
    """Any store that an output may be at; inputs at Azure have other names."""
    return reach(started[request.param], monkeypatch)


@pytest.fixture(params=slow_but(2, [name for name in STORES if name != "azure"]))
def any_store(
    request: pytest.FixtureRequest, started: dict[str, Store], monkeypatch: pytest.MonkeyPatch
) -> Store:
    return reach(started[request.param], monkeypatch)


@pytest.fixture
def s3(started: dict[str, Store], monkeypatch: pytest.MonkeyPatch) -> Store:
    return reach(started["s3"], monkeypatch)


@pytest.fixture
def gcs(started: dict[str, Store], monkeypatch: pytest.MonkeyPatch) -> Store:
    return reach(started["gcs"], monkeypatch)
