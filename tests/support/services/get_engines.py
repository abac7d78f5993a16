"""Gets the engines that tests need, while other tests run: `python -m
tests.support.services.get_engines flink`.

The tests that need an engine or an environment report why it is missing.
"""

import contextlib
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from beamrank.errors import PreflightError
from pipelines.runners.options import Runner, server_command
from tests.support.services.clusters import distribution
from tests.support.services.environments import ENVIRONMENTS


def main(names: list[str]) -> None:
    """Gets these engines; where none is named, all engines, their clusters and the environments of
    other programs.
    """
    with ThreadPoolExecutor() as beside:
        for make in () if names else ENVIRONMENTS:
            beside.submit(_try, make)
        if not names or "prism" in names:
            beside.submit(_try, partial(server_command, Runner.PRISM, []))
        for name in ("spark", "flink"):
            if not names or name in names:
                _try(partial(server_command, Runner(name), []))
            if not names:
                _try(partial(distribution, name))


def _try(get: Callable[[], object]) -> None:
    with contextlib.suppress(PreflightError, AssertionError, pytest.skip.Exception):
        get()


if __name__ == "__main__":
    main(sys.argv[1:])
