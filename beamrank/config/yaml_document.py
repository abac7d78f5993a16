"""YAML as configurations use it: text, numbers, lists and mappings of a bounded size.

Errors name the line and never quote it: it may hold a secret.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from beamrank.errors import ConfigError
from beamrank.storage.urls import carries_credentials

MAX_DEPTH = 20
# Aliases written out: a few lines of YAML can expand to millions of values. A file without aliases holds fewer.
_MOST_VALUES = 50_000
_TAGS = {name: f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map")}
_LONGEST_NUMBER = 100
_MOST = 2**63
# Other forms of YAML 1.1 mean something else than they seem to: 010 is 8, 1:30 is 90, and 0o10 is text.
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_UNREADABLE = re.compile("[\0\ud800-\udfff]")
_QUOTED = re.compile(r"(['\"])[^'\"<\s]{2,}\1")


def _refusal(node: Node, problem: str) -> ConstructorError:
    return ConstructorError(None, None, problem, node.start_mark)


class _Loader(yaml.SafeLoader):
    """A safe loader of plain values: a date stays text, and there are no merges, sets or binary texts."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _TAGS.values()]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._values = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        # PyYAML's stubs give events the marks of its C parser, which is not used here.
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        with self._level(event.start_mark):
            return super().compose_node(parent, index)

    @contextmanager
    def _level(self, mark: Any) -> Iterator[None]:
        """A level of nesting, of the text or of the values of its aliases."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ConstructorError(None, None, f"it is nested more than {MAX_DEPTH} levels deep", mark)
        yield
        self._depth -= 1

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        # Each alias gets its own value: an override of one place must not change another.
        self.constructed_objects.pop(node, None)
        self._values += 1
        if self._values > _MOST_VALUES:
            raise _refusal(node, f"it holds more than {_MOST_VALUES:,} values, aliases (*name) written out")
        try:
            with self._level(node.start_mark):
                return super().construct_object(node, deep)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            kind = node.tag.rpartition(":")[2]
            problem = f"the value cannot be read as {kind}" if node.tag in _TAGS.values() else "the tag is not known"
            raise _refusal(node, problem) from error

    def construct_list(self, node: SequenceNode) -> list[Any]:
        return list(self.construct_sequence(node, deep=True))

    def construct_section(self, node: Node) -> dict[str, Any]:
        if not isinstance(node, MappingNode):
            raise TypeError
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node)
            if not isinstance(key, str):
                raise _refusal(key_node, "a key is not text: put it between quotes")
            if key in found:
                plain = re.fullmatch(r"\w{1,40}", key) and not carries_credentials(key)
                named = f"the key {key}" if plain else "a key"
                raise _refusal(key_node, f"{named} appears twice")
            found[key] = self.construct_object(value_node)
        return found

    def construct_text(self, node: ScalarNode) -> str:
        text = str(self.construct_scalar(node))
        if _UNREADABLE.search(text):
            raise _refusal(node, "the text holds a character that is not Unicode, or NUL")
        return text

    def construct_number(self, node: ScalarNode) -> float:
        if len(node.value) > _LONGEST_NUMBER:
            raise ValueError
        make = self.construct_yaml_int if node.tag == _TAGS["int"] else self.construct_yaml_float
        number: float = make(node)
        if isinstance(number, int) and abs(number) > _MOST:
            raise ValueError
        if node.tag == _TAGS["int"] and not _DECIMAL.fullmatch(node.value):
            raise _refusal(node, "a number is not written as plain digits, such as 10 (YAML 1.1 reads 010 as 8)")
        return number

    def construct_nothing_else(self, node: Node) -> Any:
        raise KeyError(node.tag)


_CONSTRUCTORS: dict[str | None, Any] = {
    **{tag: SafeConstructor.yaml_constructors[tag] for tag in _TAGS.values()},
    _TAGS["seq"]: _Loader.construct_list,
    _TAGS["map"]: _Loader.construct_section,
    _TAGS["str"]: _Loader.construct_text,
    _TAGS["int"]: _Loader.construct_number,
    _TAGS["float"]: _Loader.construct_number,
    None: _Loader.construct_nothing_else,
}
_Loader.yaml_constructors = _CONSTRUCTORS


def parse_yaml(text: str, where: str) -> Any:
    """The value that a YAML text holds.

    Args:
        text: one document.
        where: names the text in errors.

    Raises:
        ConfigError: it is not YAML, or holds more than plain values; the message does not quote it.
    """
    try:
        loader = _Loader(text)
        return loader.get_single_data()
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"the character U+{ord(text[error.position]):04X} is not allowed"
        raise ConfigError(f"{where} is not valid YAML: line {line}: {problem}") from None
    except (ValueError, OverflowError):
        # The scanner makes a character of any \U........
        problem = "an escape is not a character of Unicode"
        raise ConfigError(f"{where} is not valid YAML: line {loader.line + 1}: {problem}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}: " if mark else ""
        problem = ": ".join(filter(None, (error.context, error.problem)))
        raise ConfigError(f"{where} is not valid YAML: {place}{_QUOTED.sub('...', problem)}") from None
