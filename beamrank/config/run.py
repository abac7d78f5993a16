"""The configuration of a run: one model of every option, checked whole before anything starts."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic.fields import FieldInfo

from beamrank.config.cascade import (
    Cascade,
    check_depths,
    check_first_stage,
    check_names,
    one_list,
    short_fields,
    with_entries,
)
from beamrank.config.stages import (
    OF_TOPICS,
    Bm25Config,
    FirstStageConfig,
    IndexConfig,
    InputConfig,
)
from beamrank.evaluation.measures import DEFAULT_MEASURES, split_measures
from beamrank.formats.columns import check_header, column_names
from beamrank.formats.corpora import FORMATS as CORPUS_FORMATS
from beamrank.formats.corpora import CorpusConfig
from beamrank.formats.qrels import QrelsConfig
from beamrank.formats.rejects import Rejects
from beamrank.formats.run_writer import FORMATS as RUN_FORMATS
from beamrank.formats.topics import TopicsConfig
from beamrank.formats.values import is_usable
from beamrank.section import (
    DeviceName,
    NotNegative,
    OneOf,
    Path,
    Positive,
    Section,
)


class RunTopicsConfig(TopicsConfig):
    """The topics of a run."""

    limit: Positive | None = None
    """How many topics a trial runs: the first ones in the plan's order."""


class MaxBadRows(Section):
    """How many rows of each input may be left out because they cannot be used. More are an
    error.
    """

    short = "docs"
    docs: NotNegative = 100
    """How many rows of the corpus may be unusable; more stop the run before scoring."""
    topics: NotNegative = 0
    """How many topics may be unusable; more are an error before the start."""
    run: NotNegative = 0
    """How many rows of `candidates.run` may be unusable; more are an error before the start. Rows
    of a file that lists docs count for `docs`.
    """
    qrels: NotNegative = 0
    """How many judgments may be unusable; more are an error before the start."""

    def rejects(self, kind: Literal["docs", "topics", "run", "qrels"]) -> Rejects:
        """The collector of an input's rows that are left out."""
        return Rejects(kind, getattr(self, kind))


class JobConfig(Section):
    """Settings that each job of workers needs, such as the job of `beamrank run`."""

    output: Path
    """The folder of parts, receipts and runs."""
    input: InputConfig = InputConfig()
    """How a model's input is laid out."""
    threads: Positive | None = None
    """How many threads a process uses for scoring and Lucene; by default all cores that it may use.
    The runs do not depend on this key.
    """
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """The number format of the models; `auto` chooses a fast one for the device (see the notes)."""
    device: DeviceName = "auto"
    """Where models compute: `auto`, `cpu`, `cuda`, or `cuda:N` for one GPU of several."""
    backend: str = "torch"
    """The library that runs models: `torch`, `openvino` on a CPU, or `auto` for the faster one
    there.
    """
    kernel: Literal["auto", "torch", "compiled"] = "auto"
    """What computes attention on a CPU with `backend: torch`: `torch`, or the kernels that were
    `compiled` at installation. `auto` uses compiled kernels where they are faster, but torch where
    workers are on other machines."""
    stall_minutes: Annotated[float, Field(gt=0)] = 30
    """A job is stopped if no shard makes progress for so many minutes."""


class RunInputConfig(InputConfig):
    """The inputs of the stages of a run."""

    max_text_bytes: Positive = 1 << 14
    """The most bytes of a text for stages that read texts in place of tokens, such as `dense` and
    `listwise`; longer texts are cut.
    """


class RunConfig(JobConfig):
    """Everything that a run needs to know. See docs/reference/configuration.md."""

    run_tag: Annotated[str, Field(pattern=r"^\S+$")] = "beamrank"
    """The sixth column of the runs, without white space and control characters."""
    corpus: CorpusConfig
    """The docs."""
    topics: RunTopicsConfig
    """The topics."""
    qrels: QrelsConfig | None = None
    """The judgments. Without them nothing is evaluated."""
    measures: tuple[str, ...] = DEFAULT_MEASURES
    """Names of ir_measures or trec_eval. The first measure compares stages; with `[]` nothing is
    evaluated."""
    reuse: tuple[Path, ...] = ()
    """Outputs of earlier runs, whose scores of the same inputs are reused."""
    run_formats: Annotated[tuple[Annotated[str, OneOf(RUN_FORMATS)], ...], Field(min_length=1)] = (
        "trec",
    )
    """The formats in which runs are written."""
    run_files: Literal["one", "parts"] | None = None
    """Whether a run is `one` file, or a folder of `parts`, one for each shard; by default `one` for
    text, `parts` for Parquet.
    """
    shards: Positive | None = None
    """How many shards the topics are divided into. By default a shard has 16 topics; beyond 4,096
    shards it has more, up to 160.
    """
    on_missing_doc: Literal["error", "drop"] = "error"
    """What happens if a candidate's doc is not in the corpus; `drop` drops, counts and reports it.
    """
    max_bad_rows: MaxBadRows = MaxBadRows()
    """Rows that may be left out."""
    index: IndexConfig | None = None
    """The Lucene index."""
    cascade: Cascade = ()
    """The stages after the first, in order, in place of `mono` and `duo`, such as `- mono:
    {checkpoint: ..., name: large}`. The `name`, by default the kind, names the stage's folder and
    run, and the stage in `--stage NAME` and `--set NAME.k=20`. It has at most 100 bytes. Names
    that beamrank uses in an output, such as `runs` and `report`, are refused.
    """
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

    @classmethod
    def fields_of(cls, document: Mapping[str, Any]) -> Mapping[str, FieldInfo]:  # noqa: ARG003
        return {**cls.model_fields, **short_fields()}

    @classmethod
    def written_out(cls, values: Any) -> Any:
        return with_entries(super().written_out(values))

    @model_validator(mode="before")
    @classmethod
    def _write_list(cls, values: Any) -> Any:
        return one_list(cls.written_out(values)) if isinstance(values, dict) else values

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
    def _check_stages(self) -> Self:
        check_first_stage(self.cascade, self.index is not None)
        check_header(self.topics.header, None, {"bm25.template": self.bm25_template})
        corpus_format = CORPUS_FORMATS.get(self.corpus.format)  # None for `auto`
        if self.index is not None and corpus_format is not None and corpus_format.lists_candidates:
            raise ValueError(
                f"a corpus of `format: {self.corpus.format}` holds candidates of its own queries "
                "alone: give the file as `candidates.run`, or a whole collection as `corpus` of "
                "the index"
            )
        check_names(self.cascade, self.fields_of({}))
        check_depths(self.cascade, self.input)
        return self

    @property
    def judgments(self) -> QrelsConfig | None:
        """The qrels with which runs are measured; None where nothing is evaluated."""
        return self.qrels if self.measures else None

    @property
    def reads_instructions(self) -> bool:
        """Whether a stage reads the instruction of each topic."""
        return any(
            getattr(section, "instruction", None) == OF_TOPICS for _, _, section in self.cascade
        )

    @property
    def bm25_template(self) -> str | None:
        """The template of the topics that BM25 gets; None where it gets the topics of all
        stages.
        """
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
    def first_stage(self) -> FirstStageConfig:
        """The first stage's section."""
        section: FirstStageConfig = self.cascade[0].section
        return section
