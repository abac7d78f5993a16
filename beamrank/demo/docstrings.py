"""The docstrings of the running Python's standard library, by qualified name.

What is written in Python is read from its source and never imported; what is written in C is found by importing a
fixed list of modules that do nothing on import.
"""

import ast
import functools
import importlib
import sys
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Tests, games and demonstrations; graphics, which distributions package apart; modules that not every version has;
# and what stands behind another module's name.
# fmt: off
_LEFT_OUT = frozenset([
    "antigravity", "distutils", "encodings", "ensurepip", "idlelib", "lib2to3", "msilib", "ntpath", "nturl2path",
    "pydoc_data", "sre_compile", "sre_constants", "sre_parse", "test", "this", "tkinter", "turtle", "turtledemo",
])
# fmt: on
_LEFT_OUT_PARTS = frozenset(["test", "tests", "__main__", "__pycache__"])
_PUBLIC_NAMES = {"posixpath": "os.path", "genericpath": "os.path"}
# fmt: off
_WITH_C_PARTS = [
    "array", "atexit", "binascii", "bisect", "builtins", "bz2", "cmath", "codecs", "collections", "contextvars",
    "copy", "csv", "datetime", "decimal", "errno", "faulthandler", "fcntl", "fractions", "functools", "gc", "getpass",
    "grp", "hashlib", "heapq", "hmac", "io", "itertools", "json", "locale", "lzma", "marshal", "math", "mmap",
    "operator", "os", "pickle", "pwd", "queue", "random", "re", "resource", "select", "signal", "socket", "sqlite3",
    "ssl", "statistics", "string", "struct", "sys", "syslog", "termios", "threading", "time", "tracemalloc", "types",
    "unicodedata", "weakref", "zlib",
]
# fmt: on

_CALLABLES = (types.BuiltinFunctionType, types.MethodType)
_MEMBERS = (
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.BuiltinFunctionType,
    staticmethod,
    classmethod,
)


def find_docstrings() -> dict[str, str]:
    """Finds every public object that has a docstring.

    Returns:
        Docstrings by qualified name (`textwrap.dedent`, `str.split`), sorted by name. Where several objects have the
        same docstring, it goes to the one with the fewest dots, then the first by name.
    """
    found = dict(_find_in_modules())
    found.update(_find_in_sources())
    names: dict[str, str] = {}
    for name in sorted(found, key=lambda name: (name.count("."), name)):
        names.setdefault(" ".join(found[name].split()), name)
    return {name: found[name] for name in sorted(names.values())}


def _find_in_sources() -> Iterator[tuple[str, str]]:
    library = Path(sysconfig.get_path("stdlib"))
    for top in sorted(sys.stdlib_module_names - _LEFT_OUT):
        if top.startswith("_"):
            continue
        package = library / top
        paths = sorted(package.rglob("*.py")) if package.is_dir() else [library / f"{top}.py"]
        for path in paths:
            parts = path.relative_to(library).with_suffix("").parts
            if path.is_file() and _LEFT_OUT_PARTS.isdisjoint(parts):
                yield from _find_in_file(path, [part for part in parts if part != "__init__"])


def _find_in_file(path: Path, parts: list[str]) -> Iterator[tuple[str, str]]:
    tree = ast.parse(path.read_bytes())
    if not any(part.startswith("_") for part in parts):
        yield from _own_docstring(".".join(parts), tree)
    # A private module's objects go by the package that shows them: pathlib._local.Path is pathlib.Path. So do those
    # that a package collects from its modules: asyncio.tasks.wait_for is asyncio.wait_for.
    public = ".".join(part for part in parts if not part.startswith("_"))
    collected = _collected_names(path.parent / "__init__.py").get(parts[-1], frozenset()) if len(parts) == 2 else ()
    for name, docstring in _find_in_body(_PUBLIC_NAMES.get(public, public), tree.body):
        top = name.removeprefix(f"{public}.").split(".")[0]
        shown = "*" in collected or top in collected
        yield (parts[0] + name.removeprefix(public) if shown else name), docstring


@functools.cache
def _collected_names(package: Path) -> dict[str, frozenset[str]]:
    """The names that a package's `__init__.py` imports from each of its modules; `*` for all."""
    nodes = (node for node in ast.parse(package.read_bytes()).body if isinstance(node, ast.ImportFrom) and node.level)
    return {node.module: frozenset(alias.name for alias in node.names) for node in nodes if node.module}


def _find_in_body(prefix: str, body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from _find_in_body(prefix, [*node.body, *node.orelse])
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            name = f"{prefix}.{node.name}"
            yield from _own_docstring(name, node)
            if isinstance(node, ast.ClassDef):
                yield from _find_in_body(name, node.body)


def _own_docstring(
    name: str, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
) -> Iterator[tuple[str, str]]:
    docstring = ast.get_docstring(node)
    if docstring:
        yield name, docstring


def _find_in_modules() -> Iterator[tuple[str, str]]:
    for module_name in _WITH_C_PARTS:
        try:
            module = importlib.import_module(module_name)
        except ImportError:  # a Python built without this extension, or for a system that has none
            continue
        prefix = "" if module_name == "builtins" else f"{module_name}."
        if not hasattr(module, "__file__"):
            yield from _docstring_of(module_name, module)
        for name, value in sorted(vars(module).items()):
            if name.startswith("_"):
                continue
            if isinstance(value, _CALLABLES) or _is_wrapper(value, module_name):
                yield from _docstring_of(f"{prefix}{name}", value)
            elif isinstance(value, type) and _is_shown_by(value, module_name):
                yield from _docstring_of(f"{prefix}{name}", value)
                yield from _find_in_class(f"{prefix}{name}", value)


def _is_wrapper(value: Any, module_name: str) -> bool:
    """Whether it is a function of the module's own: in signal, they take their docstrings from C."""
    return isinstance(value, types.FunctionType) and value.__module__ == module_name


def _is_shown_by(value: type, module_name: str) -> bool:
    """Whether a class is the module's own, though a private module may define it."""
    return value.__module__.split(".")[0].removeprefix("_") == module_name


def _find_in_class(prefix: str, value: type) -> Iterator[tuple[str, str]]:
    for name, member in sorted(vars(value).items()):
        if not name.startswith("_") and isinstance(member, _MEMBERS):
            yield from _docstring_of(f"{prefix}.{name}", member)


def _docstring_of(name: str, value: Any) -> Iterator[tuple[str, str]]:
    docstring = getattr(value, "__doc__", None)
    if isinstance(docstring, str) and docstring.strip():
        yield name, docstring
