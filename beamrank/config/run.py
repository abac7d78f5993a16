"""The configuration of a run: one model of every option, checked whole before anything starts."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo

from beamrank.config.device import DeviceName
from beamrank.config.first_stages import FIRST_K, Bm25Config, CandidatesConfig, FirstStageConfig, IndexConfig
from beamrank.config.models import DuoConfig, InputConfig, MonoConfig
from beamrank.config.yaml import anchor_paths, check_document, explain, read_document
from beamrank.errors import PreflightError
from beamrank.evaluation.measures import DEFAULT_MEASURES, split_measures
from beamrank.formats.corpora import FORMATS as CORPUS_FORMATS
from beamrank.formats.corpora import CorpusConfig
from beamrank.formats.ids import is_usable
from beamrank.formats.qrels import QrelsFiles
from beamrank.formats.run_writer import FORMATS as RUN_FORMATS
from beamrank.formats.topics import TopicsConfig
from beamrank.section import OneOf, Path, Positive, Section
from beamrank.storage import files as storage
from beamrank.storage.urls import refuse_credentials

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
    input: InputConfig = InputConfig()
    """How a model's input is laid out."""
    measures: tuple[str, ...] = DEFAULT_MEASURES
    """Names of ir_measures or trec_eval; stages are compared by the first."""
    output: Path
    """The folder of parts, receipts and runs."""
    reuse: tuple[Path, ...] = ()
    """Outputs of earlier runs, whose scores of the same inputs and tokens of the same docs are taken over."""
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
        """Limits each default depth to that of the stage before it."""
        if not isinstance(values, dict):
            return values
        given = [name for name in cls.first_stage_sections() if values.get(name) is not None]
        if not given and values.get("index") is not None:
            values = {**values, _FIRST_STAGE_OF_INDEX: {}}
        depth = _depth(values[given[0]] if given else None, FIRST_K)
        models: tuple[tuple[str, type[Section]], ...] = (("mono", MonoConfig), ("duo", DuoConfig))
        for name, model in models:
            section = values.get(name)
            if isinstance(section, dict):
                section.setdefault("k", min(model.model_fields["k"].default, depth))
                depth = _depth(section, depth)
        return values

    @model_validator(mode="after")
    def _check_judged(self) -> Self:
        if self.topics.only_judged and self.qrels is None:
            raise ValueError("topics.only_judged keeps the topics of the qrels: give `qrels` too")
        return self

    @model_validator(mode="after")
    def _check_first_stage(self) -> Self:
        sections = self.first_stage_sections()
        given = [name for name in sections if getattr(self, name) is not None]
        if not given:
            raise ValueError(f"the first stage is missing: give {_choices(sections)}")
        index = ["index"] if self.index is not None and not sections[given[0]].uses_index else []
        if len(given) > 1 or index:
            both = " and ".join(f"`{name}`" for name in (*given, *index))
            raise ValueError(f"{both} exclude each other: give either {_choices(sections)}")
        if self.index is None and sections[given[0]].uses_index:
            raise ValueError(f"`{given[0]}` searches an index: give `index` too")
        corpus_format = CORPUS_FORMATS.get(self.corpus.format)  # None for `auto`
        if self.index is not None and corpus_format is not None and corpus_format.lists_candidates:
            raise ValueError(
                f"a corpus of `format: {self.corpus.format}` holds candidates of its own queries alone: give the file "
                "as `candidates.run`, or a whole collection as `corpus` of the index"
            )
        return self

    @model_validator(mode="after")
    def _check_depths(self) -> Self:
        first = self.first_stage.k
        if self.mono is not None and self.mono.k > first:
            raise ValueError(f"mono.k {self.mono.k} is more than the {first} candidates that the first stage gives it")
        if self.duo is not None and self.mono is None:
            raise ValueError("`duo` re-ranks the best candidates of `mono`: give `mono` too")
        if self.duo is not None and self.mono is not None and self.duo.k > self.mono.k:
            raise ValueError(f"duo.k {self.duo.k} is more than the {self.mono.k} candidates that mono scores (mono.k)")
        if self.duo is not None and self.input.truncation == "hf":
            raise ValueError("truncation `hf` is defined for pairs only, and duoBERT's input has three segments")
        if self.duo is not None and self.input.max_length - self.input.max_query_length < 6:
            raise ValueError(
                f"input.max_length {self.input.max_length} leaves duoBERT's two docs no room beside a query of "
                f"max_query_length {self.input.max_query_length}"
            )
        return self

    @model_validator(mode="after")
    def _check_segments(self) -> Self:
        if self.mono is None or self.mono.segments is None:
            return self
        room = self.input.max_length - self.input.max_query_length - 2
        if self.mono.segments.length_tokens > room:
            raise ValueError(
                f"mono.segments.length_tokens is {self.mono.segments.length_tokens}, but an input of max_length "
                f"{self.input.max_length} holds {room} wordpieces of a doc beside the longest query: the rest of each "
                "segment would be cut off"
            )
        return self

    @classmethod
    def first_stage_sections(cls) -> dict[str, type[FirstStageConfig]]:
        """The sections of the first stages, by their keys."""
        kinds = {name: get_args(field.annotation)[:1] for name, field in cls.model_fields.items()}
        return {
            name: kind
            for name, found in kinds.items()
            for kind in found
            if isinstance(kind, type) and issubclass(kind, FirstStageConfig)
        }

    @property
    def first_stage_name(self) -> str:
        """The key of the first stage's section."""
        return next(name for name in self.first_stage_sections() if getattr(self, name) is not None)

    @property
    def first_stage(self) -> FirstStageConfig:
        """The first stage's section."""
        section: FirstStageConfig = getattr(self, self.first_stage_name)
        return section

    @property
    def models(self) -> dict[str, MonoConfig | DuoConfig]:
        """The sections of the models that it has, by their keys."""
        sections = {"mono": self.mono, "duo": self.duo}
        return {name: section for name, section in sections.items() if section is not None}


def add_first_stage(name: str, section: type[FirstStageConfig]) -> None:
    """Gives configurations the section of another first stage, unless they have it."""
    if name not in RunConfig.model_fields:
        optional: Any = section | None
        RunConfig.model_fields[name] = FieldInfo.from_annotated_attribute(optional, None)
        RunConfig.model_rebuild(force=True)


def remove_first_stage(name: str) -> None:
    """Removes the section that `add_first_stage` added."""
    del RunConfig.model_fields[name]
    RunConfig.model_rebuild(force=True)


def _choices(sections: Mapping[str, type[FirstStageConfig]]) -> str:
    return " or ".join(f"`index` and `{name}`" if each.uses_index else f"`{name}`" for name, each in sections.items())


def _depth(section: Any, default: int) -> int:
    """The `k` of a section, not yet checked."""
    k = section.get("k", default) if isinstance(section, dict) else default
    return k if isinstance(k, int) else default


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
    document = read_document(source, overrides)
    anchor_paths(document, RunConfig, storage.parent(source) if isinstance(source, str) else storage.absolute("."))
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
