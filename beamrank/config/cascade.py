"""The list of stages after the first: `cascade:`, or `mono:` and `duo:` as its short form."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import PlainSerializer, PlainValidator, ValidationError

from beamrank.commit.listing import BESIDE_RUNS, FOLDERS, VALUES
from beamrank.config.stages import (
    Bm25Config,
    CandidatesConfig,
    DuoConfig,
    FirstStageConfig,
    MonoConfig,
    StageConfig,
)
from beamrank.config.yaml import problems_of
from beamrank.errors import PreflightError
from beamrank.plugins import Registry

FIRST_STAGES: dict[str, type[FirstStageConfig]] = {
    "bm25": Bm25Config,
    "candidates": CandidatesConfig,
}
SHORT_FORM: dict[str, type[StageConfig]] = {"mono": MonoConfig, "duo": DuoConfig}
"""The stages that may stand beside the list, in their order."""
PLUGINS: Registry[Any] = Registry("stage", "beamrank.stages", {})
"""The stages of packages, by their kinds: classes with a `section`, such as those of
`models/stages`.
"""
RESERVED = {"retrieve", "tokenize", "texts", "scores", *FOLDERS, VALUES} | {
    name.partition(".")[0] for name in BESIDE_RUNS
}
"""Names that no stage may have: of our stages, of our other folders, and of what is beside runs."""
_MOST_NAME_BYTES = 100
_OURS: dict[str, type[StageConfig]] = {**FIRST_STAGES, **SHORT_FORM}


def section_of_stage(kind: str) -> type[StageConfig]:
    """The section of a kind of stage; raises ValueError where there is none, or its package cannot
    be imported.
    """
    if kind in _OURS:
        return _OURS[kind]
    try:
        section: type[StageConfig] = PLUGINS[kind].section
    except KeyError:
        raise ValueError(
            f"there is no stage {kind!r}: the stages are {', '.join([*_OURS, *PLUGINS])}"
        ) from None
    except PreflightError as error:
        raise ValueError(str(error)) from error
    return section


class ConfiguredStage(NamedTuple):
    """A stage as the user wrote it; its name is its folder, its run and its `--stage`."""

    name: str
    kind: str
    section: Any


def parse_stage(entry: Any) -> ConfiguredStage:
    """The stage of an entry of the list: `- mono: {checkpoint: ..., k: 100, name: large}`.

    Raises:
        ValueError: it is not one stage, or has wrong settings.
    """
    if isinstance(entry, ConfiguredStage):
        return entry
    kind, settings = one_stage(entry)
    section, name = section_of_stage(kind), settings.pop("name", kind)
    if issubclass(section, FirstStageConfig) and name != kind:
        raise ValueError(f"{kind} is a first stage, whose name cannot be chosen: leave `name` out")
    if not isinstance(name, str) or not name.replace("-", "").replace("_", "").isalnum():
        raise ValueError(
            f"{kind}.name is {name!r}, and must be letters, digits, - and _: it names a folder"
        )
    if len(name.encode()) > _MOST_NAME_BYTES:
        raise ValueError(
            f"{kind}.name has {len(name.encode()):,} bytes, and names files with longer names: "
            f"give at most {_MOST_NAME_BYTES}"
        )
    try:
        return ConfiguredStage(name, kind, section.model_validate(settings))
    except ValidationError as error:
        raise ValueError("; ".join(problems_of(error, section, kind))) from error


def _dump(stage: ConfiguredStage) -> dict[str, Any]:
    return {stage.kind: {"name": stage.name, **stage.section.model_dump(mode="json")}}


# A stage of the list.
CascadeEntry: TypeAlias = Annotated[
    ConfiguredStage, PlainValidator(parse_stage), PlainSerializer(_dump)
]


def one_stage(entry: Any) -> tuple[str, dict[str, Any]]:
    """The kind and a copy of the settings of an entry of the list; raises ValueError for one that
    is not one stage.
    """
    if isinstance(entry, str):
        return entry, {}
    if isinstance(entry, Mapping) and len(entry) == 1:
        ((kind, settings),) = entry.items()
        if isinstance(kind, str):
            settings = section_of_stage(kind).written_out(settings)
            if isinstance(settings, Mapping | None):
                return kind, dict(settings or {})
    raise ValueError(
        "each stage is one key, its kind, with its settings below: `- mono: {checkpoint: ..., k: "
        "100}`"
    )


def _normalized(entries: Any) -> Any:
    """A list of stages with each entry as `{kind: {...}}`, in dicts of its own; what is none stays,
    to be refused.
    """
    if not isinstance(entries, list | tuple):
        return entries
    found = list(entries)
    for place, entry in enumerate(entries):
        with suppress(ValueError):
            kind, settings = one_stage(entry)
            found[place] = {kind: settings}
    return found


def _listed(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """The name, kind and settings of each stage of the list in a document that is not checked
    yet.
    """
    entries = document.get("cascade")
    for entry in entries if isinstance(entries, list | tuple) else ():
        if isinstance(entry, ConfiguredStage):
            yield entry
        elif isinstance(entry, dict) and len(entry) == 1:
            ((kind, settings),) = entry.items()
            if isinstance(settings, dict):
                yield str(settings.get("name", kind)), str(kind), settings


def _write_out_stages(document: dict[str, Any]) -> None:
    """Writes the short forms of the list, and of the sections of packages, out."""
    if "cascade" in document:
        document["cascade"] = _normalized(document["cascade"])
    for kind in document.keys() & {*PLUGINS}:
        with suppress(ValueError):  # It is refused when the document is checked.
            document[kind] = section_of_stage(kind).written_out(document[kind])


def find_section(document: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The settings of a stage of the list, for `--set NAME.k=20`; None if the list has no such
    stage.
    """
    _write_out_stages(document)
    return next((settings for found, _, settings in _listed(document) if found == name), None)


def remove_null_stages(document: dict[str, Any]) -> None:
    """Takes the stages out of the list that `--set NAME=null` names."""
    _write_out_stages(document)
    removed = {
        name: kind
        for name, kind, _ in _listed(document)
        if name in document and document[name] is None
    }
    for name, kind in removed.items():
        del document[name]
        entry = {kind: find_section(document, name)}
        document["cascade"].remove(entry)


def stage_paths(document: Mapping[str, Any]) -> Iterator[tuple[type[StageConfig], dict[str, Any]]]:
    """The section and the settings of each stage whose paths are relative to the configuration
    file.
    """
    plugins = [(name, document[name]) for name in PLUGINS if isinstance(document.get(name), dict)]
    for kind, settings in (
        *plugins,
        *((kind, settings) for _, kind, settings in _listed(document)),
    ):
        with suppress(ValueError):  # It is refused when the document is checked.
            yield section_of_stage(kind), settings


def checked_names(
    stages: Sequence[ConfiguredStage], taken: Collection[str], first: str = ""
) -> None:
    """Checks the names of the stages after the `first`; those `taken` are only for stages of that
    kind.

    Raises:
        ValueError: two have one name, or one has a name of ours.
    """
    seen = {first}
    for name, kind, _ in stages:
        if name in RESERVED or name.startswith("tokenize-") or (name in taken and name != kind):
            raise ValueError(
                f"a stage cannot have the name {name!r}, which beamrank uses: choose a different "
                "`name`"
            )
        if name in seen:
            raise ValueError(
                f"two stages have the name {name!r}: give one of them a `name` of its own"
            )
        seen.add(name)


def completed(values: dict[str, Any]) -> dict[str, Any]:
    """A document in which every stage has its place and its depth.

    A first stage of ours is the section of its name, that of a plugin is the first of the list, and
    an index without either is searched with BM25. Each default `k` is at most that of the stage
    before.
    """
    _write_out_stages(values)
    listed = values.get("cascade")
    if plugins := [name for name in _plugins_first() if values.get(name) is not None]:
        # With both forms the configuration is refused, as it is without a plugin.
        short = SHORT_FORM if listed is None else ()
        later = listed or [
            {name: values.pop(name)} for name in short if values.get(name) is not None
        ]
        listed = [*({name: values.pop(name)} for name in plugins), *later]
    if isinstance(listed, list) and listed and isinstance(listed[0], dict):
        kind = next(iter(listed[0]), None)
        if kind in FIRST_STAGES and values.get(kind) is None:
            values[kind] = {key: each for key, each in listed.pop(0)[kind].items() if key != "name"}
    if listed is not None:
        values["cascade"] = listed
    if values.get("index") is not None and not any(
        issubclass(each, FirstStageConfig) for each, _ in _sections(values)
    ):
        values["bm25"] = {}
    depth: Any = None
    for section, settings in _sections(values):
        if isinstance(settings, dict):
            default = int(section.model_fields["k"].default)
            settings.setdefault("k", default if depth is None else min(default, depth))
        found = settings.get("k") if isinstance(settings, dict) else settings.k
        depth = found if isinstance(found, int) else depth
    return values


def _sections(values: Mapping[str, Any]) -> Iterator[tuple[type[StageConfig], Any]]:
    """The section of each stage of a document, in order, with its settings: a dict, or the section
    itself.
    """
    ours = [(name, values.get(name)) for name in FIRST_STAGES]
    short = [(name, values.get(name)) for name in SHORT_FORM]
    for kind, settings in (
        *ours,
        *((kind, settings) for _, kind, settings in _listed(values)),
        *short,
    ):
        if isinstance(settings, dict | StageConfig):
            with suppress(ValueError):  # The stage is refused with the rest of the list.
                yield section_of_stage(kind), settings


def _plugins_first() -> list[str]:
    """The kinds of first stages of packages that can be imported."""
    return [
        kind
        for kind, stage in PLUGINS.importable().items()
        if issubclass(stage.section, FirstStageConfig)
    ]


def first_stage_choices() -> str:
    """The ways to give a first stage, for messages."""
    sections: dict[str, Any] = {
        **FIRST_STAGES,
        **{each: section_of_stage(each) for each in _plugins_first()},
    }
    return " or ".join(
        f"`index` and `{name}`" if each.uses_index else f"`{name}`"
        for name, each in sections.items()
    )
