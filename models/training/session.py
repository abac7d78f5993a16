"""Everything that a training needs, read and checked before the first step."""

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from beamrank.errors import ConfigError, PreflightError
from beamrank.evaluation.measures import parse_measures
from beamrank.formats.notes import first_few
from beamrank.machine import usable_threads
from beamrank.progress import Progress
from beamrank.ranking.input_layout import InputLimits, max_doc_tokens
from beamrank.storage import files as storage
from beamrank.storage.documents import hashes64
from models.scoring.backends.torch import resolve_dtype
from models.training.card import card_path, write_card
from models.training.config import Kind, TrainConfig
from models.training.data.groups import InputEncoder, Position, Source
from models.training.data.pretraining import CorpusSource, Masking, PackedSource
from models.training.data.store import StoredData, remove_stored
from models.training.data.texts import TokenTable, is_in, normal_text
from models.training.data.triples import TriplesSource
from models.training.dev import DevSet, read_dev
from models.training.initial_model import Start
from models.training.loop.distributed import Processes
from models.training.loop.masked_words import MaskedTask, mask_id
from models.training.loop.publishing import publish_checkpoint, unpublished
from models.training.loop.resume_check import check_output, training_identity
from models.training.loop.state import StateFolder, TrainState
from models.training.loop.tasks import DuoTask, MonoTask, Scorer, Task, group_loss, pair_loss
from models.training.loop.trainer import Schedule, Trainer, candidate_folder
from models.training.report_section import FOLDER, TrainingRecord

_CPU_TOKEN_BUDGET, _GPU_TOKEN_BUDGET = 2048, 1 << 17
_DEV_STEPS = 1000
# Measures that do not say how good a ranking is.
_COUNTS = frozenset({"NumQ", "NumRel", "NumRet", "Judged"})
# An epoch is rounded up to whole steps.
_MANY_PASSES = 1.5


class Session:
    """A training that is ready to start."""

    def __init__(self, config: TrainConfig, kind: Kind, processes: Processes, *, dry_run: bool = False) -> None:
        """Reads and checks everything. A dry run leaves nothing in the output folder.

        Raises:
            ConfigError: the configuration contradicts itself, or the state in the output folder.
            PreflightError: a file or a model is missing or invalid.
        """
        self.start = Start(config.start, config.input.max_length, config.random_weights)
        self.labels: int = config.labels or self.start.default_labels
        config = config.model_copy(update={"labels": self.labels})
        self.config, self.kind, self.processes = config, kind, processes
        torch.set_num_threads(usable_threads(config.threads) if config.threads else torch.get_num_threads())
        check_output(config.output, self.start.folder)
        self.limits = InputLimits(**config.input.model_dump())
        self.dtype = _resolve_dtype(config.dtype, processes.device)
        if config.dev is not None:
            _check_measure(config.dev.measure)
        identity = training_identity(config, kind, self.start, processes)
        self.states = StateFolder(storage.join(config.output, FOLDER), identity, processes)
        self.before = self.states.read()
        self._check_published(dry_run)
        self.tokens: TokenTable | None = None
        self.source, data = self._source(dry_run or self.before.finished)
        if self.before.step and not self.before.finished and data != self.before.data:
            raise ConfigError(
                f"the training data is not that of the state in {config.output}: files of `data` changed after it was "
                "written, and keep their size. Restore them, or give another output"
            )
        self.before.data = data
        self.inputs_per_group = 2 * (self.source.docs_per_group - 1) if kind == "duo" else self.source.docs_per_group
        self.schedule = _schedule(config, self.source, self.inputs_per_group, processes.count)
        self.dev = None if config.dev is None else read_dev(config, config.dev, self.start.tokenizer, kind)
        if self.dev is not None:
            self._check_dev(self.dev)
        torch.manual_seed(config.seed)
        self.model = self._model()
        self.task = self._task()
        # The weights are the same in each process, the units that dropout skips are not.
        torch.manual_seed(config.seed + 1 + processes.rank)

    def lines(self, position: Position | None = None) -> list[str]:
        """Lines to report about the start and the data that was read up to a position."""
        head = () if self.kind == "tcp" else self.start.lines(self.labels)
        return [*self.start.warnings, *head, *self.data_lines(position or {}), *(self.dev.lines if self.dev else ())]

    def data_lines(self, position: Position) -> list[str]:
        """Lines to report about the data that was read up to a position, and how it is used."""
        lines = [*self.source.notes(position), *_passes(self.config, self.source, self.schedule)]
        return lines if self.dev is None else [*lines, *_trained_topics(self.dev, self.source)]

    def train(self, stop: Callable[[], bool], progress: Progress, command: str) -> TrainState:
        """Trains, and then writes the model card. See `Trainer.train`."""
        trainer = Trainer(
            self.task,
            self.source,
            self.schedule,
            self.start.folder,
            self.config.output,
            self.states,
            self.processes,
            progress,
            self.dev,
        )
        if self.processes.first:
            self._write_record()
        state = trainer.train(self.before, stop)
        if state.finished and self.processes.first:
            write_card(self, state, command)
            remove_stored(Path(self.config.output) / FOLDER)
        return state

    def complete(self, command: str) -> None:
        """Does what a complete training that was killed did not: writes the model card, removes the mined data."""
        if self.processes.first:
            remove_stored(Path(self.config.output) / FOLDER)
        if self.processes.first and not storage.exists(card_path(self.config)):
            write_card(self, self.before, command)

    def _check_dev(self, dev: DevSet) -> None:
        """Raises PreflightError if the measure of the dev run cannot choose among several models."""
        once = self.schedule.steps <= self.schedule.dev_steps
        if not (once or self.before.finished or dev.sees_order()):
            raise PreflightError(
                f"dev.measure {dev.measure} is {dev.first_stage():.4f} in any order of the first {dev.k} candidates, "
                "so it cannot choose the best model: give a measure of the first ranks, such as RR@10, or a run and "
                "qrels with relevant docs among these candidates"
            )

    def _check_published(self, dry_run: bool) -> None:
        """Makes sure that the published model is that of the state; completes what a killed training began."""
        candidate, output = candidate_folder(self.config.output), Path(self.config.output)
        if dry_run:
            unpublished(candidate, output, self.before.published)
        elif self.processes.first and self.before.published:
            publish_checkpoint(candidate, output, self.before.published)

    def _write_record(self) -> None:
        dev = self.dev
        record = TrainingRecord(
            kind=self.kind,
            steps=self.schedule.steps,
            inputs_per_step=self.schedule.groups_per_step * self.inputs_per_group,
            measure=None if dev is None else dev.measure,
            given=None if dev is None else dev.first_stage(),
        )
        record.write(self.config.output)

    def _model(self) -> Any:
        optimizer = self.config.optimizer
        model: Any
        if self.kind == "tcp":
            next_sentence = "next_sentence" in self.config.objective
            model = self.start.masked_model(optimizer.dropout, optimizer.train_word_embeddings, next_sentence)
        else:
            words = optimizer.train_word_embeddings
            model = self.start.model(self.kind, self.labels, optimizer.dropout, words, self.config.chunks)
        if optimizer.gradient_checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": False})
        return model.to(self.processes.device)

    def _source(self, temporary: bool) -> tuple[Source, str]:
        """The training data, and a digest of it if it was mined."""
        config, data = self.config, self.config.data
        if self.kind == "tcp":
            assert data.corpus is not None
            passages = CorpusSource(data.corpus, data.max_bad_rows, config.seed)
            if not config.pack:
                return passages, ""
            return PackedSource(passages, self.start.tokenizer, self._masking().room_tokens), ""
        if data.triples is not None and data.corpus is None:
            return TriplesSource(data.triples, config.seed, max_bad_rows=data.max_bad_rows), ""
        max_tokens = max_doc_tokens(self.limits.max_length * config.inputs_per_passage)
        folder = Path(config.output) / FOLDER
        if temporary:
            # Each process has its own.
            self._temporary = tempfile.TemporaryDirectory(prefix="beamrank-train-")
            folder = Path(self._temporary.name)
        stored = StoredData(config, self.start.tokenizer, max_tokens, folder)
        if temporary or self.processes.first:
            stored.write()
        if not temporary:
            self.processes.wait()
        source, self.tokens, content = stored.open()
        return source, content

    def _masking(self) -> Masking:
        return Masking(
            self.start.tokenizer,
            mask_id(self.start.folder),
            self.limits.max_length,
            "next_sentence" in self.config.objective,
            self.config.seed,
        )

    def _task(self) -> Task:
        budget = _GPU_TOKEN_BUDGET if self.processes.device == "cuda" else _CPU_TOKEN_BUDGET
        if self.kind == "tcp":
            return MaskedTask(
                self.model,
                self._masking(),
                self.config.objective,
                self.limits.max_length,
                budget,
                self.processes.device,
                self.dtype,
            )
        encoder = InputEncoder(self.start.tokenizer, self.limits, budget, self.config.inputs_per_passage, self.tokens)
        score = Scorer(self.model, encoder, self.processes.device, self.dtype)
        config = self.config
        if self.kind == "mono":
            return MonoTask(score, group_loss(config.objective, config.temperature, config.margin))
        return DuoTask(score, pair_loss(config.objective, config.temperature))


def _check_measure(name: str) -> None:
    """Raises ConfigError if a name means several measures: one chooses the best model."""
    names = list(parse_measures([name]))
    if len(names) > 1:
        raise ConfigError(f"dev.measure {name!r} means {len(names)} measures ({', '.join(names)}): give one")
    (measure,) = parse_measures([name]).values()
    if measure.NAME in _COUNTS:
        raise ConfigError(
            f"dev.measure {name!r} counts topics, docs or judgments, which says nothing about a model: give a measure "
            "such as RR@10 or nDCG@10"
        )


def _resolve_dtype(requested: str, device: str) -> torch.dtype:
    if requested == "auto":
        requested = "bfloat16" if device == "cuda" else "float32"
    found: torch.dtype = getattr(torch, resolve_dtype(requested, device))
    return found


def _schedule(config: TrainConfig, source: Source, inputs_per_group: int, processes: int) -> Schedule:
    """Steps and groups from epochs and inputs.

    Raises:
        ConfigError: a step cannot be split evenly, or the length of an epoch is unknown.
    """
    optimizer = config.optimizer
    least = inputs_per_group * processes * optimizer.accumulation
    if optimizer.batch_size % least:
        raise ConfigError(
            f"optimizer.batch_size is {optimizer.batch_size}, and must be a multiple of {least}: {inputs_per_group} "
            f"inputs a group, {processes} processes, {optimizer.accumulation} micro-batches"
        )
    if "next_sentence" in config.objective and optimizer.batch_size % (2 * least):
        raise ConfigError(
            f"optimizer.batch_size is {optimizer.batch_size}, and objective next_sentence needs a multiple of "
            f"{2 * least}: pairs of inputs in each micro-batch swap their segments"
        )
    groups_per_step = optimizer.batch_size // inputs_per_group
    steps = optimizer.steps or _steps(source, optimizer.epochs or 0.0, groups_per_step)
    warmup = optimizer.warmup_steps
    if warmup is None:
        warmup = round(steps * (optimizer.warmup_share or 0.0))
    if warmup >= steps:
        raise ConfigError(
            f"optimizer.warmup_steps is {warmup:,}, and there are {steps:,} steps: the learning rate would never "
            "reach its peak. Lower it, or give warmup_share"
        )
    return Schedule(
        steps=steps,
        groups_per_step=groups_per_step,
        learning_rate=optimizer.learning_rate,
        warmup_steps=warmup,
        accumulation=optimizer.accumulation,
        weight_decay=optimizer.weight_decay,
        clip_norm=optimizer.clip_norm,
        dev_steps=config.dev.every_steps if config.dev else _DEV_STEPS,
        save_minutes=config.save_minutes,
        weights=config.weights,
        threads=torch.get_num_threads(),
    )


def _steps(source: Source, epochs: float, groups_per_step: int) -> int:
    if source.groups_per_epoch is None:
        raise ConfigError(
            "triples and corpora are streamed, so the length of an epoch is unknown: give optimizer.steps, not epochs"
        )
    return max(1, math.ceil(source.groups_per_epoch * epochs / groups_per_step))


def _passes(config: TrainConfig, source: Source, schedule: Schedule) -> list[str]:
    """A line if a step has more groups than there are, or the epochs become many more by rounding."""
    groups, epochs = source.groups_per_epoch, config.optimizer.epochs
    if groups is None:
        return []
    passes = schedule.steps * schedule.groups_per_step / groups
    asked = f", not {epochs:g}" if epochs and passes > _MANY_PASSES * epochs else ""
    if not asked and schedule.groups_per_step <= groups:
        return []
    return [
        f"a step takes {schedule.groups_per_step:,} groups, and there are {groups:,}: the training makes {passes:,.1f} "
        f"passes over them{asked}; lower optimizer.batch_size"
    ]


def _trained_topics(dev: DevSet, source: Source) -> list[str]:
    """A line about topics of the dev run that are trained on, under any id."""
    known = is_in(hashes64(map(normal_text, dev.queries.values())), source.queries)
    found = [query_id for query_id, each in zip(dev.queries, known, strict=True) if each]
    if not found:
        return []
    return [
        f"topics of the dev run that are also trained on: {len(found):,} of {len(known):,} ({first_few(found)}), so "
        "its measure is better than for new topics"
    ]
