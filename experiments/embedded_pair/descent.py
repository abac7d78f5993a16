"""Gradient descent over batches, for weights that are trained rather than fitted."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from beamrank.notes import Progress

_WARM_UP, _BETAS, _CLIP = 0.05, (0.9, 0.99), 1.0

_Batch = TypeVar("_Batch")


def descend(
    parameters: Iterable[Tensor],
    batches: Sequence[_Batch],
    loss_of: Callable[[_Batch], Tensor],
    learning_rate: float,
    dtype: torch.dtype,
    progress: Progress,
) -> None:
    """Takes one step of Adam for each batch; the learning rate rises, then falls to 0.

    Args:
        parameters: what is trained.
        batches: one per step.
        loss_of: a batch's loss.
        learning_rate: the highest.
        dtype: what is computed in; the weights stay float32.
        progress: receives each step.
    """
    trained, steps = list(parameters), len(batches)
    optimizer = torch.optim.Adam(trained, lr=learning_rate, betas=_BETAS)
    rising = max(1, round(_WARM_UP * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / rising, (steps - step) / max(1, steps - rising))
    )
    for done, batch in enumerate(batches, start=1):
        # A new autocast for each step: it caches the cast weights, and would not see them change.
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(trained, _CLIP)
        optimizer.step()
        schedule.step()
        progress.update(done, steps, f"steps, loss {loss.item():.4f}")
