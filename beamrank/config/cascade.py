"""The list of stages after the first: `cascade:`, or `mono:` and `duo:` as its short form."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError, model_serializer, model_validator

from beamrank.config.stages import (
    FIRST_K,
    Bm25Config,
    CandidatesConfig,
    DuoConfig,
    FirstStageConfig,
    MonoConfig,
    StageConfig,
)
from beamrank.errors import PreflightError
from beamrank.plugins import Registry

FIRST_STAGES: dict[str, type[FirstStageConfig]] = {"bm25": Bm25Config, "candidates": CandidatesConfig}
SHORT_FORM: dict[str, type[StageConfig]] = {"mono": MonoConfig, "duo": DuoConfig}
"""The stages that may stand beside the list, in their order."""
PLUGINS: Registry[Any] = Registry("stage", "beamrank.stages", {})
"""The stages of packages, by their kinds: classes with a `section`, such as those of `models/stages`."""
RESERVED = ("retrieve", "tokenize", "runs", "receipts", "machines")
_MOST_K = 2**31 - 1
_OURS: dict[str, type[StageConfig]] = {**FIRST_STAGES, **SHORT_FORM}


def plugin_kinds(first: bool = False) -> list[str]:
    """The kinds of stages of packages that can be imported; `first`: only those of first stages."""
    found = PLUGINS.importable()
    return [kind for kind, stage in found.items() if not first or issubclass(stage.section, FirstStageConfig)]


def section_of_stage(kind: str) -> type[StageConfig]:
    """The section of a kind of stage.

    Raises:
        ValueError: there is none, or its package cannot be imported.
    """
    if kind in _OURS:
        return _OURS[kind]
    try:
        section: type[StageConfig] = PLUGINS[kind].section
    except KeyError:
        raise ValueError(f"there is no stage {kind!r}: the stages are {', '.join([*_OURS, *PLUGINS])}") from None
    except PreflightError as error:
        raise ValueError(str(error)) from error
    return section


class ConfiguredStage(NamedTuple):
    """A stage as the user wrote it; its name is its folder, its run and its `--stage`."""

    name: str
    kind: str
    section: Any


class CascadeEntry(BaseModel):
    """A stage in the list: `- mono: {checkpoint: ..., k: 100, name: large}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    kind: str
    section: Any

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: Any) -> Any:
        if isinstance(value, cls):
            return value
        kind, settings = one_stage(value)
        if "name" in settings and issubclass(section_of_stage(kind), FirstStageConfig) and settings["name"] != kind:
            raise ValueError(f"{kind} is a first stage, whose name cannot be chosen: leave `name` out")
        values = {key: each for key, each in settings.items() if key != "name"}
        name = settings.get("name", kind)
        if not isinstance(name, str) or not name or not name.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"{kind}.name is {name!r}, and must be letters, digits, - and _: it names a folder")
        try:
            section = section_of_stage(kind).model_validate(values)
        except ValidationError as error:
            raise ValueError("; ".join(_lines(kind, error))) from error
        return {"name": name, "kind": kind, "section": section}

    @model_serializer
    def _dump(self) -> dict[str, Any]:
        return {self.kind: {"name": self.name, **self.section.model_dump(mode="json")}}

    @property
    def configured(self) -> ConfiguredStage:
        """The stage."""
        return ConfiguredStage(self.name, self.kind, self.section)


def one_stage(entry: Any) -> tuple[str, Mapping[str, Any]]:
    """The kind and the settings of an entry of the list.

    Raises:
        ValueError: the entry is not one stage.
    """
    if isinstance(entry, str):
        return entry, {}
    if isinstance(entry, dict) and len(entry) == 1:
        ((kind, settings),) = entry.items()
        if isinstance(kind, str) and isinstance(settings, dict | None):
            return kind, settings or {}
    raise ValueError("each stage is one key, its kind, with its settings below: `- mono: {checkpoint: ..., k: 100}`")


def normalized(entries: Any) -> Any:
    """A list of stages with each entry as `{kind: {...}}`, in dicts of its own; what is none stays, to be refused."""
    if not isinstance(entries, list | tuple):
        return entries
    found: list[Any] = []
    for entry in entries:
        try:
            kind, settings = one_stage(entry)
            found.append({kind: dict(settings)})
        except ValueError:
            found.append(entry)
    return found


def begins_with_first_stage(entries: Any) -> bool:
    """Whether a list of stages, checked or `normalized`, has its own first stage."""
    first = entries[0] if isinstance(entries, list | tuple) and entries else None
    if isinstance(first, CascadeEntry):
        return isinstance(first.section, FirstStageConfig)
    try:
        return issubclass(section_of_stage(one_stage(first)[0]), FirstStageConfig)
    except ValueError:
        return False


def stage_settings(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The name, kind and settings of each stage of the list in a document that is not checked yet."""
    entries = document.get("cascade")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and len(entry) == 1:
            ((kind, settings),) = entry.items()
            if isinstance(settings, dict):
                yield str(settings.get("name", kind)), str(kind), settings


def find_section(document: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The settings of a stage of the list, for `--set NAME.k=20`; None if the list has no such stage."""
    if "cascade" in document:
        document["cascade"] = normalized(document["cascade"])
    return next((settings for found, _, settings in stage_settings(document) if found == name), None)


def remove_null_stages(document: dict[str, Any]) -> None:
    """Takes the stages out of the list that `--set NAME=null` names."""
    found = {name: settings for name, _, settings in stage_settings(document) if name in document}
    removed = [settings for name, settings in found.items() if document[name] is None]
    if removed:
        entries = document["cascade"]
        document["cascade"] = [each for each in entries if not any(one_stage(each)[1] is one for one in removed)]
        for name in found:
            document.pop(name)


def stage_paths(document: Mapping[str, Any]) -> Iterator[tuple[type[StageConfig], dict[str, Any]]]:
    """The section and the settings of each stage whose paths are relative to the configuration file."""
    plugins = ((name, document[name]) for name in PLUGINS if isinstance(document.get(name), dict))
    for kind, settings in (*plugins, *((kind, settings) for _, kind, settings in stage_settings(document))):
        try:
            yield section_of_stage(kind), settings
        except ValueError:
            continue  # It is refused when the document is checked.


def _lines(kind: str, error: ValidationError) -> Iterator[str]:
    for finding in error.errors():
        where = ".".join(map(str, (kind, *finding["loc"])))
        is_unknown = finding["type"] == "extra_forbidden"
        yield f"{where}: {'unknown key' if is_unknown else finding['msg'].removeprefix('Value error, ')}"


def checked_names(stages: Sequence[ConfiguredStage], taken: Collection[str], first: str = "") -> None:
    """Checks the names of the stages after the `first`; those `taken` are only for stages of that kind.

    Raises:
        ValueError: two have one name, or one has a name of ours.
    """
    seen = {first}
    for name, kind, _ in stages:
        if name in RESERVED or name.startswith("tokenize-") or (name in taken and name != kind):
            raise ValueError(f"a stage cannot have the name {name!r}, which beamrank uses: choose a different `name`")
        if name in seen:
            raise ValueError(f"two stages have the name {name!r}: give one of them a `name` of its own")
        seen.add(name)


def completed(values: Mapping[str, Any]) -> dict[str, Any]:
    """A document in which every stage has its place and its depth.

    A first stage of ours is the section of its name, that of a plugin is the first of the list, and an index without
    either is searched with BM25. Each default `k` is at most that of the stage before.
    """
    values = {key: dict(each) if isinstance(each, dict) else each for key, each in values.items()}
    if values.get("cascade") is not None:
        values["cascade"] = normalized(values["cascade"])
    values = _with_first_stage_apart(_with_plugins(values))
    first = next((values[name] for name in FIRST_STAGES if values.get(name) is not None), None)
    depth: Any = _MOST_K
    if not begins_with_first_stage(values.get("cascade")):
        if first is None and values.get("index") is not None:
            values["bm25"] = {}
        depth = first.get("k", FIRST_K) if isinstance(first, dict) else getattr(first, "k", FIRST_K)
    depth = depth if isinstance(depth, int) else FIRST_K
    for kind, settings in _depth_sections(values):
        settings.setdefault("k", min(int(kind.model_fields["k"].default), depth))
        depth = settings["k"] if isinstance(settings["k"], int) else depth
    return values


def _depth_sections(values: Mapping[str, Any]) -> Iterator[tuple[type[StageConfig], dict[str, Any]]]:
    """The section and the settings of each stage that has a `k`, in order, but for a first stage of ours."""
    yield from ((kind, values[name]) for name, kind in SHORT_FORM.items() if isinstance(values.get(name), dict))
    for _, kind, settings in stage_settings(values):
        with suppress(ValueError):  # The stage is refused with the rest of the list.
            yield section_of_stage(kind), settings


def _with_plugins(values: dict[str, Any]) -> dict[str, Any]:
    """A document in which a plugin's first stage, a section of its own, is the first of the list."""
    found = [name for name in plugin_kinds(first=True) if values.get(name) is not None]
    if not found:
        return values
    listed = values.get("cascade")
    # With both forms the configuration is refused, as it is without a plugin.
    short = SHORT_FORM if listed is None else ()
    later = [{name: values[name]} for name in short if values.get(name) is not None]
    rest = {key: each for key, each in values.items() if key not in (*found, *short)}
    return {**rest, "cascade": [*({name: values[name]} for name in found), *(listed or later)]}


def _with_first_stage_apart(values: dict[str, Any]) -> dict[str, Any]:
    """A document whose list does not hold a first stage of ours: it becomes the section of that name."""
    listed: Any = values.get("cascade")
    if not begins_with_first_stage(listed) or not isinstance(listed[0], dict):
        return values
    ((kind, settings),) = listed[0].items()
    if kind not in FIRST_STAGES or values.get(kind) is not None:
        return values
    return {**values, kind: {key: each for key, each in settings.items() if key != "name"}, "cascade": listed[1:]}


def first_stage_choices() -> str:
    """The ways to give a first stage, for messages."""
    sections: dict[str, Any] = {**FIRST_STAGES, **{each: section_of_stage(each) for each in plugin_kinds(first=True)}}
    return " or ".join(f"`index` and `{name}`" if each.uses_index else f"`{name}`" for name, each in sections.items())
