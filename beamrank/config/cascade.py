"""The stages of a run as one list. `bm25:`, `candidates:`, `mono:` and `duo:` beside `cascade:` are
its short form, which is written into it before anything is checked.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import AfterValidator, PlainSerializer, SkipValidation, ValidationError
from pydantic.fields import FieldInfo

from beamrank.commit.listing import BESIDE_RUNS, FOLDERS, VALUES
from beamrank.config.stages import (
    Bm25Config,
    CandidatesConfig,
    DuoConfig,
    FirstStageConfig,
    InputConfig,
    MonoConfig,
    StageConfig,
)
from beamrank.config.yaml import Problems, anchor_paths, problems_of
from beamrank.errors import PreflightError
from beamrank.plugins import Registry
from beamrank.section import Section

PLUGINS: Registry[Any] = Registry("stage", "beamrank.stages", {})
"""The stages of packages, by their kinds: classes with a `section`, as in `models/stages`."""
RESERVED = {"retrieve", "tokenize", "texts", "scores", *FOLDERS, VALUES} | {
    name.partition(".")[0] for name in BESIDE_RUNS
}
"""Names that no stage may have: of our stages, of our other folders, and of what is beside runs."""
_MOST_NAME_BYTES = 100
_FIRST: dict[str, type[FirstStageConfig]] = {"bm25": Bm25Config, "candidates": CandidatesConfig}
_LATER: dict[str, type[StageConfig]] = {"mono": MonoConfig, "duo": DuoConfig}
_OURS: dict[str, type[StageConfig]] = {**_FIRST, **_LATER}


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


def one_stage(entry: Any) -> tuple[str, dict[str, Any]]:
    """The kind and a copy of the settings of an entry of the list; raises ValueError for one that
    is not one stage.
    """
    if isinstance(entry, Problems):
        raise entry
    if isinstance(entry, ConfiguredStage):
        return entry.kind, {"name": entry.name, **dict(entry.section)}
    if isinstance(entry, str):
        return entry, {}
    if not isinstance(entry, Mapping) or len(entry) != 1 or not isinstance(next(iter(entry)), str):
        raise ValueError(
            "each stage is one key, its kind, with its settings below: `- mono: {checkpoint: ..., "
            "k: 100}`"
        )
    ((kind, settings),) = entry.items()
    settings = section_of_stage(kind).written_out(settings)
    if not isinstance(settings, Mapping | Section | None):
        raise ValueError(f"{kind}: it must be keys with values")
    return kind, dict(settings or {})


def parse_stage(entry: Any, most: int | None = None) -> ConfiguredStage:
    """The stage of an entry of the list: `- mono: {checkpoint: ..., k: 100, name: large}`. By
    default it receives `most` candidates, at most.

    Raises:
        ValueError: it is not one stage, or has wrong settings.
    """
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
    if most is not None:
        settings.setdefault("k", min(most, section.model_fields["k"].default))
    try:
        return ConfiguredStage(name, kind, section.model_validate(settings))
    except ValidationError as error:
        raise Problems(*problems_of(error, section, name)) from error


def _parsed(entries: Sequence[Any]) -> tuple[ConfiguredStage, ...]:
    stages: list[ConfiguredStage] = []
    problems: list[str] = []
    for entry in entries:
        try:
            stages.append(parse_stage(entry, stages[-1].section.k if stages else None))
        except ValueError as error:
            problems += error.args
    if problems:
        raise Problems(*problems)
    return tuple(stages)


def _dump(stages: Sequence[ConfiguredStage]) -> list[dict[str, Any]]:
    return [
        {stage.kind: {"name": stage.name, **stage.section.model_dump(mode="json")}}
        for stage in stages
    ]


Cascade: TypeAlias = Annotated[
    tuple[Annotated[ConfiguredStage, SkipValidation], ...],
    AfterValidator(_parsed),
    PlainSerializer(_dump),
]


def _first_sections() -> dict[str, type[FirstStageConfig]]:
    """The sections of first stages, by kind: ours, and packages' sections that can be imported."""
    sections = {kind: stage.section for kind, stage in PLUGINS.importable().items()}
    return _FIRST | {
        kind: section for kind, section in sections.items() if issubclass(section, FirstStageConfig)
    }


def short_fields() -> dict[str, FieldInfo]:
    """The keys of the stages that can stand beside the list."""
    sections = {**_first_sections(), **_LATER}
    return {kind: FieldInfo.from_annotation(section) for kind, section in sections.items()}


def with_entries(document: Any) -> Any:
    """A document with each entry of its list as `{kind: {...}}`, or as what is wrong with it, which
    the check of the list raises.
    """
    entries = document.get("cascade") if isinstance(document, dict) else None
    if not isinstance(entries, list | tuple):
        return document
    written = [_entry(entry, f"cascade.{place}: ") for place, entry in enumerate(entries)]
    return {**document, "cascade": written}


def _entry(entry: Any, place: str = "") -> Any:
    try:
        kind, settings = one_stage(entry)
    except Problems as error:
        return error
    except ValueError as error:
        return Problems(f"{place}{error}")
    return {kind: settings}


def _listed(entries: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The name, kind and settings of each stage of a list `with_entries`."""
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            ((kind, settings),) = entry.items()
            yield str(settings.get("name", kind)), kind, settings


def find_section(document: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The settings of a stage of the list, for `--set NAME.k=20`; None if the list has no such
    stage.
    """
    stages = _listed(document.get("cascade"))
    return next((settings for listed, _, settings in stages if listed == name), None)


def one_list(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document `with_entries` whose stages are one list: the first stage, then the list, or
    `mono` and `duo` as its short form.

    An index without a first stage is searched with BM25. A stage of the list under whose name the
    document has null, as by `--set NAME=null`, is left out.

    Raises:
        ValueError: what stands beside the list is not its short form.
    """
    values, first_kinds = dict(document), _first_sections()
    listed: Any = values.get("cascade")
    for name, kind, settings in [*_listed(listed)]:
        if values.get(name, name) is None:
            listed.remove({kind: settings})
            del values[name]
    first, short = (
        {
            kind: _entry({kind: given})
            for kind in kinds
            if (given := values.pop(kind, None)) is not None
        }
        for kinds in ([*first_kinds], [*_LATER])
    )
    # A template of jobs gives an empty list by default.
    if short and listed:
        raise ValueError("`mono` and `duo` are the short form of `cascade`: give one or the other")
    if [*short] == ["duo"]:
        raise ValueError("`duo` re-ranks the best candidates of `mono`: give `mono` too")
    if any(name != kind for name, kind, _ in _listed([*short.values()])):
        raise ValueError("`name` is for the stages of `cascade`: leave it out of `mono` and `duo`")
    if isinstance(listed, list | None):
        stages = [*first.values(), *(listed or short.values())]
        has_first = any(kind in first_kinds for _, kind, _ in _listed(stages))
        is_searched = values.get("index") is not None and not has_first
        values["cascade"] = [{"bm25": {}}, *stages] if is_searched else stages
    return values


def anchor_stages(document: Mapping[str, Any], folder: str) -> None:
    """Makes relative paths of the stages relative to the configuration file's folder."""
    for _, kind, settings in _listed(document["cascade"]):
        anchor_paths(settings, section_of_stage(kind), folder)


def check_names(stages: Sequence[ConfiguredStage], taken: Collection[str] = ()) -> None:
    """Checks the names of stages; those `taken` are only for stages of that kind.

    Raises:
        ValueError: two have one name, or one has a name of ours.
    """
    names: set[str] = set()
    for name, kind, _ in stages:
        if name in RESERVED or name.startswith("tokenize-") or (name in taken and name != kind):
            raise ValueError(
                f"a stage cannot have the name {name!r}, which beamrank uses: choose a different "
                "`name`"
            )
        if name in names:
            raise ValueError(
                f"two stages have the name {name!r}: give one of them a `name` of its own"
            )
        names.add(name)


def check_first_stage(stages: Sequence[ConfiguredStage], has_index: bool) -> None:
    """Raises ValueError where the first of the stages is not the only first stage, or does not go
    with the index.
    """
    first = [stage for stage in stages if isinstance(stage.section, FirstStageConfig)]
    if not first:
        raise ValueError(f"the first stage is missing: give {first_stage_choices()}")
    name, uses_index = first[0].name, first[0].section.uses_index
    others = [stage.name for stage in first[1:]] + ["index"] * (has_index and not uses_index)
    if others:
        names = " and ".join(f"`{choice}`" for choice in (name, *others))
        raise ValueError(f"{names} exclude each other: give either {first_stage_choices()}")
    if stages[0].name != name:
        raise ValueError(f"{name} is a first stage: it must be the first of `cascade`")
    if uses_index and not has_index:
        raise ValueError(f"`{name}` searches an index: give `index` too")


def check_depths(stages: Sequence[ConfiguredStage], layout: InputConfig) -> None:
    """Raises ValueError where a stage wants more candidates than it can get, or cannot lay out its
    inputs so.
    """
    first_depth = stages[0].section.k, "the first stage gives it"
    depth, source = first_depth
    for name, _, section in stages[1:]:
        if section.deepens:
            depth, source = first_depth
        if section.k > depth:
            raise ValueError(
                f"{name}.k {section.k} is more than the {depth} candidates that {source}"
            )
        depth, source = section.k, f"{name} scores ({name}.k)"
        section.check_input(name, layout)


def first_stage_choices() -> str:
    """The ways to give a first stage, for messages."""
    return " or ".join(
        f"`index` and `{kind}`" if section.uses_index else f"`{kind}`"
        for kind, section in _first_sections().items()
    )
