"""What a training will do and take, before it begins."""

import time
from dataclasses import dataclass
from itertools import islice

import torch

from models.training.data.triples import TriplesSource
from models.training.session import Session

_TIMED_STEPS = 2


@dataclass(frozen=True)
class TrainPlan:
    """What a training will do and take.

    Attributes:
        groups: of an epoch; None where the file would have to be read through to know.
        inputs_a_group: how many inputs of the model a group gives.
        first_stage: the dev measure of the run as it was given.
        seconds: of all steps, from a measurement of two; dev measurements not counted.
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
    inputs_a_group: int
    batch_size: int
    steps: int
    epochs: float | None
    dev_topics: int
    first_stage: float | None
    resumes_after: int
    seconds: float
    notes: tuple[str, ...]


def make_plan(session: Session) -> TrainPlan:
    """The plan of a training; its seconds are from a measurement of two steps. Nothing is changed."""
    config, source, steps = session.config, session.source, session.schedule.steps
    groups = source.groups_an_epoch
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
        inputs_a_group=session.inputs_a_group,
        batch_size=config.optimizer.batch_size,
        steps=steps,
        epochs=None if groups is None else round(steps * session.schedule.groups_a_step / groups, 3),
        dev_topics=0 if dev is None else len(dev.qrels.relevance),
        first_stage=None if dev is None else dev.first_stage(),
        resumes_after=session.before.step,
        seconds=(steps - session.before.step) * _time_step(session),
        notes=(*source.notes(session.before.position), *(dev.lines if dev else ())),
    )


def _time_step(session: Session) -> float:
    """Seconds of a step without the change of the weights, by the second of two micro-batches."""
    schedule = session.schedule
    size = schedule.groups_a_step // session.processes.count // schedule.accumulation
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
