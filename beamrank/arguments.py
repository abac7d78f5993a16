"""Arguments of the Python API that hold several texts or paths."""

import os
from collections.abc import Iterable, Set
from typing import Any, TypeAlias

from beamrank.errors import ConfigError

Texts: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"


def texts_of(name: str, given: Any) -> list[str]:
    """The texts of an argument, read once; one text or path alone is one of them.

    Raises:
        ConfigError: it is a set, which has no order, or holds something else than texts and paths.
    """
    if isinstance(given, str | os.PathLike):
        return [os.fspath(given)]
    check_ordered(name, given)
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise ConfigError(f"{name} is {given!r:.60} ({type(given).__name__}): give a list of texts")
    found = list(given)
    for each in found:
        if not isinstance(each, str | os.PathLike):
            raise ConfigError(f"{name} holds {each!r:.60} ({type(each).__name__}): give a list of texts")
    return [os.fspath(each) for each in found]


def check_ordered(name: str, given: object) -> None:
    """Refuses a set where the order matters.

    Raises:
        ConfigError: it is one.
    """
    if isinstance(given, Set):
        raise ConfigError(f"{name} is a {type(given).__name__}, which has no order: give a list")
