"""Everything that a training needs, read and checked before the first step; and its plan."""

import math
import os
import tempfile
import time
from datetime import timedelta
from itertools import compress, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import send_to_device
from transformers.integrations.integration_utils import get_reporting_integration_callbacks

from beamrank.commit.listing import TRAINING
from beamrank.errors import ConfigError, PreflightError
from beamrank.evaluation.measures import parse_measures
from beamrank.machine import usable_threads
from beamrank.notes import first_few
from beamrank.ranking.input_layout import max_doc_tokens
from beamrank.storage import files as storage
from models.checkpoints.files import CONFIG, TRAINED_INPUT, WEIGHTS
from models.scoring.backends.torch import resolve_device, resolve_dtype
from models.training.config import Kind, TrainConfig
from models.training.data.groups import InputEncoder
from models.training.data.pretraining import Masking
from models.training.data.store import DataFolder, Source, TrainingData, data_files
from models.training.data.texts import is_in, keys_of
from models.training.dev import DevSet, read_dev
from models.training.initial_model import Start
from models.training.states import StateFolder, publish
from models.training.tasks import DuoTask, MaskedTask, MonoTask, Task

_CPU_TOKEN_BUDGET, _GPU_TOKEN_BUDGET = 2048, 1 << 17
# The other processes wait while the first measures the dev run.
_TIMEOUT = timedelta(hours=6)
# Options that may change when a training resumes, because they do not decide what is learned.
_FREE: dict[str, bool | set[str]] = {
    **dict.fromkeys(("output", "save_minutes", "card", "threads", "device", "report_to"), True),
    "data": {"max_bad_rows"},
}
# Measures that do not say how good a ranking is.
_COUNTS = frozenset({"NumQ", "NumRel", "NumRet", "Judged"})
_TIMED_STEPS = 2


def join_processes(requested_device: str) -> PartialState:
    """The processes that torchrun started, or only this one, each with the device of its model."""
    device, rank = resolve_device(requested_device), int(os.environ.get("LOCAL_RANK", "0"))
    if device == "cuda" and rank >= (gpus := torch.cuda.device_count()):
        raise PreflightError(
            f"process {rank + 1} of this machine has no GPU, because there are {gpus}: give "
            f"torchrun --nproc-per-node {gpus}"
        )
    return PartialState(cpu=device == "cpu", timeout=_TIMEOUT)


class Schedule(NamedTuple):
    """The steps of a training, of its warm-up and between two dev measurements; groups of the data
    in a step.
    """

    steps: int
    groups_per_step: int
    warmup_steps: int
    dev_steps: int


class Session:
    """A training that is ready to start."""

    def __init__(
        self, config: TrainConfig, kind: Kind, processes: PartialState, *, dry_run: bool = False
    ) -> None:
        """Reads and checks everything. A dry run leaves nothing in the output folder."""
        self.start = Start(config.start, config.input.max_length, config.random_weights)
        self.labels: int = config.labels or self.start.default_labels
        config = config.model_copy(update={"labels": self.labels})
        self.config, self.kind, self.processes = config, kind, processes
        torch.set_num_threads(usable_threads(config.threads or torch.get_num_threads()))
        _check_output(config.output, self.start.folder)
        _check_trackers(config.report_to)
        self.limits = config.input.limits
        device = processes.device.type
        # Not float16, which `auto` is on older GPUs: the loss is not scaled.
        dtype = "bfloat16" if config.dtype == "auto" and device == "cuda" else config.dtype
        self.dtype: torch.dtype = getattr(torch, resolve_dtype(dtype, device))
        if config.dev is not None:
            _check_measure(config.dev.measure)
        self.states = StateFolder(
            Path(config.output, TRAINING), training_identity(config, kind, self.start, processes)
        )
        self.before = self.states.read()
        # A training may have been killed while it published a model.
        if processes.is_main_process and self.before.published:
            publish(config.output, self.before.published, dry_run=dry_run)
        self.data = self._read_data(temporary=dry_run or self.before.finished)
        self.source: Source = self.data.source
        if self.before.step and not self.before.finished and self.data.digest != self.before.data:
            raise ConfigError(
                f"the training data is not that of the state in {config.output}: files of `data` "
                "changed after it was written, and keep their size. Restore them, or give another "
                "output"
            )
        self.before.data = self.data.digest
        docs = self.source.docs_per_group
        self.inputs_per_group = 2 * (docs - 1) if kind == "duo" else docs
        self.schedule = _schedule(
            config, self.source, self.inputs_per_group, processes.num_processes
        )
        self.dev = (
            None if config.dev is None else read_dev(config, config.dev, self.start.tokenizer, kind)
        )
        once = self.schedule.steps <= self.schedule.dev_steps
        if self.dev is not None and not (once or self.before.finished or self.dev.sees_order()):
            raise PreflightError(
                f"dev.measure {self.dev.measure} is {self.dev.first_stage():.4f} in any order of "
                f"the first {self.dev.k} candidates, so it cannot choose the best model: give a "
                "measure of the first ranks, such as RR@10, or a run and qrels with relevant docs "
                "among these candidates"
            )
        torch.manual_seed(config.seed)
        self.model = self._model()
        self.task = self._task()

    def lines(self) -> list[str]:
        """Lines to report about the start and the data."""
        head = () if self.kind == "tcp" else self.start.lines(self.labels)
        return [
            *self.start.warnings,
            *head,
            *self.data_lines(),
            *(self.dev.lines if self.dev else ()),
        ]

    def data_lines(self) -> list[str]:
        """Lines to report about the data."""
        lines = list(self.data.lines)
        epoch, step = self.source.groups_per_epoch, self.schedule.groups_per_step
        if epoch and step > epoch:
            lines.append(
                f"a batch of {step:,} groups holds several epochs, of {epoch:,} groups each: lower "
                "optimizer.batch_size, or give more data"
            )
        return [*lines, *(self._trained_topics(self.dev) if self.dev else ())]

    @property
    def _max_tokens(self) -> int:
        return max_doc_tokens(self.limits.max_length * self.config.inputs_per_passage)

    def _trained_topics(self, dev: DevSet) -> list[str]:
        """A line about topics of the dev run that are trained on, under any id."""
        texts = list(dev.queries.values())
        keys = keys_of(texts, self.start.tokenizer.encode(texts, self._max_tokens).ids)
        trained = np.asarray(is_in(keys, self.source.queries).any(axis=1))
        shared = list(compress(dev.queries, trained))
        line = (
            f"topics of the dev run that are also trained on: {len(shared):,} of {len(trained):,} "
            f"({first_few(shared)}), so its measure is better than for new topics"
        )
        return [line] if shared else []

    def _read_data(self, temporary: bool) -> TrainingData:
        config, folder = self.config, Path(self.config.output) / TRAINING
        if temporary:
            # Each process has its own.
            self._temporary = tempfile.TemporaryDirectory(prefix="beamrank-train-")
            folder = Path(self._temporary.name)
        max_tokens = self._max_tokens
        if self.kind == "tcp":
            max_tokens = self._masking().room_tokens - 1
        data = DataFolder(config, self.start.tokenizer, max_tokens, folder, dry_run=temporary)
        if temporary or self.processes.is_main_process:
            data.write()
        if not temporary:
            self.processes.wait_for_everyone()
        return data.open()

    def _model(self) -> Any:
        config, optimizer = self.config, self.config.optimizer
        dropout, words = optimizer.dropout, optimizer.train_word_embeddings
        model: Any
        if self.kind == "tcp":
            model = self.start.masked_model(
                dropout,
                words,
                *(name in config.objective for name in ("next_sentence", "masked_words")),
            )
        else:
            model = self.start.model(self.kind, self.labels, dropout, words, config.chunks)
        model.config.update({TRAINED_INPUT: self.limits._asdict()})
        if self.processes.device.type == "cpu" and self.dtype == torch.bfloat16:
            # A pass forward and backward took 1.3 to 1.9 times as long with SDPA on an AMD EPYC.
            model.set_attn_implementation("eager")
        if optimizer.gradient_checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": False})
        return model.to(self.processes.device)

    def _masking(self) -> Masking:
        mask_id = self.start.tokenizer.token_ids.get("[MASK]")
        if mask_id is None:
            raise PreflightError(
                f"the vocabulary in {self.start.folder} has no [MASK], so words of the corpus "
                "cannot be masked"
            )
        next_sentence = "next_sentence" in self.config.objective
        return Masking(
            self.start.tokenizer, mask_id, self.limits.max_length, next_sentence, self.config.seed
        )

    def _task(self) -> Task:
        config, tokens = self.config, self.data.tokens
        budget = _GPU_TOKEN_BUDGET if self.processes.device.type == "cuda" else _CPU_TOKEN_BUDGET
        if self.kind == "tcp":
            return MaskedTask(
                self._masking(), tokens, config.objective, self.limits.max_length, budget
            )
        encoder = InputEncoder(
            self.start.tokenizer, self.limits, budget, config.inputs_per_passage, tokens
        )
        task = MonoTask if self.kind == "mono" else DuoTask
        return task(encoder, config.objective, config.temperature, config.margin)


def training_identity(
    config: TrainConfig, kind: Kind, start: Start, processes: PartialState
) -> dict[str, Any]:
    """The settings that a training must share with the state that it resumes, by dotted key."""
    try:
        files = [*data_files(config.data), *(data_files(config.dev) if config.dev else ())]
        sizes = {url: storage.size_bytes(url) for url in files}
    except FileNotFoundError as error:
        raise PreflightError(
            f"there is no file {error.filename or error}: the training data names it"
        ) from error
    except OSError as error:
        raise PreflightError(f"cannot read the training data: {error}") from error
    also = {
        "kind": kind,
        "start digest": start.digest,
        "processes": processes.num_processes,
        "bytes": sizes,
    }
    return _flat(config.model_dump(mode="json", exclude=_FREE)) | _flat(also)


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}{key}.") if isinstance(item, dict) else {prefix + key: item}
    return flat


def _check_output(output: str, start_folder: str) -> None:
    if os.path.realpath(output) == os.path.realpath(start_folder):
        raise ConfigError(
            f"output: {output} is also the start, which would be overwritten: give another folder"
        )
    files = [name for name in (CONFIG, *WEIGHTS) if os.path.exists(os.path.join(output, name))]
    if files and not os.path.isdir(os.path.join(output, TRAINING)):
        raise ConfigError(
            f"output: {output} holds a model that was not made by a training here ({files[0]} "
            f"without {TRAINING}/) and would be overwritten: give another folder, or remove it"
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
    measures = parse_measures([name])
    if len(measures) > 1:
        raise ConfigError(
            f"dev.measure {name!r} means {len(measures)} measures ({', '.join(measures)}): give one"
        )
    if any(measure.NAME in _COUNTS for measure in measures.values()):
        raise ConfigError(
            f"dev.measure {name!r} counts topics, docs or judgments, which says nothing about a "
            "model: give a measure such as RR@10 or nDCG@10"
        )


def _schedule(
    config: TrainConfig, source: Source, inputs_per_group: int, processes: int
) -> Schedule:
    """Steps and groups from epochs and inputs."""
    optimizer = config.optimizer
    least = inputs_per_group * processes * optimizer.accumulation
    # Pairs of inputs in each micro-batch swap their segments.
    pairs = ", in pairs for objective next_sentence" if "next_sentence" in config.objective else ""
    if optimizer.batch_size % (least := 2 * least if pairs else least):
        raise ConfigError(
            f"optimizer.batch_size is {optimizer.batch_size}, and must be a multiple of {least}: "
            f"{inputs_per_group} inputs a group, {processes} processes, {optimizer.accumulation} "
            f"micro-batches{pairs}"
        )
    groups_per_step, steps = optimizer.batch_size // inputs_per_group, optimizer.steps
    if steps is None:
        if source.groups_per_epoch is None:
            raise ConfigError(
                "passages are packed, so the length of an epoch is unknown: give optimizer.steps, "
                "not epochs"
            )
        steps = max(
            1, math.ceil(source.groups_per_epoch * (optimizer.epochs or 0.0) / groups_per_step)
        )
    warmup = optimizer.warmup_steps
    if warmup is None:
        warmup = round(steps * (optimizer.warmup_share or 0.0))
    if warmup >= steps:
        raise ConfigError(
            f"optimizer.warmup_steps is {warmup:,}, and there are {steps:,} steps: the learning "
            "rate would never reach its peak. Lower it, or give warmup_share"
        )
    return Schedule(steps, groups_per_step, warmup, config.dev.every_steps if config.dev else steps)


def plan_training(session: Session) -> dict[str, Any]:
    """Plans a training without changing anything.

    `groups` is None if not all data are read or passages are packed, `first_stage` the dev measure
    of the given run, and `seconds` is estimated from two steps, without dev measurements.
    """
    config, source, steps, dev = session.config, session.source, session.schedule.steps, session.dev
    groups = source.groups_per_epoch
    return {
        "kind": session.kind,
        "recipe": config.recipe,
        "objective": config.objective,
        "start": session.start.reference,
        "parameters": sum(
            parameter.numel() for parameter in session.model.parameters() if parameter.requires_grad
        ),
        "device": session.processes.device.type,
        "dtype": str(session.dtype).removeprefix("torch."),
        "processes": session.processes.num_processes,
        "groups": groups,
        "inputs_per_group": session.inputs_per_group,
        "batch_size": config.optimizer.batch_size,
        "steps": steps,
        "epochs": None
        if groups is None
        else round(steps * session.schedule.groups_per_step / groups, 3),
        "dev_topics": 0 if dev is None else len(dev.qrels.relevance),
        "first_stage": None if dev is None else dev.first_stage(),
        "resumes_after": session.before.step,
        "seconds": (steps - session.before.step) * _time_step(session),
        "notes": session.lines(),
    }


def _time_step(session: Session) -> float:
    """Seconds of a step without the update of the weights, from the second of two micro-batches."""
    accumulation, device = session.config.optimizer.accumulation, session.processes.device
    size = session.schedule.groups_per_step // session.processes.num_processes // accumulation
    groups = [group for group, _ in islice(session.source.stream(0), _TIMED_STEPS * size)]
    session.model.train()
    seconds = 0.0
    for start in range(0, len(groups), size):
        started = time.monotonic()
        batch = session.task.collate(groups[start : start + size], 0)
        counts = session.task.counts(batch)
        with torch.autocast(device.type, session.dtype, enabled=session.dtype != torch.float32):
            loss = session.task.loss(session.model, send_to_device(batch, device), counts)
        torch.autograd.backward(loss)
        loss.item()
        seconds = time.monotonic() - started
    session.model.zero_grad()
    return seconds * accumulation
