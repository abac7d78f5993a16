"""The configuration of a run: one model of every option, checked whole before anything starts."""

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from beamrank.config.yaml import check_document, explain, read_document
from beamrank.errors import PreflightError
from beamrank.evaluation.measures import split_measures
from beamrank.formats.config import CorpusConfig, Place, TopicsConfig
from beamrank.formats.ids import is_usable
from beamrank.formats.runs import Ties
from beamrank.ranking.input_layout import Truncation
from beamrank.ranking.segments import SegmentPooling
from beamrank.section import Section
from beamrank.storage import files as storage
from beamrank.storage.url_credentials import refuse_credentials

Aggregation = Literal["sum", "binary", "min", "max", "sample", "sym_sum", "log_sum", "sym_log_sum"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]


class RunTopicsConfig(TopicsConfig):
    """The topics of a run; `limit` keeps the first so many in the plan's order, for a trial."""

    limit: Positive | None = None


class IndexConfig(Section):
    """A Lucene index folder; built from the corpus when it is not there."""

    path: Place


class Bm25Config(Section):
    """BM25; `k` candidates are retrieved for a query (the defaults of k1 and b are Anserini's)."""

    k1: float = 0.9
    b: float = 0.4
    k: Positive = 1000

    @field_validator("k1")
    @classmethod
    def _check_k1(cls, k1: float) -> float:
        if not k1 >= 0:
            raise ValueError(f"must be 0 or more, not {k1:g}; usual values are 0.9, 1.2, and 0.82 for MS MARCO")
        return k1

    @field_validator("b")
    @classmethod
    def _check_b(cls, b: float) -> float:
        if not 0 <= b <= 1:
            raise ValueError(f"must be between 0 and 1, not {b:g}; usual values are 0.4, 0.75, and 0.68 for MS MARCO")
        return b


class CandidatesConfig(Section):
    """A TREC or MS MARCO run that takes the place of BM25, cut to its best `k` a query.

    `ties` is the order of a TREC run's tied scores: by its rank column, or by doc_id, descending, as trec_eval has it.
    """

    run: Place
    k: Positive = 1000
    ties: Ties = "rank"


class SegmentsConfig(Section):
    """A long doc in windows that monoBERT scores one by one; the doc's score is `pooling` of theirs.

    A window of `length_tokens` wordpieces begins every `stride_tokens`; by default one where the other ends. At most
    `limit` of a doc are read; `first` reads one.
    """

    length_tokens: Positive
    stride_tokens: Positive | None = None
    pooling: SegmentPooling = "max"
    limit: Annotated[int, Field(ge=1, le=1000)] = 16

    @model_validator(mode="after")
    def _check_stride(self) -> Self:
        if self.stride > self.length_tokens:
            raise ValueError(
                f"stride_tokens {self.stride} is more than length_tokens {self.length_tokens}: what is between two "
                "segments would not be read"
            )
        return self

    @property
    def stride(self) -> int:
        """Wordpieces from the beginning of a segment to that of the next."""
        return self.stride_tokens or self.length_tokens

    @property
    def most(self) -> int:
        """How many segments of a doc are scored at most."""
        return 1 if self.pooling == "first" else self.limit

    @property
    def doc_tokens(self) -> int:
        """How many wordpieces of a doc they cover at most."""
        return self.length_tokens + (self.most - 1) * self.stride


class MonoConfig(Section):
    """monoBERT over the first `k` candidates (the papers' k0); by default 1000, or all where there are fewer."""

    checkpoint: str
    k: Positive = 1000
    segments: SegmentsConfig | None = None

    @property
    def pooling(self) -> SegmentPooling:
        """How a doc's segments make its score; whatever it is where docs are whole."""
        return "max" if self.segments is None else self.segments.pooling


class DuoConfig(Section):
    """duoBERT over the first `k` candidates of monoBERT (the papers' k1); by default 50, or all where there are fewer.

    `opponents` is the m of SAMPLE (section 3.3, equation 7) and `seed` decides which are drawn.
    """

    checkpoint: str
    k: Positive = 50
    aggregation: Aggregation = "sum"
    opponents: Positive | None = None
    seed: int = 0

    @model_validator(mode="after")
    def _check_opponents(self) -> Self:
        if (self.aggregation == "sample") != (self.opponents is not None):
            raise ValueError(
                "`opponents` is how many opponents `aggregation: sample` draws for a candidate: give both or neither"
            )
        return self


class InputConfig(Section):
    """A model input's layout (docs/reference/model-inputs.md). Lengths are in tokens, special tokens included."""

    truncation: Truncation = "original"
    max_query_length: Annotated[int, Field(ge=3)] = 64
    max_length: Annotated[int, Field(ge=8, le=512)] = 512

    @model_validator(mode="after")
    def _check_room(self) -> Self:
        if self.max_query_length > self.max_length - 5:
            raise ValueError(
                f"max_query_length {self.max_query_length} leaves no room for a doc in max_length {self.max_length}"
            )
        return self


class RunConfig(Section):
    """Everything that a run needs to know. See docs/reference/configuration.md."""

    run_tag: Annotated[str, Field(pattern=r"^\S+$")] = "beamrank"
    corpus: CorpusConfig
    topics: RunTopicsConfig
    qrels: Place | None = None
    index: IndexConfig | None = None
    bm25: Bm25Config | None = None
    candidates: CandidatesConfig | None = None
    mono: MonoConfig | None = None
    duo: DuoConfig | None = None
    input: InputConfig = InputConfig()
    measures: tuple[str, ...] = ("RR@10", "nDCG@10", "AP", "R@1000")
    output: Place
    run_formats: Annotated[tuple[Literal["trec", "msmarco"], ...], Field(min_length=1)] = ("trec",)
    shards: Positive | None = None
    threads: Positive | None = None
    dtype: Dtype = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    on_missing_doc: Literal["error", "drop"] = "error"
    max_bad_rows: Annotated[int, Field(ge=0)] = 100
    stall_minutes: Annotated[float, Field(gt=0)] = 30.0

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
        """A depth that is left out is never more than what the stage before it gives."""
        if not isinstance(values, dict):
            return values
        depth = _depth(values.get("candidates") or values.get("bm25"), 1000)
        for name, default in (
            ("mono", MonoConfig.model_fields["k"].default),
            ("duo", DuoConfig.model_fields["k"].default),
        ):
            section = values.get(name)
            if isinstance(section, dict):
                section.setdefault("k", min(default, depth))
                depth = _depth(section, depth)
        return values

    @model_validator(mode="after")
    def _check_judged(self) -> Self:
        if self.topics.only_judged and self.qrels is None:
            raise ValueError("topics.only_judged keeps the topics of the qrels: give `qrels` too")
        return self

    @model_validator(mode="after")
    def _check_first_stage(self) -> Self:
        if self.candidates is not None and (self.bm25 is not None or self.index is not None):
            raise ValueError("`candidates` stands instead of `index` and `bm25`: leave out one or the other")
        if self.candidates is None and self.index is None:
            raise ValueError("the first stage is missing: give `index` and `bm25`, or `candidates: {run: ...}`")
        return self

    @model_validator(mode="after")
    def _check_depths(self) -> Self:
        first = self.first_stage_k
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
                f"mono.segments.length_tokens is {self.mono.segments.length_tokens}, and an input of max_length "
                f"{self.input.max_length} holds {room} wordpieces of a doc beside the longest query: what is over "
                "would be cut off each segment"
            )
        return self

    @property
    def first_stage_k(self) -> int:
        """How many candidates a query has at most after the first stage."""
        return self.candidates.k if self.candidates is not None else (self.bm25 or Bm25Config()).k

    @property
    def first_stage_bm25(self) -> Bm25Config:
        """The parameters of BM25, the defaults where the configuration gives none."""
        return self.bm25 or Bm25Config()


def _depth(section: Any, default: int) -> int:
    """The `k` of a section as it is written; whether it is one is checked later."""
    k = section.get("k", default) if isinstance(section, dict) else default
    return k if isinstance(k, int) else default


def load_config(source: str | Mapping[str, Any], overrides: Sequence[str] = (), output: str | None = None) -> RunConfig:
    """Reads a YAML configuration.

    Args:
        source: the file, to whose folder relative paths inside it are relative; or what it would hold, with paths
            relative to the current folder.
        overrides: `section.key=value` strings; the value is YAML.
        output: replaces `output`, relative to the current folder.

    Raises:
        PreflightError: the file cannot be read.
        ConfigError: the file is not a YAML mapping, a key or a value is wrong, or a text can carry a credential.
    """
    refuse_credentials(output or "", "--output")
    document = read_document(source, overrides)
    _anchor_paths(document, storage.parent(source) if isinstance(source, str) else storage.absolute("."))
    if output is not None:
        document["output"] = storage.absolute(output)
    return check_document(document, RunConfig, source if isinstance(source, str) else "config")


def stored_config(values: Mapping[str, Any], where: str) -> RunConfig:
    """The configuration that a plan holds.

    Raises:
        PreflightError: it is another version's.
    """
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise PreflightError(
            f"the plan in {where} is another version's: {explain(error, RunConfig)}. Run again first"
        ) from error


def _anchor_paths(document: dict[str, Any], folder: str) -> None:
    """Makes relative paths relative to the configuration file, not to wherever the command runs."""
    for section, key in [
        (document, "qrels"),
        (document, "output"),
        *[(document.get(name), "path") for name in ("corpus", "topics", "index")],
        (document.get("candidates"), "run"),
    ]:
        if isinstance(section, dict) and isinstance(section.get(key), str) and section[key]:
            section[key] = storage.join_relative(folder, section[key])
    for name in ("mono", "duo"):
        section = document.get(name)
        if isinstance(section, dict) and isinstance(section.get("checkpoint"), str):
            section["checkpoint"] = anchor_checkpoint(folder, section["checkpoint"])


def anchor_checkpoint(folder: str, reference: str) -> str:
    """A checkpoint's folder relative to the configuration file; a Hugging Face id or an embedded one as it is."""
    path = storage.join_relative(folder, reference)
    return path if reference.startswith((".", "~")) or os.path.isdir(path) else reference
