"""The configuration of a run: one model of every option, checked whole before anything starts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from beamrank.config.cascade import (
    FIRST_STAGES,
    SHORT_FORM,
    CascadeEntry,
    ConfiguredStage,
    checked_names,
    completed,
    find_section,
    first_stage_choices,
    remove_null_stages,
    stage_paths,
)
from beamrank.config.stages import (
    OF_TOPICS,
    Bm25Config,
    CandidatesConfig,
    DuoConfig,
    FirstStageConfig,
    IndexConfig,
    InputConfig,
    MonoConfig,
)
from beamrank.config.yaml import (
    anchor_paths,
    check_document,
    explain,
    folder_of,
    read_document,
)
from beamrank.errors import ConfigError, PreflightError
from beamrank.evaluation.measures import DEFAULT_MEASURES, split_measures
from beamrank.formats import corpora, topics
from beamrank.formats.columns import check_header, column_names
from beamrank.formats.corpora import FORMATS as CORPUS_FORMATS
from beamrank.formats.corpora import CorpusConfig
from beamrank.formats.files import shown_paths
from beamrank.formats.qrels import QrelsConfig
from beamrank.formats.rejects import Rejects
from beamrank.formats.run_writer import FORMATS as RUN_FORMATS
from beamrank.formats.topics import TopicsConfig
from beamrank.formats.values import is_usable
from beamrank.plugins import Registry, options_of
from beamrank.section import (
    DeviceName,
    NotNegative,
    OneOf,
    Path,
    Positive,
    Section,
)
from beamrank.storage import files as storage
from beamrank.storage.urls import refuse_credentials


class RunTopicsConfig(TopicsConfig):
    """The topics of a run."""

    limit: Positive | None = None
    """A trial: only the first so many topics, in the plan's order."""


class MaxBadRows(Section):
    """How many rows of each input may be left out because they cannot be used. More are an
    error.
    """

    short = "docs"
    docs: NotNegative = 100
    """Corpus rows that cannot be used; more stop the run before scoring."""
    topics: NotNegative = 0
    """Topics that cannot be used; more are an error before the start, as for `run` and `qrels`."""
    run: NotNegative = 0
    """Rows of `candidates.run` that cannot be used. Those of a file that lists docs are of `docs`.
    """
    qrels: NotNegative = 0
    """Judgments that cannot be used."""

    def rejects(self, kind: Literal["docs", "topics", "run", "qrels"]) -> Rejects:
        """What takes the rows of an input that are left out."""
        return Rejects(kind, getattr(self, kind))


class JobConfig(Section):
    """What each job of workers needs to know, such as that of `beamrank run`."""

    output: Path
    """The folder of parts, receipts and runs."""
    input: InputConfig = InputConfig()
    """How a model's input is laid out."""
    threads: Positive | None = None
    """Threads of a process, for scoring and Lucene; default: all cores that it may use. The runs do
    not depend on it.
    """
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of the models; `auto` is a fast one of the device."""
    device: DeviceName = "auto"
    """Where models run: `auto`, `cpu`, `cuda`, or `cuda:N` for one GPU of several."""
    backend: str = "torch"
    """The library that runs models: `torch`, `openvino` on a CPU, or `auto` for the faster one
    there.
    """
    kernel: Literal["auto", "torch", "compiled"] = "auto"
    """What computes attention with `backend: torch` on a CPU: `torch`, or the kernels that were
    `compiled` at installation; `auto` is these where they are faster, and torch for workers on
    other machines."""
    stall_minutes: Annotated[float, Field(gt=0)] = 30
    """A job in which no shard makes progress for so long is stopped."""


class RunInputConfig(InputConfig):
    """The inputs of the stages of a run."""

    max_text_bytes: Positive = 1 << 14
    """Of a text, for stages that read texts and no tokens; a longer one is cut."""


class RunConfig(JobConfig):
    """Everything that a run needs to know. See docs/reference/configuration.md."""

    run_tag: Annotated[str, Field(pattern=r"^\S+$")] = "beamrank"
    """The sixth column of the runs; no white space, no control characters."""
    corpus: CorpusConfig
    """The docs."""
    topics: RunTopicsConfig
    """The topics."""
    qrels: QrelsConfig | None = None
    """The judgments. Without them nothing is evaluated."""
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
    """The stages after the first, in order, in place of `mono` and `duo`: `- mono: {checkpoint:
    ..., name: large}`. The `name`, by default the kind, is the stage's folder, its run, its
    `--stage`, and its address in `--set NAME.k=20`: at most 100 bytes, and no name that beamrank
    uses in an output, such as `runs` or `report`.
    """
    measures: tuple[str, ...] = DEFAULT_MEASURES
    """Names of ir_measures or trec_eval; stages are compared by the first. `[]`: nothing is
    evaluated."""
    reuse: tuple[Path, ...] = ()
    """Outputs of earlier runs, whose scores of the same inputs are reused.
    """
    run_formats: Annotated[tuple[Annotated[str, OneOf(RUN_FORMATS)], ...], Field(min_length=1)] = (
        "trec",
    )
    """The formats in which runs are written."""
    run_files: Literal["one", "parts"] | None = None
    """A run as one file, or as a folder with a part a shard; default: `one` for text, `parts` for
    Parquet.
    """
    shards: Positive | None = None
    """Units of work, commit and resuming; default: one for 16 topics, at most 4,096 of these, then
    for up to 160.
    """
    on_missing_doc: Literal["error", "drop"] = "error"
    """What to do with a candidate whose doc is not in the corpus; `drop` counts and reports it."""
    max_bad_rows: MaxBadRows = MaxBadRows()
    """Rows that may be left out."""
    input: RunInputConfig = RunInputConfig()
    """How inputs of models are laid out, and how long texts are."""

    @field_validator("run_tag")
    @classmethod
    def _check_run_tag(cls, run_tag: str) -> str:
        if not is_usable(run_tag):
            raise ValueError(
                "is a column of the runs: it must not hold a control character or a byte order mark"
            )
        return run_tag

    @field_validator("measures", mode="before")
    @classmethod
    def _split_measures(cls, value: Any) -> Any:
        return split_measures(value) if isinstance(value, str) else value

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, values: Any) -> Any:
        return completed(cls.written_out(values)) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _check_topics(self) -> Self:
        if self.topics.only_judged and self.qrels is None:
            raise ValueError("topics.only_judged keeps the topics of the qrels: give `qrels` too")
        if "instruction" in column_names(self.topics.columns) and not self.reads_instructions:
            raise ValueError(
                f'topics.columns.instruction is for a stage with `instruction: "{OF_TOPICS}"`: '
                "give one"
            )
        return self

    @model_validator(mode="after")
    def _check_first_stage(self) -> Self:
        found = [name for name, _, section in self.stages if isinstance(section, FirstStageConfig)]
        if not found:
            raise ValueError(f"the first stage is missing: give {first_stage_choices()}")
        if len(found) > 1:
            names = " and ".join(f"`{name}`" for name in found)
            raise ValueError(f"{names} exclude each other: give either {first_stage_choices()}")
        if self.stages[0].name != found[0]:
            raise ValueError(f"{found[0]} is a first stage: it must be the first of `cascade`")
        uses_index = self.first_stage.uses_index
        if self.index is not None and not uses_index:
            raise ValueError(
                f"`{found[0]}` and `index` exclude each other: give either {first_stage_choices()}"
            )
        check_header(self.topics.header, None, {"bm25.template": self.bm25_template})
        if self.index is None and uses_index:
            raise ValueError(f"`{found[0]}` searches an index: give `index` too")
        corpus_format = CORPUS_FORMATS.get(self.corpus.format)  # None for `auto`
        if self.index is not None and corpus_format is not None and corpus_format.lists_candidates:
            raise ValueError(
                f"a corpus of `format: {self.corpus.format}` holds candidates of its own queries "
                "alone: give the file as `candidates.run`, or a whole collection as `corpus` of "
                "the index"
            )
        return self

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        if self.cascade is not None and (self.mono is not None or self.duo is not None):
            raise ValueError(
                "`mono` and `duo` are the short form of `cascade`: give one or the other"
            )
        if self.duo is not None and self.mono is None:
            raise ValueError("`duo` re-ranks the best candidates of `mono`: give `mono` too")
        first, *later = self.stages
        checked_names(later, type(self).model_fields, first.name)
        depth, source = first.section.k, "the first stage gives it"
        for name, _, section in later:
            depth, source = (
                (first.section.k, "the first stage gives it")
                if section.deepens
                else (depth, source)
            )
            if section.k > depth:
                raise ValueError(
                    f"{name}.k {section.k} is more than the {depth} candidates that {source}"
                )
            depth, source = section.k, f"{name} scores ({name}.k)"
            section.check_input(name, self.input)
        return self

    @property
    def judgments(self) -> QrelsConfig | None:
        """The qrels with which runs are measured; None where nothing is evaluated."""
        return self.qrels if self.measures else None

    @property
    def reads_instructions(self) -> bool:
        """Whether a stage reads the instruction of each topic."""
        return any(
            getattr(section, "instruction", None) == OF_TOPICS for _, _, section in self.stages
        )

    @property
    def bm25_template(self) -> str | None:
        """The template of the topics that BM25 gets; None where it gets those of all stages."""
        section = self.first_stage
        return section.template if isinstance(section, Bm25Config) else None

    def in_parts(self, run_format: str) -> bool:
        """Whether runs of a format are folders of parts."""
        return (
            RUN_FORMATS[run_format].is_table
            if self.run_files is None
            else self.run_files == "parts"
        )

    @property
    def stages(self) -> list[ConfiguredStage]:
        """The stages of the cascade, the first stage among them, in order."""

        def sections(names: Iterable[str]) -> list[ConfiguredStage]:
            return [
                ConfiguredStage(name, name, getattr(self, name))
                for name in names
                if getattr(self, name)
            ]

        return [*sections(FIRST_STAGES), *(self.cascade or ()), *sections(SHORT_FORM)]

    @property
    def first_stage(self) -> FirstStageConfig:
        """The first stage's section."""
        section: FirstStageConfig = self.stages[0].section
        return section


class RunOption(Protocol):
    """Makes the configuration that is run of the one that a user gives.

    Its keyword-only parameters, with typer's annotations, are options of `beamrank run`, and keys
    of `options` in `beamrank.run`.
    """

    def __call__(
        self, config: RunConfig, max_inferences: int | None, /, **options: Any
    ) -> RunConfig:
        """`max_inferences` is the limit that the user gives."""


RUN_OPTIONS: Registry[RunOption] = Registry("option of `run`", "beamrank.run_options", {})


def with_options(
    config: RunConfig, max_inferences: int | None, given: Mapping[str, Any]
) -> RunConfig:
    """What the options of packages make of a configuration; ConfigError where no package has
    one.
    """
    left = dict(given)
    for change in RUN_OPTIONS.importable().values():
        own = {each.name: left.pop(each.name) for each in options_of(change) if each.name in left}
        config = change(config, max_inferences, **own)
    if left:
        raise ConfigError(
            f"no package has the option {min(left)!r}: install the one that brings it, or leave "
            "it out"
        )
    return config


def load_config(
    source: str | Mapping[str, Any],
    overrides: Sequence[str] = (),
    output: str | None = None,
    reuse: Sequence[str] = (),
) -> RunConfig:
    """Reads a YAML configuration.

    Args:
        source: the file, to whose folder relative paths inside it are relative; or its content, a
            pipe, or `-` for standard input, with paths relative to the current folder.
        overrides: `section.key=value` strings; the value is YAML.
        output: replaces `output`, relative to the current folder.
        reuse: more outputs for `reuse`, relative to the current folder.

    Raises:
        PreflightError: the file cannot be read.
        ConfigError: the file is not a YAML mapping, a key or a value is wrong, or a text can carry
            a credential.
    """
    refuse_credentials(output or "", "--output")
    refuse_credentials(list(reuse), "--reuse")
    document = read_document(source, RunConfig, overrides, find_section)
    remove_null_stages(document)
    folder = folder_of(source)
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
        PreflightError: it has keys or values that this beamrank does not know, or is not that of a
            run.
    """
    if "topics" not in values:
        raise PreflightError(
            f"{where} holds what another command made, without topics and rankings: give an "
            "output of `beamrank run`"
        )
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise PreflightError(
            f"the plan in {where} was made by another version, or with a first stage that is not "
            f"registered here: {explain(error, RunConfig)}. Run again first, or register the "
            "first stage"
        ) from error


def with_formats(config: RunConfig) -> tuple[RunConfig, list[str]]:
    """A configuration that names its formats, as the plan records it, and notes on those that were
    guessed.

    Raises:
        PreflightError: a format cannot be guessed.
        ConfigError: a guessed format does not go with other keys.
    """
    corpus, given_topics = corpora.resolved(config.corpus), topics.resolved(config.topics)
    resolved: dict[str, CorpusConfig | TopicsConfig] = {"corpus": corpus, "topics": given_topics}
    found = {key: section for key, section in resolved.items() if section != getattr(config, key)}
    notes = [
        note
        for key, section in found.items()
        for note in _guesses(key, section, getattr(config, key))
    ]
    notes += [*corpora.notes(corpus), *topics.notes(given_topics)]
    if not found:
        return config, notes
    try:
        values = {name: getattr(config, name) for name in config.model_fields_set}
        return type(config).model_validate(values | found), notes
    except ValidationError as error:
        raise ConfigError(f"{'; '.join(notes)}: {explain(error, RunConfig)}") from error


def _guesses(
    key: str, section: CorpusConfig | TopicsConfig, given: CorpusConfig | TopicsConfig
) -> Iterator[str]:
    if section.format != given.format:
        yield f"{shown_paths(section.path)} is read as `{key}.format: {section.format}`"
    if section.columns != given.columns:
        named = ", ".join(
            f"{meaning}: {name}" for meaning, name in column_names(section.columns).items()
        )
        yield f"{shown_paths(section.path)} is read with `{key}.columns: {{{named}}}`"
