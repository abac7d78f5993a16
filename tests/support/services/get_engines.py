"""Gets the engines that tests need, while other tests run: `python -m
tests.support.services.get_engines`.

The tests that need an engine or an environment report why it is missing.
"""

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from beamrank.errors import PreflightError
from pipelines.runners.options import Runner, server_command
from tests.support.services.clusters import distribution
from tests.support.services.environments import ENVIRONMENTS


def main() -> None:
    """Gets the engines, their clusters and the environments of other programs."""
    with ThreadPoolExecutor() as beside:
        for make in ENVIRONMENTS:
            beside.submit(_try, make)
        beside.submit(_try, partial(server_command, Runner.PRISM, []))
        for name in ("spark", "flink"):
            _try(partial(server_command, Runner(name), []))
            _try(partial(distribution, name))


def _try(get: Callable[[], object]) -> None:
    with contextlib.suppress(PreflightError, AssertionError, pytest.skip.Exception):
        get()


if __name__ == "__main__":
    main()
