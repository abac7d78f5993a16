"""The plan of a training, and its estimated time."""

import time
from dataclasses import dataclass
from itertools import islice

import torch

from models.training.data.triples import TriplesSource
from models.training.session import Session

_TIMED_STEPS = 2


@dataclass(frozen=True)
class TrainPlan:
    """The plan of a training.

    Attributes:
        groups: groups of an epoch; None if unknown without a pass over the file.
        inputs_per_group: inputs of the model for each group.
        first_stage: the dev measure of the given run.
        seconds: of all steps, estimated from two of them, without dev measurements.
    """

    kind: str
    recipe: str | None
    objective: dict[str, float]
    start: str
    parameters: int
    device: str
    dtype: str
    processes: int
    groups: int | None
    inputs_per_group: int
    batch_size: int
    steps: int
    epochs: float | None
    dev_topics: int
    first_stage: float | None
    resumes_after: int
    seconds: float
    notes: tuple[str, ...]


def plan_training(session: Session) -> TrainPlan:
    """Plans a training without changing anything; the seconds are estimated from two steps."""
    config, source, steps = session.config, session.source, session.schedule.steps
    groups = source.groups_per_epoch
    if groups is None and isinstance(source, TriplesSource):
        groups = source.estimated_triples()
    dev = session.dev
    return TrainPlan(
        kind=session.kind,
        recipe=config.recipe,
        objective=config.objective,
        start=session.start.reference,
        parameters=sum(each.numel() for each in session.model.parameters() if each.requires_grad),
        device=session.processes.device,
        dtype=str(session.dtype).removeprefix("torch."),
        processes=session.processes.count,
        groups=groups,
        inputs_per_group=session.inputs_per_group,
        batch_size=config.optimizer.batch_size,
        steps=steps,
        epochs=None if groups is None else round(steps * session.schedule.groups_per_step / groups, 3),
        dev_topics=0 if dev is None else len(dev.qrels.relevance),
        first_stage=None if dev is None else dev.first_stage(),
        resumes_after=session.before.step,
        seconds=(steps - session.before.step) * _time_step(session),
        notes=tuple(session.lines(session.before.position)),
    )


def _time_step(session: Session) -> float:
    """Seconds of a step without the update of the weights, from the second of two micro-batches."""
    schedule = session.schedule
    size = schedule.groups_per_step // session.processes.count // schedule.accumulation
    groups = [group for group, _ in islice(session.source.stream({}), _TIMED_STEPS * size)]
    session.model.train()
    seconds = 0.0
    for start in range(0, len(groups), size):
        started = time.monotonic()
        loss = session.task.loss(groups[start : start + size], 0)
        torch.autograd.backward(loss)
        loss.item()
        seconds = time.monotonic() - started
    session.model.zero_grad()
    return seconds * schedule.accumulation
