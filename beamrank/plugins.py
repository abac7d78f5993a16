"""Extensions by name: ours from a table, packages' through entry points, imported when they are
used.

And our own packages, which are installed side by side: their names are common, and a different
package can hide them.
"""

import importlib.util
import inspect
import logging
import os
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from beamrank.errors import PreflightError

Extension = TypeVar("Extension")
_logger = logging.getLogger(__name__)


class Registry(Mapping[str, Extension], Generic[Extension]):
    """The extensions of one kind.

    A name of ours cannot be replaced. `registry[name]` imports the package of the extension, or
    raises PreflightError.

    Args:
        kind: what an extension is, for messages, such as `corpus format`.
        group: the group of entry points; a package names an extension there as `NAME =
            "module:object"`.
        ours: our own extensions, or where they are (`module:object`).
    """

    def __init__(self, kind: str, group: str, ours: Mapping[str, Extension | str]) -> None:
        self.kind, self.group = kind, group
        self._ours = dict(ours)
        self._entries: dict[str, EntryPoint] | None = None
        self._loaded: dict[str, Extension] = {}

    def __getitem__(self, name: str) -> Extension:
        if name not in self._loaded:
            ours = self._ours.get(name)
            if ours is not None and not isinstance(ours, str):
                return ours
            entry = (
                EntryPoint(name, ours, self.group) if ours is not None else self._plugins()[name]
            )
            self._loaded[name] = cast(Extension, load_entry(entry, self.kind))
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._ours, *sorted(self._plugins())])

    def __len__(self) -> int:
        return len(self._ours) + len(self._plugins())

    def __contains__(self, name: object) -> bool:
        return name in self._ours or name in self._plugins()

    def items(self) -> ItemsView[str, Extension]:
        return self.importable().items()

    def values(self) -> ValuesView[Extension]:
        return self.importable().values()

    def importable(self) -> dict[str, Extension]:
        """The extensions whose packages can be imported; the others are named in a warning,
        once.
        """
        extensions = {}
        for name in self:
            try:
                extensions[name] = self[name]
            except PreflightError as error:
                _warn_once(str(error))
        return extensions

    def _plugins(self) -> dict[str, EntryPoint]:
        if self._entries is None:
            self._entries = {}
            for entry in entry_points(group=self.group):
                other = self._entries.get(entry.name)
                if entry.name in self._ours or (other is not None and other.value != entry.value):
                    taken = (
                        "beamrank itself"
                        if entry.name in self._ours
                        else package_of(cast(EntryPoint, other))
                    )
                    _warn_once(
                        f"{package_of(entry)} has a {self.kind} {entry.name!r}, and so has "
                        f"{taken}, whose is used: uninstall one of them"
                    )
                    continue
                self._entries[entry.name] = entry
        return self._entries


def load_entry(entry: EntryPoint, kind: str) -> Any:
    """Imports what an entry point names; PreflightError where that fails."""
    try:
        return entry.load()
    except Exception as error:  # The import of another package can fail in any way.
        raise PreflightError(
            f"the {kind} {entry.name!r} of {package_of(entry)} cannot be imported: "
            f"{type(error).__name__}: {error}. Install it again, or uninstall it"
        ) from error


def options_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The keyword-only parameters of an extension, which are options of the command that calls
    it.
    """
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    return [
        parameter for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]


def chosen(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an extension among those of a command."""
    return {each.name: given[each.name] for each in options_of(function) if each.name in given}


def package_of(entry: EntryPoint) -> str:
    """The package that an entry point belongs to, for messages."""
    return f"the package {entry.dist.name}" if entry.dist else "beamrank"


_warned: set[str] = set()


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        _logger.warning(message)


_BESIDE = ("models", "transforms", "pipelines")
PACKAGES = ("beamrank", *_BESIDE, "contrib")


def check_packages() -> None:
    """Raises PreflightError where a package of the same name hides one of ours."""
    for name in _BESIDE:
        imported, ours = _folder(name), Path(__file__).parent.parent / name
        if (
            imported is None
            or not ours.is_dir()
            or os.path.realpath(imported) == os.path.realpath(ours)
        ):
            continue
        raise PreflightError(
            f"the package {name!r} that Python imports is {imported}, and beamrank's is {ours}: "
            f"beamrank installs packages with these names ({', '.join(_BESIDE)}), and the folder "
            f"of a script and PYTHONPATH come before them. Rename {imported}, or start Python "
            "without its folder in the path"
        )


def _folder(name: str) -> str | None:
    """The folder or file that Python imports a package from."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    places = [*(spec.submodule_search_locations or ())]
    return places[0] if places else spec.origin
