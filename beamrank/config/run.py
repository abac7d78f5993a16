"""The configuration of a run: one model of every option, checked whole before anything starts."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from beamrank.config.cascade import (
    SHORT_FORM,
    CascadeEntry,
    ConfiguredStage,
    begins_with_first_stage,
    checked_names,
    find_section,
    fit_depths,
    normalized,
    plugin_kinds,
    remove_null_stages,
    section_of_stage,
    stage_paths,
    stage_settings,
)
from beamrank.config.device import DeviceName
from beamrank.config.first_stages import FIRST_K, Bm25Config, CandidatesConfig, FirstStageConfig, IndexConfig
from beamrank.config.models import DuoConfig, InputConfig, MonoConfig
from beamrank.config.yaml import anchor_paths, check_document, explain, read_document
from beamrank.errors import PreflightError
from beamrank.evaluation.measures import DEFAULT_MEASURES, split_measures
from beamrank.formats.checks import is_usable
from beamrank.formats.corpora import FORMATS as CORPUS_FORMATS
from beamrank.formats.corpora import CorpusConfig
from beamrank.formats.qrels import QrelsFiles
from beamrank.formats.run_writer import FORMATS as RUN_FORMATS
from beamrank.formats.topics import TopicsConfig
from beamrank.section import OneOf, Path, Positive, Section
from beamrank.storage import files as storage
from beamrank.storage.urls import refuse_credentials

FIRST_STAGES: dict[str, type[FirstStageConfig]] = {"bm25": Bm25Config, "candidates": CandidatesConfig}
_MOST_K = 2**31 - 1
# The first stage of a configuration that has an index and names none.
_FIRST_STAGE_OF_INDEX = "bm25"


class RunTopicsConfig(TopicsConfig):
    """The topics of a run."""

    limit: Positive | None = None
    """A trial: only the first so many topics, in the plan's order."""


class RunConfig(Section):
    """Everything that a run needs to know. See docs/reference/configuration.md."""

    run_tag: Annotated[str, Field(pattern=r"^\S+$")] = "beamrank"
    """The sixth column of the runs; no white space, no control characters."""
    corpus: CorpusConfig
    """The docs."""
    topics: RunTopicsConfig
    """The topics."""
    qrels: QrelsFiles | None = None
    """Judgments, a file, a glob, or a list of them; or a mapping with `path` and `columns`. Without them nothing is
    evaluated."""
    index: IndexConfig | None = None
    """The Lucene index."""
    bm25: Bm25Config | None = None
    """The first stage."""
    candidates: CandidatesConfig | None = None
    """An existing run as the first stage."""
    mono: MonoConfig | None = None
    """MonoBERT."""
    duo: DuoConfig | None = None
    """DuoBERT."""
    cascade: tuple[CascadeEntry, ...] | None = None
    """The stages after the first, in order, in place of `mono` and `duo`: `- mono: {checkpoint: ..., name: large}`. The
    `name`, by default the kind, is the stage's folder, its run, its `--stage`, and its address in `--set NAME.k=20`."""
    input: InputConfig = InputConfig()
    """How a model's input is laid out."""
    measures: tuple[str, ...] = DEFAULT_MEASURES
    """Names of ir_measures or trec_eval; stages are compared by the first."""
    output: Path
    """The folder of parts, receipts and runs."""
    reuse: tuple[Path, ...] = ()
    """Outputs of earlier runs, whose scores of the same inputs and tokens of the same docs are reused."""
    run_formats: Annotated[tuple[Annotated[str, OneOf(RUN_FORMATS)], ...], Field(min_length=1)] = ("trec",)
    """The formats in which runs are written."""
    shards: Positive | None = None
    """Units of work, of commit and of resuming; default: one for 16 topics."""
    threads: Positive | None = None
    """Threads of a process, for scoring and Lucene; default: all cores. The runs do not depend on it."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of the models; `auto` is what the device is fast at."""
    device: DeviceName = "auto"
    """Where models run: `auto`, `cpu`, `cuda`, or `cuda:N` for one GPU of several."""
    backend: str = "torch"
    """The library that runs models: `torch`, `openvino` on a CPU, or `auto` for the faster one there."""
    on_missing_doc: Literal["error", "drop"] = "error"
    """What to do with a candidate whose doc is not in the corpus; `drop` counts and reports it."""
    max_bad_rows: Annotated[int, Field(ge=0)] = 100
    """More corpus rows that cannot be used stop the run before scoring."""
    stall_minutes: Annotated[float, Field(gt=0)] = 30.0
    """A job that completes no shard for so long is stopped."""

    @field_validator("run_tag")
    @classmethod
    def _check_run_tag(cls, run_tag: str) -> str:
        if not is_usable(run_tag):
            raise ValueError("is a column of the runs: it must not hold a control character or a byte order mark")
        return run_tag

    @field_validator("measures", mode="before")
    @classmethod
    def _split_measures(cls, value: Any) -> Any:
        return split_measures(value) if isinstance(value, str) else value

    @model_validator(mode="before")
    @classmethod
    def _fit_depths(cls, values: Any) -> Any:
        """Puts a plugin's first stage into the list, and limits each default depth to that of the stage before it."""
        if not isinstance(values, dict):
            return values
        values = {key: dict(each) if isinstance(each, dict) else each for key, each in values.items()}
        if values.get("cascade") is not None:
            values["cascade"] = normalized(values["cascade"])
        values = _with_first_stage_apart(_with_plugins(values))
        given = [name for name in FIRST_STAGES if values.get(name) is not None]
        listed = begins_with_first_stage(values.get("cascade"))
        if not given and not listed and values.get("index") is not None:
            values = {**values, _FIRST_STAGE_OF_INDEX: {}}
        first = values[given[0]] if given else None
        depth = first.get("k", FIRST_K) if isinstance(first, dict) else getattr(first, "k", FIRST_K)
        sections = [(kind, values[name]) for name, kind in SHORT_FORM.items() if isinstance(values.get(name), dict)]
        for _, kind, settings in stage_settings(values):
            try:
                sections.append((section_of_stage(kind), settings))
            except ValueError:
                continue  # It is refused with the rest of the list.
        # A first stage of the list has its own depth.
        fit_depths(sections, _MOST_K if listed else depth if isinstance(depth, int) else FIRST_K)
        return values

    @model_validator(mode="after")
    def _check_judged(self) -> Self:
        if self.topics.only_judged and self.qrels is None:
            raise ValueError("topics.only_judged keeps the topics of the qrels: give `qrels` too")
        return self

    @model_validator(mode="after")
    def _check_first_stage(self) -> Self:
        listed = [name for name, _, section in self._listed if isinstance(section, FirstStageConfig)]
        given = [name for name in FIRST_STAGES if getattr(self, name) is not None] + listed
        if not given:
            raise ValueError(f"the first stage is missing: give {_choices()}")
        if len(given) > 1:
            raise ValueError(
                f"{' and '.join(f'`{name}`' for name in given)} exclude each other: give either {_choices()}"
            )
        if listed and self._listed[0].name != listed[0]:
            raise ValueError(f"{listed[0]} is a first stage: it must be the first of `cascade`")
        uses_index = self.first_stage.uses_index
        if self.index is not None and not uses_index:
            raise ValueError(f"`{given[0]}` and `index` exclude each other: give either {_choices()}")
        if self.index is None and uses_index:
            raise ValueError(f"`{given[0]}` searches an index: give `index` too")
        corpus_format = CORPUS_FORMATS.get(self.corpus.format)  # None for `auto`
        if self.index is not None and corpus_format is not None and corpus_format.lists_candidates:
            raise ValueError(
                f"a corpus of `format: {self.corpus.format}` holds candidates of its own queries alone: give the file "
                "as `candidates.run`, or a whole collection as `corpus` of the index"
            )
        return self

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        if self.cascade is not None and (self.mono is not None or self.duo is not None):
            raise ValueError("`mono` and `duo` are the short form of `cascade`: give one or the other")
        if self.duo is not None and self.mono is None:
            raise ValueError("`duo` re-ranks the best candidates of `mono`: give `mono` too")
        first, *later = self.stages
        checked_names(later, type(self).model_fields, first.name)
        depth, source = first.section.k, "the first stage gives it"
        for name, _, section in later:
            if section.k > depth:
                raise ValueError(f"{name}.k {section.k} is more than the {depth} candidates that {source}")
            depth, source = section.k, f"{name} scores ({name}.k)"
            section.check_input(name, self.input)
        return self

    @property
    def _listed(self) -> list[ConfiguredStage]:
        return [entry.configured for entry in self.cascade or ()]

    @property
    def stages(self) -> list[ConfiguredStage]:
        """The stages of the cascade, the first stage among them, in order."""
        first = [(name, getattr(self, name)) for name in FIRST_STAGES]
        short = [(name, getattr(self, name)) for name in SHORT_FORM]
        found = [ConfiguredStage(name, name, section) for name, section in first if section is not None]
        found += self._listed
        return found + [ConfiguredStage(name, name, section) for name, section in short if section is not None]

    @property
    def first_stage_name(self) -> str:
        """The kind of the first stage."""
        return self.stages[0].kind

    @property
    def first_stage(self) -> FirstStageConfig:
        """The first stage's section."""
        section: FirstStageConfig = self.stages[0].section
        return section


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


def _choices() -> str:
    sections: dict[str, Any] = {**FIRST_STAGES, **{each: section_of_stage(each) for each in plugin_kinds(first=True)}}
    return " or ".join(f"`index` and `{name}`" if each.uses_index else f"`{name}`" for name, each in sections.items())


def load_config(
    source: str | Mapping[str, Any],
    overrides: Sequence[str] = (),
    output: str | None = None,
    reuse: Sequence[str] = (),
) -> RunConfig:
    """Reads a YAML configuration.

    Args:
        source: the file, to whose folder relative paths inside it are relative; or its content, with paths relative to
            the current folder.
        overrides: `section.key=value` strings; the value is YAML.
        output: replaces `output`, relative to the current folder.
        reuse: more outputs for `reuse`, relative to the current folder.

    Raises:
        PreflightError: the file cannot be read.
        ConfigError: the file is not a YAML mapping, a key or a value is wrong, or a text can carry a credential.
    """
    refuse_credentials(output or "", "--output")
    refuse_credentials(list(reuse), "--reuse")
    document = read_document(source, overrides, find_section)
    remove_null_stages(document)
    folder = storage.parent(source) if isinstance(source, str) else storage.absolute(".")
    anchor_paths(document, RunConfig, folder)
    for kind, settings in stage_paths(document):
        anchor_paths(settings, kind, folder)
    if output is not None:
        document["output"] = storage.absolute(output)
    if reuse and isinstance(document.setdefault("reuse", []), list):
        document["reuse"] = [*map(storage.absolute, reuse), *document["reuse"]]
    return check_document(document, RunConfig, source if isinstance(source, str) else "config")


def stored_config(values: Mapping[str, Any], where: str) -> RunConfig:
    """The configuration that a plan holds.

    Raises:
        PreflightError: it has keys or values that this beamrank does not know, or is not that of a run.
    """
    if "pairs" in values:
        raise PreflightError(
            f"{where} holds scores of `beamrank score`, without topics and rankings: give an output of `beamrank run`"
        )
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise PreflightError(
            f"the plan in {where} was made by another version, or with a first stage that is not registered here: "
            f"{explain(error, RunConfig)}. Run again first, or register the first stage"
        ) from error
