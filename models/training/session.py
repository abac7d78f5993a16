"""Everything that a training needs, read and checked before the first step; and its plan."""

import math
import os
import tempfile
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import send_to_device
from transformers.integrations.integration_utils import get_reporting_integration_callbacks

from beamrank.errors import ConfigError, PreflightError
from beamrank.evaluation.measures import parse_measures
from beamrank.formats.notes import first_few
from beamrank.machine import usable_threads
from beamrank.ranking.input_layout import InputLimits, max_doc_tokens
from beamrank.storage import files as storage
from beamrank.storage.documents import hashes64
from models.checkpoints.files import CONFIG, TRAINED_INPUT, WEIGHTS
from models.scoring.backends.torch import resolve_dtype
from models.training.config import Kind, TrainConfig
from models.training.data.groups import InputEncoder, Source
from models.training.data.pretraining import Masking
from models.training.data.store import TrainingData, data_files
from models.training.data.texts import TokenTable, is_in, normal_text
from models.training.dev import DevSet, read_dev
from models.training.initial_model import Start
from models.training.processes import Processes
from models.training.report_section import FOLDER
from models.training.states import StateFolder, candidate_folder, publish_checkpoint, unpublished
from models.training.tasks import DuoTask, MaskedTask, MonoTask, Task

_CPU_TOKEN_BUDGET, _GPU_TOKEN_BUDGET = 2048, 1 << 17
# Options that may change when a training resumes, because they do not decide what is learned.
_FREE: dict[str, bool | set[str]] = {
    **dict.fromkeys(("output", "save_minutes", "card", "threads", "device", "report_to"), True),
    "data": {"max_bad_rows"},
}
# Measures that do not say how good a ranking is.
_COUNTS = frozenset({"NumQ", "NumRel", "NumRet", "Judged"})
# An epoch is rounded up to whole steps.
_MANY_PASSES = 1.5
_TIMED_STEPS = 2


@dataclass(frozen=True)
class Schedule:
    """The steps of a training.

    Attributes:
        steps: all of them.
        groups_per_step: of the data.
        warmup_steps: until the learning rate is highest.
        dev_steps: between two measurements of the dev run; without one, all steps.
    """

    steps: int
    groups_per_step: int
    warmup_steps: int
    dev_steps: int


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
        _check_output(config.output, self.start.folder)
        _check_trackers(config.report_to)
        self.limits = InputLimits(**config.input.model_dump())
        auto = "bfloat16" if processes.device == "cuda" else "float32"
        dtype = auto if config.dtype == "auto" else config.dtype
        self.dtype: torch.dtype = getattr(torch, resolve_dtype(dtype, processes.device))
        if config.dev is not None:
            _check_measure(config.dev.measure)
        identity = training_identity(config, kind, self.start, processes)
        self.states = StateFolder(storage.join(config.output, FOLDER), identity, processes)
        self.before = self.states.read()
        self._check_published(dry_run)
        self.source, self.tokens, data = self._data(temporary=dry_run or self.before.finished)
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

    def lines(self) -> list[str]:
        """Lines to report about the start and the data."""
        head = () if self.kind == "tcp" else self.start.lines(self.labels)
        return [*self.start.warnings, *head, *self.data_lines(), *(self.dev.lines if self.dev else ())]

    def data_lines(self) -> list[str]:
        """Lines to report about the data, and how it is used."""
        lines = [*self.source.lines, *_passes(self.config, self.source, self.schedule)]
        return lines if self.dev is None else [*lines, *_trained_topics(self.dev, self.source)]

    def _check_dev(self, dev: DevSet) -> None:
        once = self.schedule.steps <= self.schedule.dev_steps
        if not (once or self.before.finished or dev.sees_order()):
            raise PreflightError(
                f"dev.measure {dev.measure} is {dev.first_stage():.4f} in any order of the first {dev.k} candidates, "
                "so it cannot choose the best model: give a measure of the first ranks, such as RR@10, or a run and "
                "qrels with relevant docs among these candidates"
            )

    def _check_published(self, dry_run: bool) -> None:
        """Completes what a killed training began."""
        candidate, output = candidate_folder(self.config.output), Path(self.config.output)
        if dry_run:
            unpublished(candidate, output, self.before.published)
        elif self.processes.first and self.before.published:
            publish_checkpoint(candidate, output, self.before.published)

    def _data(self, temporary: bool) -> tuple[Source, TokenTable, str]:
        """The training data, their token ids, and a digest of them."""
        config, folder = self.config, Path(self.config.output) / FOLDER
        if temporary:
            # Each process has its own.
            self._temporary = tempfile.TemporaryDirectory(prefix="beamrank-train-")
            folder = Path(self._temporary.name)
        max_tokens = max_doc_tokens(self.limits.max_length * config.inputs_per_passage)
        if self.kind == "tcp":
            max_tokens = self._masking().room_tokens - 1
        data = TrainingData(config, self.start.tokenizer, max_tokens, folder, dry_run=temporary)
        if temporary or self.processes.first:
            data.write()
        if not temporary:
            self.processes.wait()
        return data.open()

    def _model(self) -> Any:
        config, optimizer = self.config, self.config.optimizer
        dropout, words = optimizer.dropout, optimizer.train_word_embeddings
        model: Any
        if self.kind == "tcp":
            model = self.start.masked_model(
                dropout, words, *(name in config.objective for name in ("next_sentence", "masked_words"))
            )
        else:
            model = self.start.model(self.kind, self.labels, dropout, words, config.chunks)
        model.config.update({TRAINED_INPUT: self.limits._asdict()})
        if optimizer.gradient_checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": False})
        return model.to(self.processes.device)

    def _masking(self) -> Masking:
        mask_id = self.start.tokenizer.token_ids.get("[MASK]")
        if mask_id is None:
            raise PreflightError(
                f"the vocabulary in {self.start.folder} has no [MASK], so words of the corpus cannot be masked"
            )
        next_sentence = "next_sentence" in self.config.objective
        return Masking(self.start.tokenizer, mask_id, self.limits.max_length, next_sentence, self.config.seed)

    def _task(self) -> Task:
        config = self.config
        budget = _GPU_TOKEN_BUDGET if self.processes.device == "cuda" else _CPU_TOKEN_BUDGET
        if self.kind == "tcp":
            return MaskedTask(self._masking(), self.tokens, config.objective, self.limits.max_length, budget)
        encoder = InputEncoder(self.start.tokenizer, self.limits, budget, config.inputs_per_passage, self.tokens)
        if self.kind == "mono":
            return MonoTask(encoder, config.objective, config.temperature, config.margin)
        return DuoTask(encoder, config.objective, config.temperature)


def training_identity(config: TrainConfig, kind: Kind, start: Start, processes: Processes) -> dict[str, Any]:
    """The settings that a training must share with the state that it resumes, by dotted key."""
    try:
        files = [*data_files(config.data), *(data_files(config.dev) if config.dev else ())]
        sizes = {url: storage.size_bytes(url) for url in files}
    except FileNotFoundError as error:
        raise PreflightError(f"there is no file {error.filename or error}: the training data names it") from error
    except OSError as error:
        raise PreflightError(f"cannot read the training data: {error}") from error
    also = {"kind": kind, "start digest": start.digest, "processes": processes.count, "bytes": sizes}
    return _flat(config.model_dump(mode="json", exclude=_FREE)) | _flat(also)


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, each in value.items():
        found |= _flat(each, f"{prefix}{key}.") if isinstance(each, dict) else {prefix + key: each}
    return found


def _check_output(output: str, start_folder: str) -> None:
    if os.path.realpath(output) == os.path.realpath(start_folder):
        raise ConfigError(f"output: {output} is also the start, which would be overwritten: give another folder")
    found = [name for name in (CONFIG, *WEIGHTS) if os.path.exists(os.path.join(output, name))]
    if found and not os.path.isdir(os.path.join(output, FOLDER)):
        raise ConfigError(
            f"output: {output} holds a model that was not made by a training here ({found[0]} without {FOLDER}/) and "
            "would be overwritten: give another folder, or remove it"
        )


def _check_trackers(names: tuple[str, ...]) -> None:
    try:
        for callback in get_reporting_integration_callbacks(list(names)):  # type: ignore[no-untyped-call]
            callback()
    # Whatever a tracker raises if its package is missing.
    except Exception as error:
        raise PreflightError(f"report_to: {error}") from error


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


def _schedule(config: TrainConfig, source: Source, inputs_per_group: int, processes: int) -> Schedule:
    """Steps and groups from epochs and inputs."""
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
    groups_per_step, steps = optimizer.batch_size // inputs_per_group, optimizer.steps
    if steps is None:
        if source.groups_per_epoch is None:
            raise ConfigError(
                "passages are packed, so the length of an epoch is unknown: give optimizer.steps, not epochs"
            )
        steps = max(1, math.ceil(source.groups_per_epoch * (optimizer.epochs or 0.0) / groups_per_step))
    warmup = optimizer.warmup_steps
    if warmup is None:
        warmup = round(steps * (optimizer.warmup_share or 0.0))
    if warmup >= steps:
        raise ConfigError(
            f"optimizer.warmup_steps is {warmup:,}, and there are {steps:,} steps: the learning rate would never "
            "reach its peak. Lower it, or give warmup_share"
        )
    return Schedule(steps, groups_per_step, warmup, config.dev.every_steps if config.dev else steps)


def _passes(config: TrainConfig, source: Source, schedule: Schedule) -> list[str]:
    """A line if a step has more groups than there are, or the epochs become many more by rounding."""
    groups, epochs = source.groups_per_epoch, config.optimizer.epochs
    if groups is None:
        return []
    passes = schedule.steps * schedule.groups_per_step / groups
    more = f", not {epochs:g}" if epochs and passes > _MANY_PASSES * epochs else ""
    if not more and schedule.groups_per_step <= groups:
        return []
    return [
        f"a step takes {schedule.groups_per_step:,} groups, and there are {groups:,}: the training makes {passes:,.1f} "
        f"passes over them{more}; lower optimizer.batch_size"
    ]


def _trained_topics(dev: DevSet, source: Source) -> list[str]:
    """A line about topics of the dev run that are trained on, under any id."""
    trained = is_in(hashes64(map(normal_text, dev.queries.values())), source.queries)
    found = [query_id for query_id, each in zip(dev.queries, trained, strict=True) if each]
    if not found:
        return []
    return [
        f"topics of the dev run that are also trained on: {len(found):,} of {len(trained):,} ({first_few(found)}), so "
        "its measure is better than for new topics"
    ]


def plan_training(session: Session) -> dict[str, Any]:
    """Plans a training without changing anything.

    `groups` is None if not all data are read or passages are packed, `first_stage` the dev measure of the given run,
    and `seconds` is estimated from two steps, without dev measurements.
    """
    config, source, steps, dev = session.config, session.source, session.schedule.steps, session.dev
    groups = source.groups_per_epoch
    return {
        "kind": session.kind,
        "recipe": config.recipe,
        "objective": config.objective,
        "start": session.start.reference,
        "parameters": sum(each.numel() for each in session.model.parameters() if each.requires_grad),
        "device": session.processes.device,
        "dtype": str(session.dtype).removeprefix("torch."),
        "processes": session.processes.count,
        "groups": groups,
        "inputs_per_group": session.inputs_per_group,
        "batch_size": config.optimizer.batch_size,
        "steps": steps,
        "epochs": None if groups is None else round(steps * session.schedule.groups_per_step / groups, 3),
        "dev_topics": 0 if dev is None else len(dev.qrels.relevance),
        "first_stage": None if dev is None else dev.first_stage(),
        "resumes_after": session.before.step,
        "seconds": (steps - session.before.step) * _time_step(session),
        "notes": session.lines(),
    }


def _time_step(session: Session) -> float:
    """Seconds of a step without the update of the weights, from the second of two micro-batches."""
    accumulation, device = session.config.optimizer.accumulation, session.processes.device
    size = session.schedule.groups_per_step // session.processes.count // accumulation
    groups = [group for group, _ in islice(session.source.stream({}), _TIMED_STEPS * size)]
    session.model.train()
    seconds = 0.0
    for start in range(0, len(groups), size):
        started = time.monotonic()
        batch = session.task.collate(groups[start : start + size], 0)
        counts = session.task.counts(batch)
        with torch.autocast(device, session.dtype, enabled=session.dtype != torch.float32):
            loss = session.task.loss(session.model, send_to_device(batch, device), counts)
        torch.autograd.backward(loss)
        loss.item()
        seconds = time.monotonic() - started
    session.model.zero_grad()
    return seconds * accumulation
