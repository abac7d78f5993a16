"""Configurations as YAML files: read, overridden and checked; errors name the key."""

import copy
import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from beamrank.config.yaml_document import MAX_DEPTH, parse_yaml
from beamrank.errors import ConfigError, PreflightError
from beamrank.section import NAMED, SELF, Relative, Section, check_ordered, relative, section_of
from beamrank.storage import files as storage
from beamrank.storage.documents import read_at_most
from beamrank.storage.globs import absolute_glob
from beamrank.storage.urls import refuse_credentials

_MOST_BYTES = 1 << 16
_MOST_FINDINGS = 10
_LONGEST_NAME = 80

_Root = TypeVar("_Root", bound=Section)


# Finds a section that stands elsewhere than under its name; None if it does not.
FindSection = Callable[[dict[str, Any], str], dict[str, Any] | None]


def read_document(
    source: str | Mapping[str, Any], overrides: Sequence[str] = (), find: FindSection = lambda *_: None
) -> dict[str, Any]:
    """Reads a YAML mapping and applies overrides to it.

    Args:
        source: the file, or its content.
        overrides: `section.key=value` strings; the value is YAML.
        find: sections that overrides can name, beside the keys of the mapping.

    Raises:
        PreflightError: the file cannot be read.
        ConfigError: the file is not a YAML mapping, an override is malformed, or a text can carry a credential.
    """
    if isinstance(source, str):
        refuse_credentials(source, "CONFIG")
        document = _load_yaml(source)
    else:
        document = _copied(source)
    for override in overrides:
        _apply_override(document, override, find)
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
    for name, field in model.model_fields.items():
        value, section, kind = document.get(name), section_of(field), relative(field)
        if isinstance(value, dict) and section is not None:
            anchor_paths(value, section, folder)
        elif isinstance(value, str) and kind is Relative.CHECKPOINT:
            document[name] = _anchored_checkpoint(value, folder)
        elif kind is not None and isinstance(value, str):
            document[name] = _anchored(value, folder, kind)
        elif kind is not None and isinstance(value, list):
            document[name] = [_anchored(each, folder, kind) if isinstance(each, str) else each for each in value]


def _anchored(path: str, folder: str, kind: Relative) -> str:
    if not path or path.startswith(NAMED) or (kind is Relative.PATH_OR_SELF and path == SELF):
        return path
    return absolute_glob(path, folder) if kind is Relative.GLOB else storage.join_relative(folder, path)


def _anchored_checkpoint(reference: str, folder: str) -> str:
    """A checkpoint's folder below that of the configuration; a Hugging Face id or an embedded one is unchanged."""
    path = storage.join_relative(folder, reference)
    return path if reference.startswith((".", "~")) or os.path.isdir(path) else reference


def check_document(document: dict[str, Any], model: type[_Root], path: str) -> _Root:
    """The configuration that a document holds.

    Args:
        document: its values.
        model: the type of the configuration.
        path: names the file in errors.

    Raises:
        ConfigError: a key or a value is wrong.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, model)}") from error


def _load_yaml(path: str) -> dict[str, Any]:
    try:
        content = read_at_most(path, _MOST_BYTES)
    except OSError as error:
        raise PreflightError(f"cannot read the configuration {path}: {error}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not a configuration: {error}. Give the YAML file") from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path} is not UTF-8 text: line {line}: {error.reason}. Save it as UTF-8") from error
    document = parse_yaml(text, path)
    if not isinstance(document, dict):
        found = "nothing" if document is None else type(document).__name__
        raise ConfigError(f"{path} must hold keys such as `corpus:` and `topics:`, but it holds {found}")
    return document


def _apply_override(document: dict[str, Any], override: str, find: FindSection) -> None:
    dotted, separator, text = override.partition("=")
    refuse_credentials({dotted: text}, "--set")
    refuse_credentials(override, "--set")
    *sections, key = dotted.split(".")
    if not separator or not all((*sections, key)) or len(sections) >= MAX_DEPTH:
        raise ConfigError(f"--set {_cut(dotted)} must look like mono.k=100")
    found = find(document, sections[0]) if sections else None
    target = document if found is None else found
    for section in sections if found is None else sections[1:]:
        target = target.setdefault(section, {})
        if not isinstance(target, dict):
            raise ConfigError(f"--set {_cut(dotted)}: {_cut(section)} holds a value, not a section")
    target[key] = parse_yaml(text, f"--set {_cut(dotted)}: the value")


def _cut(name: str) -> str:
    """A name, shortened for a message."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def explain(error: ValidationError, model: type[Section]) -> str:
    """Pydantic's findings in one line each, without its links."""
    lines = []
    findings = error.errors()
    for finding in findings[:_MOST_FINDINGS]:
        where = ".".join(_cut(str(part)) for part in finding["loc"]) or "configuration"
        message = finding["msg"].removeprefix("Value error, ")
        if finding["type"] == "extra_forbidden":
            message = f"unknown key{_suggest(finding['loc'], model)}"
        elif finding["type"] == "string_unicode":
            message = "it is not UTF-8, as the files must be that hold the configuration: give another name"
        lines.append(f"{where}: {message}")
    if len(findings) > _MOST_FINDINGS:
        lines.append(f"and {len(findings) - _MOST_FINDINGS:,} more")
    return "\n  ".join(["invalid configuration", *lines])


def _suggest(location: tuple[int | str, ...], model: type[Section]) -> str:
    """A similar key, or all keys of the section."""
    for name in location[:-1]:
        model = section_of(model.model_fields.get(str(name))) or model
    known = list(model.model_fields)
    close = difflib.get_close_matches(_cut(str(location[-1])), known, n=1)
    return f": did you mean {close[0]}?" if close else f" (known: {', '.join(known)})"
