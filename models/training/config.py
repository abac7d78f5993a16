"""The configuration of a training: every option, validated before anything starts (docs/guide/training.md)."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from beamrank.config.models import InputConfig
from beamrank.config.run import anchor_checkpoint
from beamrank.config.yaml import check_document, read_document
from beamrank.digests import hash64
from beamrank.errors import ConfigError
from beamrank.formats.corpora import CorpusConfig
from beamrank.formats.topics import TopicsConfig
from beamrank.section import Positive, Section
from beamrank.storage import files as storage
from beamrank.storage.url_credentials import refuse_credentials
from models.training.recipes import with_recipe

Kind = Literal["mono", "duo", "tcp"]
Share = Annotated[float, Field(ge=0, lt=1)]
Above0 = Annotated[float, Field(gt=0)]

OBJECTIVES: dict[str, tuple[str, ...]] = {
    "mono": ("pointwise", "bertlets", "bert_ce", "margin_mse", "listwise_kl"),
    "duo": ("pairwise", "margin_mse", "pairwise_kl"),
    "tcp": ("masked_words",),
}
TAUGHT = frozenset({"margin_mse", "listwise_kl", "pairwise_kl"})


class DataConfig(Section):
    """Training data: `triples`, or `corpus`, `topics`, `qrels` and a `run` with negatives; for tcp, only `corpus`.

    Attributes:
        min_relevance: the least relevance of a positive.
        teacher: a TREC run with a teacher's scores of the docs, for the objectives that distil.
    """

    triples: str | None = None
    corpus: CorpusConfig | None = None
    topics: TopicsConfig | None = None
    qrels: str | None = None
    run: str | None = None
    teacher: str | None = None
    min_relevance: Positive = 1
    max_bad_rows: Annotated[int, Field(ge=0)] = 100

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        others = (self.corpus, self.topics, self.qrels, self.run, self.teacher)
        if self.triples is not None and any(each is not None for each in others):
            raise ValueError("give either `triples`, or corpus, topics, qrels, run and teacher, not both")
        return self


class SamplingConfig(Section):
    """How groups are drawn from the candidates of a run.

    Attributes:
        mode: `balanced`: each positive once per epoch, with `negatives` other candidates, drawn again each time.
            `triplets`: each of a topic's m positives with n/m of its n negatives, always the same, at most `negatives`
            of them. `natural`: each candidate by itself, relevant or not (pointwise only).
        negatives: see `mode`; by default 1, in `triplets` all.
        ranks: the first and the last rank of the run that candidates are drawn from.
    """

    mode: Literal["balanced", "triplets", "natural"] = "balanced"
    negatives: Positive | None = None
    ranks: tuple[Positive, Positive] = (1, 1000)

    @model_validator(mode="after")
    def _check_ranks(self) -> Self:
        if self.ranks[0] > self.ranks[1]:
            raise ValueError(f"ranks {list(self.ranks)} end before they begin: write [first, last]")
        return self


class OptimizerConfig(Section):
    """How the weights are updated. `batch_size` counts inputs of the model in a step, over all processes."""

    learning_rate: Above0 = 3e-6
    warmup_steps: Annotated[int, Field(ge=0)] | None = None
    warmup_share: Share | None = None
    steps: Positive | None = None
    epochs: Above0 | None = None
    batch_size: Positive = 32
    accumulation: Positive = 1
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    clip_norm: Above0 = 1.0
    dropout: Share = 0.1
    train_word_embeddings: bool = True
    gradient_checkpointing: bool = False

    @model_validator(mode="after")
    def _check_length(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give either `steps` or `epochs`: the length of the training")
        if self.warmup_steps is not None and self.warmup_share is not None:
            raise ValueError("give `warmup_steps` or `warmup_share` (of all steps), not both")
        return self


class DevConfig(Section):
    """A run that the model re-ranks every `every_steps`; the best model is kept.

    Attributes:
        add_relevant: puts a relevant doc at rank k if none is among the first k, as in Mass et al. 2019.
    """

    topics: TopicsConfig
    qrels: str
    run: str
    corpus: CorpusConfig | None = None
    k: Positive | None = None
    add_relevant: bool = False
    measure: str = "RR@10"
    every_steps: Positive = 1000


class FoldsConfig(Section):
    """Cross-validation: the topics of fold `held_out` (from 0) are the dev run's, and are not trained on."""

    count: Annotated[int, Field(ge=2)] = 5
    held_out: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def _check_fold(self) -> Self:
        if self.held_out >= self.count:
            raise ValueError(f"held_out {self.held_out} is not one of the folds 0 to {self.count - 1}")
        return self

    def holds_out(self, query_id: str) -> bool:
        """Whether a topic is in the held-out fold, which depends only on its id."""
        return hash64(query_id) % self.count == self.held_out


class CardConfig(Section):
    """Licences in the model card: that of the model (an SPDX name), and a line per data set."""

    licence: str | None = None
    language: str | None = None
    data: tuple[str, ...] = ()


class ChunksConfig(Section):
    """Each passage is split into `count` even chunks, and their [CLS] vectors are combined (Mass et al. 2019).

    Attributes:
        attention_size: the size of the attention over the chunks, 192 in the paper; `max` has none.
    """

    count: Annotated[int, Field(ge=2)]
    pooling: Literal["attention", "max"] = "attention"
    attention_size: Positive = 192

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if self.pooling == "max" and "attention_size" in self.model_fields_set:
            raise ValueError("`attention_size` belongs to `pooling: attention`: remove it for `max`")
        return self


class TrainConfig(Section):
    """Everything that a training needs to know. See docs/guide/training.md."""

    recipe: str | None = None
    start: str
    data: DataConfig
    objective: dict[str, Above0]
    temperature: Above0 = 1.0
    margin: Above0 = 0.2
    sampling: SamplingConfig = SamplingConfig()
    optimizer: OptimizerConfig
    input: InputConfig = InputConfig()
    chunks: ChunksConfig | None = None
    dev: DevConfig | None = None
    folds: FoldsConfig | None = None
    labels: Literal[1, 2] = 2
    weights: Literal["float32", "float16"] = "float32"
    seed: Annotated[int, Field(ge=0)] = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "float32"
    threads: Positive | None = None
    save_minutes: Above0 = 10.0
    card: CardConfig = CardConfig()
    output: str

    @property
    def inputs_per_passage(self) -> int:
        """The number of inputs that a passage is split into."""
        return 1 if self.chunks is None else self.chunks.count

    @field_validator("objective", mode="before")
    @classmethod
    def _name_objective(cls, value: Any) -> Any:
        return {value: 1.0} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        taught = TAUGHT & self.objective.keys()
        if not self.objective:
            raise ValueError("objective is empty")
        if taught and self.data.teacher is None:
            raise ValueError(f"objective {min(taught)} needs a teacher's scores: give `data.teacher`, a TREC run")
        if self.data.teacher is not None and not taught:
            raise ValueError(
                "`data.teacher` is given, and no objective uses it: remove it, or add an objective that does"
            )
        if self.data.triples is not None and self.sampling != SamplingConfig():
            raise ValueError("`sampling` draws from a run's candidates, and triples are already sampled: remove it")
        if self.sampling.mode == "natural" and self.objective.keys() != {"pointwise"}:
            raise ValueError("sampling.mode natural takes each candidate by itself, so the objective must be pointwise")
        if self.folds is not None and (self.dev is None or self.data.topics is None):
            raise ValueError("`folds` splits topics between training and dev run: give `data.topics` and `dev`")
        if self.dev is not None and self.dev.corpus is None and self.data.corpus is None:
            raise ValueError("`dev` has no corpus: triples hold texts without ids, so give `dev.corpus`")
        return self


def load_train_config(path: str, kind: Kind, overrides: Sequence[str] = (), output: str | None = None) -> TrainConfig:
    """Reads a YAML configuration over the recipe that it names.

    Args:
        path: the file; relative paths in it are relative to its folder.
        kind: the model to train.
        overrides: `section.key=value` strings; the value is YAML.
        output: replaces `output`, relative to the current folder.

    Raises:
        PreflightError: the file cannot be read.
        ConfigError: the file is not a YAML mapping, a key or value is wrong, or a URL can carry a credential.
    """
    refuse_credentials(output or "", "--output")
    document = with_recipe(read_document(path, overrides), kind)
    _anchor_paths(document, storage.parent(path))
    if output is not None:
        document["output"] = storage.absolute(output)
    config = check_document(document, TrainConfig, path)
    _check_kind(config, kind, path)
    return config


def _check_kind(config: TrainConfig, kind: Kind, path: str) -> None:
    needed = ("corpus",) if kind == "tcp" else ("corpus", "topics", "qrels", "run")
    missing = [name for name in needed if getattr(config.data, name) is None]
    if missing and (kind == "tcp" or config.data.triples is None):
        choice = "" if kind == "tcp" else "`triples`, or "
        listed = f"{', '.join(needed)} ({', '.join(missing)} missing)"
        raise ConfigError(f"{path}: data: there is nothing to train on: give {choice}{listed}")
    also = (config.dev, config.data.topics, config.data.qrels, config.data.run)
    if kind == "tcp" and any(each is not None for each in also):
        raise ConfigError(f"{path}: tcp reads only a corpus: remove `dev` and, under `data`, everything but `corpus`")
    unknown = [name for name in config.objective if name not in OBJECTIVES[kind]]
    if unknown:
        raise ConfigError(
            f"{path}: objective: {unknown[0]!r} is not an objective of {kind}: {', '.join(OBJECTIVES[kind])}"
        )
    if kind != "mono" and config.chunks is not None:
        raise ConfigError(f"{path}: chunks: only mono reads a passage in chunks: remove them")
    if kind == "duo" and config.input.truncation == "hf":
        raise ConfigError(f"{path}: truncation `hf` is defined for pairs only, and duoBERT's input has three segments")
    if storage.is_remote(config.output):
        raise ConfigError(f"{path}: output: a training writes to a local folder; copy it afterwards")


def _anchor_paths(document: dict[str, Any], folder: str) -> None:
    """Makes relative paths relative to the configuration file."""
    data, dev = document.get("data"), document.get("dev")
    places: list[tuple[Any, str]] = [(document, "output")]
    places += [(data, name) for name in ("triples", "qrels", "run", "teacher")]
    places += [(dev, name) for name in ("qrels", "run")]
    for section in (data, dev):
        if isinstance(section, Mapping):
            places += [(section.get(name), "path") for name in ("corpus", "topics")]
    for section, key in places:
        if isinstance(section, dict) and isinstance(section.get(key), str):
            section[key] = storage.join_relative(folder, section[key])
    if isinstance(document.get("start"), str):
        document["start"] = anchor_checkpoint(folder, document["start"])
