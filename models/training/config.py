"""The configuration of a training: every option, validated before anything starts
(docs/guide/training.md).

A recipe is a table of hyperparameters of a paper or its code, in recipes.yaml.
"""

import copy
import difflib
from collections.abc import Sequence
from importlib.resources import files
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, field_validator, model_validator

from beamrank.config.stages import InputConfig
from beamrank.config.yaml import anchor_paths, check_document, folder_of, read_document
from beamrank.errors import ConfigError
from beamrank.formats.corpora import CorpusConfig
from beamrank.formats.qrels import QrelsConfig
from beamrank.formats.topics import TopicsConfig
from beamrank.section import CheckpointName, Path, Positive, Section
from beamrank.storage import files as storage
from beamrank.storage.documents import hash64
from beamrank.storage.urls import refuse_credentials
from models.architectures.families import ARCHITECTURES

Kind = Literal["mono", "duo", "tcp"]
Share = Annotated[float, Field(ge=0, lt=1)]
Above0 = Annotated[float, Field(gt=0)]

OBJECTIVES: dict[str, tuple[str, ...]] = {
    "mono": ("pointwise", "bertlets", "bert_ce", "margin_mse", "listwise_kl"),
    "duo": ("pairwise", "margin_mse", "pairwise_kl"),
    "tcp": ("masked_words", "next_sentence"),
}
_LEAST_QUERY_TOKENS = 3
# A model that its own fold chose among several would be flattered: the fold is measured once, after
# the last step.
_ONCE = "dev.every_steps=1000000000"
# The architecture of a package whose reader has the model that `chunks` trains.
CHUNKED = "chunked_bert"
TAUGHT = frozenset({"margin_mse", "listwise_kl", "pairwise_kl"})

RECIPES: dict[str, dict[str, Any]] = yaml.safe_load(
    files(__package__).joinpath("recipes.yaml").read_bytes()
)
_DEFAULTS = RECIPES.pop("defaults")
_ALTERNATIVES = (("steps", "epochs"), ("warmup_steps", "warmup_share"))


class DataConfig(Section):
    """Training data: `triples`, or `corpus`, `topics`, `qrels` and a `run` with negatives; for tcp,
    only `corpus`.
    """

    triples: Path | None = None
    """A file, a folder or a glob with triples, in place of `data.qrels` and `data.run`. Triples of
    ids need `data.corpus` and `data.topics`; triples of texts need neither.
    """
    corpus: CorpusConfig | None = None
    topics: TopicsConfig | None = None
    qrels: QrelsConfig | None = None
    """The positives."""
    run: Path | None = None
    """A TREC or MS MARCO run of the topics. Its docs that are not positives are the negatives."""
    teacher: Path | None = None
    """A TREC run with a teacher's scores of the docs, for the objectives that distil."""
    min_relevance: Positive = 1
    """Judged docs with at least this relevance are positives."""
    max_bad_rows: Annotated[int, Field(ge=0)] = 100
    """How many broken rows of the corpus, how many triples with an id that has no text, and how
    many broken rows among 1,000 of triples may be skipped. More are an error."""

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if self.triples is None:
            return self
        if any(value is not None for value in (self.qrels, self.run, self.teacher)):
            raise ValueError("give either `triples`, or qrels, run and teacher, not both")
        if (self.corpus is None) != (self.topics is None):
            raise ValueError(
                "triples of ids need both `corpus` and `topics`, and triples of texts neither"
            )
        if self.topics is not None and self.topics.only_judged:
            raise ValueError("`topics.only_judged` needs qrels, and triples have none: remove it")
        return self


class SamplingConfig(Section):
    """How groups are drawn from the candidates of a run."""

    mode: Literal["balanced", "triplets", "natural"] = "balanced"
    """How groups are made. `balanced` takes each positive once per epoch, with `sampling.negatives`
    other candidates, drawn again each time. `triplets` takes each of a topic's m positives with n/m
    of its n negatives, always the same, at most `sampling.negatives` of them. `natural` takes each
    candidate by itself, relevant or not (`pointwise` only).
    """
    negatives: Positive | None = None
    """How many negatives `sampling.mode` takes; by default 1, with `triplets` all. If a topic has
    fewer in the run, a group holds them several times.
    """
    ranks: tuple[Positive, Positive] = (1, 1000)
    """The first and the last rank of the run that candidates are drawn from."""

    @property
    def drawn(self) -> int:
        """How many negatives are drawn for a group, again each time."""
        return (self.negatives or 1) if self.mode == "balanced" else 0

    @model_validator(mode="after")
    def _check_ranks(self) -> Self:
        if self.ranks[0] > self.ranks[1]:
            raise ValueError(f"ranks {list(self.ranks)} end before they begin: write [first, last]")
        return self


class OptimizerConfig(Section):
    """How the weights are updated."""

    learning_rate: Annotated[float, Field(gt=0, le=1)] = 3e-6
    """The learning rate after the warm-up, from which it decays."""
    warmup_steps: Annotated[int, Field(ge=0)] | None = None
    """How many steps the warm-up has; give this key or `optimizer.warmup_share`. By default there
    is no warm-up.
    """
    warmup_share: Share | None = None
    """The share of all steps that the warm-up has."""
    steps: Positive | None = None
    """How many steps the training has; give this key or `optimizer.epochs`. A training reads only
    as many triples as its steps need. Packed passages need steps.
    """
    epochs: Above0 | None = None
    """How often the training passes over the positives."""
    batch_size: Positive = 32
    """How many inputs of the model a step has, over all processes."""
    accumulation: Positive = 1
    """Into how many micro-batches a process divides its part of a step."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """The decay of the weights, except biases and LayerNorm."""
    clip_norm: Above0 = 1.0
    """The largest norm of the gradient."""
    dropout: Share = 0.1
    """The dropout in every layer."""
    train_word_embeddings: bool = True
    """Whether word embeddings are trained."""
    gradient_checkpointing: bool = False
    """Whether activations are computed twice, so that fewer are stored."""

    @model_validator(mode="after")
    def _check_length(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give either `steps` or `epochs`: the length of the training")
        if self.warmup_steps is not None and self.warmup_share is not None:
            raise ValueError("give `warmup_steps` or `warmup_share` (of all steps), not both")
        return self


class DevConfig(Section):
    """A run that the model re-ranks every `every_steps`; the best model is kept."""

    topics: TopicsConfig
    qrels: QrelsConfig
    """Its judgments."""
    run: Path
    """The run that is re-ranked."""
    corpus: CorpusConfig | None = None
    """Its docs; default: `data.corpus`."""
    k: Positive | None = None
    """How many candidates are re-ranked; by default 100, for duo 10."""
    max_topics: Positive | None = None
    """How many judged topics of the run are measured, in the order of `dev.topics`; by default all.
    """
    measure: str = "RR@10"
    """The measure over the judged topics, by its name in ir_measures or trec_eval; a measure that
    counts docs or judgments is refused.
    """
    every_steps: Positive = 1000
    """How many steps lie between measurements; one more follows at the end."""


class FoldsConfig(Section):
    """Cross-validation: a hash of the ids assigns topics to folds."""

    count: Annotated[int, Field(ge=2)] = 5
    """The number of folds."""
    held_out: Annotated[int, Field(ge=0)]
    """The fold, from 0, whose topics are the dev set; the training does not see them."""

    @model_validator(mode="after")
    def _check_fold(self) -> Self:
        if self.held_out >= self.count:
            raise ValueError(
                f"held_out {self.held_out} is not one of the folds 0 to {self.count - 1}"
            )
        return self

    def holds_out(self, query_id: str) -> bool:
        """Whether a topic is in the held-out fold, which depends only on its id."""
        return hash64(query_id) % self.count == self.held_out


class CardConfig(Section):
    """For the model card."""

    licence: str | None = None
    """The licence of the model, an SPDX name."""
    language: str | None = None
    """The language of the texts, a code such as `en`."""
    data: tuple[str, ...] = ()
    """A line for each data set, with its licence."""


class ChunksConfig(Section):
    """Mono: each passage is split into even chunks, and their [CLS] vectors are combined (Mass et
    al. 2019).
    """

    count: Annotated[int, Field(ge=2, le=512)]
    """How many chunks a passage has; without `chunks` a passage is one input."""
    pooling: Literal["attention", "max"] = "attention"
    """How the vectors of the chunks become one."""
    attention_size: Annotated[int, Field(ge=1, le=1 << 24)] = 192
    """The size of the attention over the chunks, 192 in the paper; `max` has none."""

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if self.pooling == "max" and "attention_size" in self.model_fields_set:
            raise ValueError(
                "`attention_size` belongs to `pooling: attention`: remove it for `max`"
            )
        return self

    @model_validator(mode="after")
    def _check_package(self) -> Self:
        if CHUNKED not in ARCHITECTURES:
            raise ValueError("no package that is installed here reads passages in chunks")
        return self

    @property
    def attention(self) -> int:
        """The size of the attention; 0 for `max`."""
        return self.attention_size if self.pooling == "attention" else 0


class TrainConfig(Section):
    """Everything that a training needs to know."""

    recipe: str | None = None
    """A recipe of the table above."""
    start: CheckpointName
    """The initial model: a Hugging Face id, a folder or its URL. A head with as many logits as
    `labels` is kept; otherwise it is new. Do not start from `embedded:mono`: a training
    destroys its constructed weights.
    """
    random_weights: bool = False
    """Whether only config.json and the tokenizer of `start` are read, and weights are drawn as in
    BERT's pre-training.
    """
    data: DataConfig
    objective: dict[str, Above0] = Field(default_factory=dict)
    """A name, or names with weights; by default the recipe's, or else `pointwise`, for duo
    `pairwise`, for tcp `masked_words`.
    """
    temperature: Above0 = 1.0
    """The factor of the teacher's scores."""
    margin: Above0 = 0.2
    """The margin of `bertlets`."""
    sampling: SamplingConfig = SamplingConfig()
    optimizer: OptimizerConfig
    input: InputConfig = InputConfig()
    chunks: ChunksConfig | None = None
    dev: DevConfig | None = None
    folds: FoldsConfig | None = None
    pack: bool = True
    """Whether an input of tcp has as many passages as fit. With `false` each passage is an input of
    its own.
    """
    labels: Literal[1, 2] | None = None
    """How many logits the head has; by default as many as the trained head of `start`, or else 2.
    If `labels` differs from the head of `start`, a new head is initialized.
    """
    weights: Literal["float32", "float16"] = "float32"
    """The number format in which weights are written; `float16` needs half the space."""
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 0
    """Determines the new head, the order, the negatives and the dropout."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model is trained."""
    dtype: Literal["auto", "float32", "bfloat16"] = "float32"
    """The number format of the computation. With `bfloat16` (autocast) weights and loss stay
    float32. `auto` is bfloat16 on a GPU, and on a CPU that is fast at it.
    """
    threads: Positive | None = None
    """How many threads a process has; by default as many as torch chooses."""
    save_minutes: Above0 = 10.0
    """How many minutes lie between two states."""
    report_to: tuple[str, ...] = ()
    """Trackers that receive each step's loss, gradient norm and learning rate, and the dev measure.
    They have transformers' names, such as `tensorboard`, `wandb` or `mlflow`, and their packages
    must be installed.
    """
    card: CardConfig = CardConfig()
    output: Path
    """A local folder."""

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
        taught, data, dev = TAUGHT & self.objective.keys(), self.data, self.dev
        if not self.objective:
            raise ValueError("objective is empty")
        if taught and data.teacher is None:
            raise ValueError(
                f"objective {min(taught)} needs a teacher's scores: give `data.teacher`, a TREC run"
            )
        if data.teacher is not None and not taught:
            raise ValueError(
                "`data.teacher` is given, and no objective uses it: remove it, or add one that does"
            )
        if data.triples is not None and self.sampling != SamplingConfig():
            raise ValueError(
                "`sampling` draws from a run's candidates, and triples are already sampled: "
                "remove it"
            )
        if self.sampling.mode == "natural" and self.objective.keys() != {"pointwise"}:
            raise ValueError(
                "sampling.mode natural takes each candidate by itself, so the objective must be "
                "pointwise"
            )
        if self.folds is not None and (
            dev is None or data.topics is None or data.triples is not None
        ):
            raise ValueError(
                "`folds` splits topics between training and dev run: give both, and no "
                "`data.triples`"
            )
        if dev is not None and dev.corpus is None and data.corpus is None:
            raise ValueError(
                "`dev` has no corpus: give `dev.corpus`, because triples of texts need no "
                "`data.corpus`"
            )
        return self


def load_train_config(
    path: str, kind: Kind, overrides: Sequence[str] = (), output: str | None = None
) -> TrainConfig:
    """Reads a YAML configuration over the recipe that it names; relative paths in it are relative
    to its folder.

    `output`, relative to the current folder, replaces the key of the configuration.
    """
    refuse_credentials(output or "", "--output")
    document = with_recipe(read_document(path, TrainConfig, overrides), kind)
    if kind == "tcp" and isinstance(document.get("input", {}), dict):
        # There are no queries, so their limit leaves no room to anything.
        document["input"] = {**document.get("input", {}), "max_query_length": _LEAST_QUERY_TOKENS}
    anchor_paths(document, TrainConfig, folder_of(path))
    if output is not None:
        document["output"] = storage.absolute(output)
    config = check_document(document, TrainConfig, path)
    _check_kind(config, kind, path)
    return config


def fold_configs(
    path: str, kind: Kind, overrides: Sequence[str], output: str | None, count: int
) -> list[TrainConfig]:
    """The configuration of each fold's training, which writes to fold-N in the configured
    output.
    """
    keys = (f"folds.count={count}", "folds.held_out=0", _ONCE)
    first = load_train_config(path, kind, [*overrides, *keys], output)
    return [
        first.model_copy(
            update={
                "folds": FoldsConfig(count=count, held_out=number),
                "output": storage.join(first.output, f"fold-{number}"),
            }
        )
        for number in range(count)
    ]


def _check_kind(config: TrainConfig, kind: Kind, path: str) -> None:
    data, tcp = config.data, kind == "tcp"
    needed = ("corpus",) if tcp else ("corpus", "topics", "qrels", "run")
    missing = [name for name in needed if getattr(data, name) is None]
    if missing and (tcp or data.triples is None):
        choice = (
            f"{'' if tcp else '`triples`, or '}{', '.join(needed)} ({', '.join(missing)} missing)"
        )
        raise ConfigError(f"{path}: data: there is nothing to train on: give {choice}")
    if tcp and any(value is not None for value in (config.dev, data.topics, data.qrels, data.run)):
        raise ConfigError(
            f"{path}: tcp reads only a corpus: remove `dev` and, under `data`, everything but "
            "`corpus`"
        )
    unknown = [name for name in config.objective if name not in OBJECTIVES[kind]]
    if unknown:
        listed = ", ".join(OBJECTIVES[kind])
        raise ConfigError(
            f"{path}: objective: {unknown[0]!r} is not an objective of {kind}: {listed}"
        )
    if kind != "mono" and config.chunks is not None:
        raise ConfigError(f"{path}: chunks: only mono reads a passage in chunks: remove them")
    if not tcp and "pack" in config.model_fields_set:
        raise ConfigError(f"{path}: pack: only tcp packs passages: remove it")
    if kind == "duo" and config.input.truncation == "hf":
        raise ConfigError(
            f"{path}: truncation `hf` is defined for pairs only, and duoBERT's input has three "
            "segments"
        )
    if storage.is_remote(config.output):
        raise ConfigError(
            f"{path}: output: a training writes to a local folder; copy it afterwards"
        )


def with_recipe(document: dict[str, Any], kind: str) -> dict[str, Any]:
    """A configuration's document over the defaults of its recipe, for a kind: `mono`, `duo` or
    `tcp`.
    """
    name = document.get("recipe")
    if name is not None and (not isinstance(name, str) or name not in RECIPES):
        close = difflib.get_close_matches(str(name), RECIPES, n=1)
        hint = f": did you mean {close[0]}?" if close else f" (there are {', '.join(RECIPES)})"
        raise ConfigError(f"recipe: unknown recipe {name!r}{hint}")
    if name is not None and (name == "tcp") != (kind == "tcp"):
        raise ConfigError(
            f"recipe: {name} is not for {kind}: `beamrank train tcp` takes only `tcp`, and mono "
            "and duo the others"
        )
    recipe = _of_kind(copy.deepcopy(RECIPES.get(str(name), _DEFAULTS)), kind)
    if isinstance(document.get("data"), dict) and "triples" in document["data"]:
        recipe.pop("sampling", None)
    if document.get("dev") is None:
        recipe.pop("dev", None)
    optimizer = document.get("optimizer")
    for one, other in _ALTERNATIVES:
        if isinstance(optimizer, dict) and (one in optimizer or other in optimizer):
            recipe.get("optimizer", {}).pop(one, None)
            recipe.get("optimizer", {}).pop(other, None)
    return _merged(recipe, document)


def _of_kind(value: Any, kind: str) -> Any:
    """Chooses the values for mono, duo or tcp."""
    if not isinstance(value, dict):
        return value
    if "mono" in value:
        return value[kind]
    return {key: _of_kind(choice, kind) for key, choice in value.items()}


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        mergeable = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if mergeable else value
    return merged
