"""YAML as configurations use it: text, numbers, lists and mappings of a bounded size.

Errors name the line and never quote it: it may hold a secret.
"""

import re
from typing import Any

import yaml
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from beamrank.errors import ConfigError
from beamrank.storage.urls import carries_credentials

MAX_DEPTH = 20
_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"
# Aliases written out: a few lines of YAML can expand to millions of values. A file without aliases holds fewer.
_MOST_VALUES = 50_000
_KINDS = {f"tag:yaml.org,2002:{name}": name for name in ("null", "bool", "int", "float", "str", "seq", "map")}
_LONGEST_NUMBER = 100
_MOST = 2**63
# Other forms of YAML 1.1 mean something else than they seem to: 010 is 8, 1:30 is 90, and 0o10 is text.
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_UNREADABLE = re.compile("[\0\ud800-\udfff]")
_QUOTED = re.compile(r"(['\"])[^'\"<\s]{2,}\1")


class _Loader(yaml.SafeLoader):
    """Finds plain values: a date stays text, and there are no merges."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _KINDS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _refusal(node: Node, problem: str) -> ConstructorError:
    return ConstructorError(None, None, problem, node.start_mark)


class _Values:
    """Makes the values of nodes. Each alias gets its own: an override of one place must not change the other."""

    def __init__(self) -> None:
        self._count = 0

    def make(self, node: Node, depth: int = 1) -> Any:
        """The value of a node."""
        self._count += 1
        if depth > MAX_DEPTH:
            raise _refusal(node, _TOO_DEEP)
        if self._count > _MOST_VALUES:
            raise _refusal(node, f"it holds more than {_MOST_VALUES:,} values, aliases (*name) written out")
        match _KINDS.get(node.tag), node:
            case None, _:
                raise _refusal(node, "the tag is not known")
            case "seq", SequenceNode():
                return [self.make(each, depth + 1) for each in node.value]
            case "map", MappingNode():
                return self._section(node, depth)
            case str(kind), ScalarNode():
                return _scalar(kind, node)
        raise _refusal(node, f"the value cannot be read as {_KINDS[node.tag]}")

    def _section(self, node: MappingNode, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.make(key_node, depth + 1)
            if not isinstance(key, str):
                raise _refusal(key_node, "a key is not text: put it between quotes")
            if key in found:
                is_plain = re.fullmatch(r"\w{1,40}", key) and not carries_credentials(key)
                raise _refusal(key_node, f"{f'the key {key}' if is_plain else 'a key'} appears twice")
            found[key] = self.make(value_node, depth + 1)
        return found


def _scalar(kind: str, node: ScalarNode) -> Any:
    text: str = node.value
    if kind == "null":
        return None
    if kind == "str":
        if _UNREADABLE.search(text):
            raise _refusal(node, "the text holds a character that is not Unicode, or NUL")
        return text
    if kind == "int" and not _DECIMAL.fullmatch(text):
        raise _refusal(node, "a number is not written as plain digits, such as 10 (YAML 1.1 reads 010 as 8)")
    try:
        if kind == "bool":
            return SafeConstructor.bool_values[text.lower()]
        if kind in ("int", "float") and len(text) <= _LONGEST_NUMBER:
            # Infinity and NaN begin with a point.
            number = int(text) if kind == "int" else float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
            if kind == "float" or abs(number) <= _MOST:
                return number
    except (KeyError, ValueError):
        pass
    raise _refusal(node, f"the value cannot be read as {kind}")


def parse_yaml(text: str, where: str) -> Any:
    """The value that a YAML text holds.

    Args:
        text: one document.
        where: names the text in errors.

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
    except RecursionError:
        problem = f"line {loader.line + 1 if loader else 1}: {_TOO_DEEP}"
    except (ValueError, OverflowError):
        # The scanner makes a character of any \U........
        problem = f"line {loader.line + 1 if loader else 1}: an escape is not a character of Unicode"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}: " if mark else ""
        problem = place + _QUOTED.sub("...", ": ".join(filter(None, (error.context, error.problem))))
    raise ConfigError(f"{where} is not valid YAML: {problem}")
