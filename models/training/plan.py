"""The plan of a training, and its estimated time."""

import time
from itertools import islice
from typing import Any

import torch
from accelerate.utils import send_to_device

from models.training.data.triples import TriplesSource
from models.training.session import Session

_TIMED_STEPS = 2


def plan_training(session: Session) -> dict[str, Any]:
    """Plans a training without changing anything.

    `groups` is None if unknown without a pass over the file, `first_stage` the dev measure of the given run, and
    `seconds` is estimated from two steps, without dev measurements.
    """
    config, source, steps, dev = session.config, session.source, session.schedule.steps, session.dev
    groups = source.groups_per_epoch
    if groups is None and isinstance(source, TriplesSource):
        groups = source.estimated_triples()
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
        "notes": session.lines(session.before.position),
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
