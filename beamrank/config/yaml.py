"""Configurations as YAML files: read, overridden and checked. Errors name the key or the line, and
never quote it.
"""

import copy
import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from beamrank.errors import ConfigError, PreflightError
from beamrank.findings import problem_of
from beamrank.formats.checks import number as number_of
from beamrank.section import SELF, Relative, Section, check_ordered, relative, section_of
from beamrank.sources import is_named
from beamrank.storage import files as storage
from beamrank.storage.documents import at_most, read_at_most
from beamrank.storage.globs import absolute_glob
from beamrank.storage.local_files import is_stream
from beamrank.storage.urls import carries_credentials, refuse_credentials

MAX_DEPTH = 20
_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"
# Aliases written out: a few lines of YAML can expand to millions of values. A file without aliases
# holds fewer.
_MOST_VALUES = 50_000
_KINDS = {
    f"tag:yaml.org,2002:{name}": name
    for name in ("null", "bool", "int", "float", "str", "seq", "map")
}
_BOOL = "tag:yaml.org,2002:bool"
_LONGEST_NUMBER = 100
_MOST = 2**63
# Other forms of YAML 1.1 mean something else than they seem to: 010 is 8, 1:30 is 90, and 0o10 is
# text.
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_UNREADABLE = re.compile("[\0\ud800-\udfff]")
_QUOTED = re.compile(r"(['\"])[^'\"<\s]{2,}\1")


class _Loader(yaml.SafeLoader):
    """Finds plain values: a date stays text, and there are no merges."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _KINDS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    _depth = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            # PyYAML's stubs give events the marks of its C parser, which is not used here.
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            raise ConstructorError(None, None, _TOO_DEEP, event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _refusal(node: Node, problem: str) -> ConstructorError:
    return ConstructorError(None, None, problem, node.start_mark)


class _Values:
    """Makes the values of nodes. Each alias gets its own: an override of one place must not change
    the other.
    """

    def __init__(self) -> None:
        self._count = 0

    def make(self, node: Node, depth: int = 1) -> Any:
        """The value of a node."""
        self._count += 1
        if depth > MAX_DEPTH:
            raise _refusal(node, _TOO_DEEP)
        if self._count > _MOST_VALUES:
            raise _refusal(
                node, f"it holds more than {_MOST_VALUES:,} values, aliases (*name) written out"
            )
        match _KINDS.get(node.tag), node:
            case None, _:
                raise _refusal(node, "the tag is not known")
            case "seq", SequenceNode():
                # No key takes a list of truth values: `[yes, no]` are words.
                return [
                    item.value
                    if item.tag == _BOOL and isinstance(item, ScalarNode)
                    else self.make(item, depth + 1)
                    for item in node.value
                ]
            case "map", MappingNode():
                return self._section(node, depth)
            case str(kind), ScalarNode():
                return _scalar(kind, node)
        raise _refusal(node, f"the value cannot be read as {_KINDS[node.tag]}")

    def _section(self, node: MappingNode, depth: int) -> dict[str, Any]:
        section: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.make(key_node, depth + 1)
            if not isinstance(key, str):
                raise _refusal(key_node, "a key is not text: put it between quotes")
            if key in section:
                is_plain = re.fullmatch(r"\w{1,40}", key) and not carries_credentials(key)
                raise _refusal(
                    key_node, f"{f'the key {key}' if is_plain else 'a key'} appears twice"
                )
            section[key] = self.make(value_node, depth + 1)
        return section


def _scalar(kind: str, node: ScalarNode) -> Any:
    text: str = node.value
    if kind == "null":
        return None
    if kind == "str":
        if _UNREADABLE.search(text):
            raise _refusal(node, "the text holds a character that is not Unicode, or NUL")
        return text
    if kind == "int" and not _DECIMAL.fullmatch(text):
        raise _refusal(
            node, "a number is not written as plain digits, such as 10 (YAML 1.1 reads 010 as 8)"
        )
    try:
        if kind == "bool":
            return SafeConstructor.bool_values[text.lower()]
        if kind in ("int", "float") and len(text) <= _LONGEST_NUMBER:
            # Infinity and NaN begin with a point.
            number = (
                int(text)
                if kind == "int"
                else number_of(float, re.sub(r"\.(?=inf|nan)", "", text.lower()))
            )
            if kind == "float" or abs(number) <= _MOST:
                return number
    except (KeyError, ValueError):
        pass
    raise _refusal(node, f"the value cannot be read as {kind}")


def parse_yaml(text: str, where: str) -> Any:
    """The value of a YAML text of one document.

    Raises:
        ConfigError: it is not YAML, or holds more than plain values; the message does not quote it.
    """
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return None if node is None else _Values().make(node)
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"line {line}: the character U+{ord(text[error.position]):04X} is not allowed"
    except (ValueError, OverflowError):
        # The scanner makes a character of any \U........
        problem = (
            f"line {loader.line + 1 if loader else 1}: an escape is not a character of Unicode"
        )
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}: " if mark else ""
        problem = place + _QUOTED.sub(
            "...", ": ".join(filter(None, (error.context, error.problem)))
        )
    raise ConfigError(f"{where} is not valid YAML: {problem}")


_STDIN = "-"
_MOST_BYTES = 1 << 16
_MOST_FINDINGS = 10
_LONGEST_NAME = 80

_Root = TypeVar("_Root", bound=Section)


# Finds a section that stands elsewhere than under its name; None if it does not.
FindSection = Callable[[dict[str, Any], str], dict[str, Any] | None]


def read_document(
    source: str | Mapping[str, Any],
    model: type[Section],
    overrides: Sequence[str] = (),
    find: FindSection = lambda *_: None,
) -> dict[str, Any]:
    """Reads a YAML mapping, from a file or as its content, applies overrides, `section.key=value`,
    to it, and writes out the short forms of the sections of `model`.

    `find` finds sections that overrides can name, beside the keys of the mapping.

    Raises:
        PreflightError: the file cannot be read.
        ConfigError: the file is not a YAML mapping, an override is malformed, or a text can carry a
            credential.
    """
    if isinstance(source, str):
        refuse_credentials(source, "CONFIG")
        given = _load_yaml(source)
    else:
        given = _copied(source)
    document: dict[str, Any] = model.written_out(given)
    for override in overrides:
        _apply_override(document, override, find)
        document = model.written_out(document)
    _check_order(document)
    refuse_credentials(document, source if isinstance(source, str) else "CONFIG")
    return document


def _copied(source: Mapping[str, Any]) -> dict[str, Any]:
    try:
        refuse_credentials(dict(source), "CONFIG")
        return copy.deepcopy(dict(source))
    except RecursionError:
        raise ConfigError("CONFIG is nested too deeply, or holds itself") from None


def _check_order(values: Mapping[Any, Any], prefix: str = "") -> None:
    for key, value in values.items():
        check_ordered(f"{prefix}{key}", value)
        if isinstance(value, Mapping):
            _check_order(value, f"{prefix}{key}.")


def anchor_paths(document: dict[str, Any], model: type[Section], folder: str) -> None:
    """Makes relative paths relative to the configuration file's folder, not to the current one."""
    for name, field in model.fields_of(document).items():
        value, section, kind = document.get(name), section_of(field), relative(field)
        if isinstance(value, dict) and section is not None:
            anchor_paths(value, section, folder)
        elif kind is not None and isinstance(value, str):
            document[name] = _anchored(value, folder, kind)
        elif kind is not None and isinstance(value, list):
            document[name] = [
                _anchored(item, folder, kind) if isinstance(item, str) else item for item in value
            ]


def _anchored(path: str, folder: str, kind: Relative) -> str:
    if kind is Relative.CHECKPOINT:  # A folder; a Hugging Face id or an embedded one is unchanged.
        below = storage.join_relative(folder, path)
        return below if path.startswith((".", "~")) or os.path.isdir(below) else path
    if not path or is_named(path) or (kind is Relative.PATH_OR_SELF and path == SELF):
        return path
    return (
        absolute_glob(path, folder)
        if kind is Relative.GLOB
        else storage.join_relative(folder, path)
    )


def check_document(document: dict[str, Any], model: type[_Root], path: str) -> _Root:
    """The configuration of a document, which errors call `path`; raises ConfigError where a key or
    a value is wrong.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, model)}") from error


def folder_of(source: str | Mapping[str, Any]) -> str:
    """The folder that relative paths of a configuration are relative to: its file's, or the current
    one.
    """
    # Always asked for: in a folder that is gone, neither Java nor torch's library starts.
    here = storage.absolute(".")
    return storage.parent(source) if isinstance(source, str) and not _is_stream(source) else here


def _is_stream(path: str) -> bool:
    """Whether a configuration is standard input, a pipe or an open file: read once, as it is."""
    return path == _STDIN or is_stream(path)


def _read(path: str) -> bytes:
    if not _is_stream(path):
        return read_at_most(path, _MOST_BYTES)
    with open(0 if path == _STDIN else path, "rb", closefd=path != _STDIN) as stream:
        return at_most(stream, _MOST_BYTES)


def _load_yaml(path: str) -> dict[str, Any]:
    try:
        content = _read(path)
    except OSError as error:
        raise PreflightError(f"cannot read the configuration {path}: {error}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not a configuration: {error}. Give the YAML file") from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path} is not UTF-8 text: line {line}: {error.reason}. Save it as UTF-8"
        ) from error
    document = parse_yaml(text, path)
    if not isinstance(document, dict):
        kind = "nothing" if document is None else type(document).__name__
        raise ConfigError(
            f"{path} must hold keys such as `corpus:` and `topics:`, but it holds {kind}"
        )
    return document


def _apply_override(document: dict[str, Any], override: str, find: FindSection) -> None:
    dotted, separator, text = override.partition("=")
    refuse_credentials({dotted: text}, "--set")
    refuse_credentials(override, "--set")
    *sections, key = dotted.split(".")
    if not separator or not all((*sections, key)) or len(sections) >= MAX_DEPTH:
        raise ConfigError(f"--set {_cut(dotted)} must look like mono.k=100")
    settings = find(document, sections[0]) if sections else None
    target = document if settings is None else settings
    for section in sections if settings is None else sections[1:]:
        target = target.setdefault(section, {})
        if not isinstance(target, dict):
            raise ConfigError(f"--set {_cut(dotted)}: {_cut(section)} holds a value, not a section")
    target[key] = parse_yaml(text, f"--set {_cut(dotted)}: the value")


def _cut(name: str) -> str:
    """A name, shortened for a message."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


class Problems(ValueError):
    """Problems that name their places."""

    def __str__(self) -> str:
        return "; ".join(self.args)


def problems_of(error: ValidationError, model: type[Section], *place: str) -> list[str]:
    """Problems that pydantic saw in a section at a place of the configuration: the key and our
    words.
    """
    problems: list[str] = []
    for finding in error.errors():
        cause = finding.get("ctx", {}).get("error")
        if isinstance(cause, Problems):
            problems += cause.args
            continue
        where = ".".join(_cut(str(part)) for part in (*place, *finding["loc"])) or "configuration"
        hint = _suggest(finding["loc"], model) if finding["type"] == "extra_forbidden" else ""
        problems.append(f"{where}: {problem_of(finding)}{hint}")
    return problems


def explain(error: ValidationError, model: type[Section]) -> str:
    """`problems_of` a whole configuration, one a line."""
    problems = problems_of(error, model)
    if len(problems) > _MOST_FINDINGS:
        problems[_MOST_FINDINGS:] = [f"and {len(problems) - _MOST_FINDINGS:,} more"]
    return "\n  ".join(["invalid configuration", *problems])


def _suggest(location: tuple[int | str, ...], model: type[Section]) -> str:
    """A similar key, or all keys of the section."""
    for name in location[:-1]:
        model = section_of(model.model_fields.get(str(name))) or model
    known = list(model.fields_of({}))
    close = difflib.get_close_matches(_cut(str(location[-1])), known, n=1)
    return f": did you mean {close[0]}?" if close else f" (known: {', '.join(known)})"
