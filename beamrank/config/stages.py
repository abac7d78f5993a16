"""The sections of the stages and of the index, and how the inputs of models are laid out."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, model_validator
from pydantic.fields import FieldInfo

from beamrank.formats.columns import TABLES, RunColumns, TemplateText
from beamrank.formats.run_order import Ties
from beamrank.formats.runs import FORMATS as RUN_FORMATS
from beamrank.plugins import Registry
from beamrank.ranking.aggregation import METHODS
from beamrank.ranking.combine import Normalization
from beamrank.ranking.input_layout import InputLimits, SegmentPooling, Truncation
from beamrank.section import CheckpointName, OneOf, Path, PathOrSelf, Paths, Positive, Section
from beamrank.sources import is_named
from beamrank.storage.documents import validated

# The languages of Anserini's analyzers; spaces separate the terms of `pretokenized` texts, and of
# ha, so, sw and yo.
_CODES = "ar bn da de en es fa fi fr ha hi hu id it ja ko nl no pl pt ru so sv sw te th tr uk yo zh"
LANGUAGES = (*_CODES.split(), "pretokenized")
# As an instruction, stands for each topic's own.
OF_TOPICS = "{instruction}"
Instruction: TypeAlias = Annotated[str, Field(min_length=1)]


class SegmentsConfig(Section):
    """Long docs in segments that monoBERT scores one by one."""

    length_tokens: Positive
    """How many wordpieces a segment has."""
    stride_tokens: Positive | None = None
    """How many wordpieces after a segment's beginning the next one begins; by default its length.
    """
    pooling: SegmentPooling = "max"
    """How the segments' scores become the doc's; `first` scores only the first segment."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 16
    """How many segments of a doc are scored, at most."""

    @model_validator(mode="after")
    def _check_stride(self) -> Self:
        if self.stride > self.length_tokens:
            raise ValueError(
                f"stride_tokens {self.stride} is more than length_tokens {self.length_tokens}: "
                "tokens between two segments would not be read"
            )
        return self

    @property
    def stride(self) -> int:
        """Wordpieces from one segment's beginning to the next one's."""
        return self.stride_tokens or self.length_tokens

    @property
    def most(self) -> int:
        """The most segments of a doc that are scored."""
        return 1 if self.pooling == "first" else self.limit

    @property
    def doc_tokens(self) -> int:
        """The most wordpieces of a doc that the segments cover."""
        return self.length_tokens + (self.most - 1) * self.stride


class InputConfig(Section):
    """How a model's input is laid out (docs/reference/model-inputs.md)."""

    truncation: Truncation = "original"
    """The rule for texts that are too long (docs/reference/model-inputs.md)."""
    max_query_length: Annotated[int, Field(ge=3)] = 64
    """The most tokens of a query, special tokens included."""
    max_length: Annotated[int, Field(ge=8)] = 512
    """The most tokens of an input, special tokens included; at most the checkpoint's positions."""

    @property
    def limits(self) -> InputLimits:
        """The rule and the lengths."""
        return InputLimits(self.truncation, self.max_query_length, self.max_length)

    @model_validator(mode="after")
    def _check_room(self) -> Self:
        # `hf` does not read max_query_length.
        if self.truncation != "hf" and self.max_query_length > self.max_length - 5:
            raise ValueError(
                f"max_query_length {self.max_query_length} leaves no room for a doc in max_length "
                f"{self.max_length}"
            )
        return self


class StageConfig(Section):
    """The section of a stage; one that `deepens` also receives docs that the stage before did not
    score.
    """

    deepens: ClassVar[bool] = False
    k: Positive = 1000
    """How many candidates per query are scored, at most."""

    def check_input(self, name: str, layout: InputConfig) -> None:
        """Raises ValueError where the inputs of its model cannot be laid out so; `name` is the
        stage's.
        """


def _checked_weight(value: Any) -> Any:
    if value == "card" or (isinstance(value, int | float) and 0 <= value <= 1):
        return value
    raise ValueError("it must be a number from 0 to 1, or `card`")


class CombineConfig(Section):
    """How scores are mixed with those of the stage before."""

    source: Literal["before"] = Field("before", alias="with", exclude=True)
    """The stage whose scores are mixed in: `before` is the previous stage."""
    weight: Annotated[float | str, BeforeValidator(_checked_weight)] = 0.7
    """The weight of the stage's own scores, from 0 to 1. `card` reads `beamrank.combine_weight`
    from the checkpoint's config.json.
    """
    normalize: Normalization = "minmax"
    """How scores become comparable, over the docs of a query that the stage scores."""

    @classmethod
    def fields_of(cls, document: Mapping[str, Any]) -> Mapping[str, FieldInfo]:  # noqa: ARG003
        return {field.alias or name: field for name, field in cls.model_fields.items()}


class PointwiseConfig(StageConfig):
    """The section of a stage that scores docs one by one."""

    combine: CombineConfig | None = None
    """Ranks by its scores mixed with those of the stage before; by default by its own."""


MODEL_OPTIONS: Registry[Any] = Registry("option of a model", "beamrank.model_options", {})
"""The options of architectures of packages, each with the type of its value."""


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    options = {}
    for name, value in given.items():
        if name not in MODEL_OPTIONS:
            raise ValueError(f"{name!r} is unknown; known: {', '.join(MODEL_OPTIONS)}")
        try:
            options[name] = validated(TypeAdapter(MODEL_OPTIONS[name]), value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return options


class ModelOptions(Section):
    """A section with a checkpoint, whose keys the options of its architecture are too."""

    checkpoint: CheckpointName
    """A Hugging Face id, a folder or its URL."""
    options: Annotated[dict[str, Any], AfterValidator(_checked)] = Field(
        default_factory=dict, repr=False
    )
    """The options of the checkpoint's architecture, in one place."""

    @classmethod
    def fields_of(cls, document: Mapping[str, Any]) -> Mapping[str, FieldInfo]:
        options = (document.keys() - cls.model_fields.keys()) & {*MODEL_OPTIONS}
        return {
            **cls.model_fields,
            **{name: FieldInfo.from_annotation(MODEL_OPTIONS[name]) for name in options},
        }

    @model_validator(mode="before")
    @classmethod
    def _gather_options(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        options = cls.fields_of(values).keys() - cls.model_fields.keys()
        if not options:
            return values
        rest = {name: value for name, value in values.items() if name not in options}
        return rest | {
            "options": rest.get("options", {}) | {name: values[name] for name in options}
        }


class ModelConfig(StageConfig, ModelOptions):
    """The section of a stage with a checkpoint."""

    short = "checkpoint"

    def doc_tokens(self, input_tokens: int) -> int:
        """The most wordpieces of a doc that are scored, where its inputs together hold
        `input_tokens`.
        """
        return input_tokens


class MonoConfig(ModelConfig, PointwiseConfig):
    """monoBERT; leave it out to stop after the first stage."""

    checkpoint: CheckpointName
    """`embedded:mono`, a Hugging Face id, a folder or its URL."""
    k: Positive = 1000
    """How many candidates per query are scored (the papers' k0); at most those given."""
    segments: SegmentsConfig | None = None
    """Splits long docs; by default their beginning is scored."""
    instruction: Instruction | None = None
    """The task, for models whose prompt has one; by default the model's own. `"{instruction}"`
    takes it from each topic's column `instruction`.
    """

    def doc_tokens(self, input_tokens: int) -> int:
        return input_tokens if self.segments is None else self.segments.doc_tokens

    def check_input(self, name: str, layout: InputConfig) -> None:
        room = layout.max_length - layout.max_query_length - 2
        if self.segments is not None and self.segments.length_tokens > room:
            raise ValueError(
                f"{name}.segments.length_tokens is {self.segments.length_tokens}, but an input of "
                f"max_length {layout.max_length} holds {room} wordpieces of a doc beside the "
                "longest query: the rest of each segment would be cut off"
            )


class DuoConfig(ModelConfig):
    """duoBERT; leave it out to stop after monoBERT."""

    checkpoint: CheckpointName
    """`embedded:duo`, a Hugging Face id, a folder or its URL."""
    k: Positive = 50
    """How many candidates per query are compared (the papers' k1); at most `mono.k`."""
    aggregation: Annotated[str, OneOf(METHODS)] = "sum"
    """How the scores of a candidate's pairs become its score."""
    opponents: Positive | None = None
    """How many opponents `sample` draws for a candidate (m of equation 7)."""
    seed: int = 0
    """Decides which opponents `sample` draws."""

    def check_input(self, name: str, layout: InputConfig) -> None:  # noqa: ARG002
        if layout.truncation == "hf":
            raise ValueError(
                "truncation `hf` is defined for pairs only, and duoBERT's input has three segments"
            )
        if layout.max_length - layout.max_query_length < 6:
            raise ValueError(
                f"input.max_length {layout.max_length} leaves duoBERT's two docs no room beside a "
                f"query of max_query_length {layout.max_query_length}"
            )

    @model_validator(mode="after")
    def _check_opponents(self) -> Self:
        if (self.aggregation == "sample") != (self.opponents is not None):
            raise ValueError(
                "`opponents` is how many opponents `aggregation: sample` draws for a candidate: "
                "give both or neither"
            )
        return self


class IndexConfig(Section):
    """The Lucene index."""

    short = "path"
    path: Path = ""
    """The folder of the index, which is built from the corpus if it does not exist."""
    prebuilt: str | None = None
    """One of pyserini's indexes, such as `msmarco-v1-passage`, in place of `path`. Each machine
    downloads it once.
    """
    language: Annotated[str, OneOf(LANGUAGES)] = "en"
    """The language of the texts; it selects the analyzer. `pretokenized` takes what stands between
    white space as words.
    """
    update: bool = False
    """Whether the index is updated when the corpus has changed. Without this key, an index of
    another corpus is an error.
    """

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        if self.path == "" and self.prebuilt is None:
            raise ValueError("give `path`, or `prebuilt`")
        if self.prebuilt is not None and not is_named(self.named):
            raise ValueError("no package that is installed here has prebuilt indexes: give `path`")
        if self.prebuilt is not None and self.update:
            raise ValueError("a prebuilt index cannot be updated: give `path` to build one")
        return self

    @property
    def named(self) -> str:
        """The name of the data set that has it, with its source's name."""
        return f"prebuilt:{self.prebuilt}"


class FirstStageConfig(StageConfig):
    """The section of a first stage; a configuration holds one. Some `uses_index`, the section
    `index`.
    """

    uses_index: ClassVar[bool] = False
    k: Positive = 1000
    """How many candidates per query the stage gives, at most."""
    exclude: PathOrSelf | None = None
    """Docs that are left out before `k` is counted: `self` (the doc with the query's own id), or a
    file whose rows each have a query_id and a doc_id (docs/reference/formats.md)."""


class Bm25Config(FirstStageConfig):
    """BM25, the first stage."""

    uses_index = True

    k1: Annotated[float, Field(ge=0)] = 0.9
    """0 or more. The default is Anserini's; Lucene's is 1.2, and 0.82 is tuned for MS MARCO."""
    b: Annotated[float, Field(ge=0, le=1)] = 0.4
    """From 0 to 1. The default is Anserini's; Lucene's is 0.75, and 0.68 is tuned for MS MARCO."""
    expansion: Literal["rm3", "rocchio"] | None = None
    """Adds terms of the first ten docs to each query, as Anserini does. The index must store doc
    vectors.
    """
    template: TemplateText | None = None
    """A text of each topic for BM25 alone, made like `topics.template`."""


class CandidatesConfig(FirstStageConfig):
    """An existing run as the first stage, in place of BM25."""

    short = "run"
    run: Paths
    """A run, or an MS MARCO top1000 file, in place of `index` and `bm25`: a file, a folder, a glob,
    or several.
    """
    columns: RunColumns | None = None
    """The columns or fields of the run that have other names than usual."""
    format: Annotated[str, OneOf(RUN_FORMATS, TABLES)] = TABLES[0]
    """The format of the run; `auto` recognizes it."""
    quotes: bool = False
    """Whether a TSV has quotes, as a CSV has."""
    ties: Ties = "rank"
    """The order of tied scores: by `rank`, or by `doc_id`, descending, as in trec_eval."""
