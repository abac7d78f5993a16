"""Gets the engines that tests need, while other tests run: `python -m tests.pipelines.get_engines`.

What cannot be got here is said by the tests that need it.
"""

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from beamrank.errors import PreflightError
from pipelines.runners import server_command
from pipelines.words import Runner
from tests.pipelines.clusters import distribution


def main() -> None:
    """Downloads, and builds Prism beside them."""
    with ThreadPoolExecutor() as both:
        both.submit(_try, lambda: server_command(Runner.PRISM, []))
        for name in ("spark", "flink"):
            _try(lambda name=name: server_command(Runner(name), []))
            _try(lambda name=name: distribution(name))


def _try(get: Callable[[], object]) -> None:
    with contextlib.suppress(PreflightError, AssertionError, pytest.skip.Exception):
        get()


if __name__ == "__main__":
    main()
