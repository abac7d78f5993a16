"""BERT's optimizer (optimization.py of google-research/bert): Adam without bias correction."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-6
_NOT_DECAYED = ("LayerNorm", "layer_norm", "bias")


class BertAdam:
    """Adam as BERT was trained with it.

    For a gradient g: m = .9 m + .1 g, v = .999 v + .001 g^2, and the parameter loses
    learning rate * (m / (sqrt(v) + 1e-6) + weight decay * parameter). Biases and LayerNorm do not decay.
    """

    def __init__(self, parameters: Iterable[tuple[str, nn.Parameter]], weight_decay: float) -> None:
        """Starts with moments of 0; skips parameters without gradients. Biases and LayerNorm do not decay."""
        trained = {name: parameter for name, parameter in parameters if parameter.requires_grad}
        self.names = list(trained)
        self.parameters: list[Tensor] = list(trained.values())
        self._decays = [0.0 if any(part in name for part in _NOT_DECAYED) else weight_decay for name in self.names]
        self._first = [torch.zeros_like(parameter) for parameter in self.parameters]
        self._second = [torch.zeros_like(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Updates the parameters by their gradients, and clears these."""
        gradients = [
            torch.zeros_like(each) if each.grad is None else each.grad.to(each.dtype) for each in self.parameters
        ]
        torch._foreach_mul_(self._first, _BETA_1)
        torch._foreach_add_(self._first, gradients, alpha=1 - _BETA_1)
        torch._foreach_mul_(self._second, _BETA_2)
        torch._foreach_addcmul_(self._second, gradients, gradients, 1 - _BETA_2)
        denominators = torch._foreach_sqrt(self._second)
        torch._foreach_add_(denominators, _EPSILON)
        updates = list(torch._foreach_div(self._first, denominators))
        for update, parameter, decay in zip(updates, self.parameters, self._decays, strict=True):
            update.add_(parameter, alpha=decay)
        torch._foreach_add_(self.parameters, updates, alpha=-learning_rate)
        for parameter in self.parameters:
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        """The moments by parameter: `NAME.first` and `NAME.second`."""
        moments = (("first", self._first), ("second", self._second))
        return {
            f"{name}.{kind}": moment for kind, all_ in moments for name, moment in zip(self.names, all_, strict=True)
        }

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Loads the moments from `state`.

        Raises:
            ValueError: it has other names or shapes.
        """
        copy_matching(state, self.state())


@torch.no_grad()
def copy_matching(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    """Copies tensors by name.

    Raises:
        ValueError: the names or shapes differ; `copy_` alone would repeat a tensor of shape (1,).
    """
    for name in sorted(source.keys() | target.keys()):
        if name not in source or name not in target or source[name].shape != target[name].shape:
            raise ValueError(f"the tensor {name} is missing, unknown or of another shape")
        target[name].copy_(source[name])


def learning_rate_at(step: int, peak: float, warmup_steps: int, steps: int) -> float:
    """The learning rate of a step, counted from 0.

    As in BERT's code: step / warmup_steps of the peak during warm-up, so the first step changes nothing; then the
    peak's linear decay to 0 over all steps, counted from step 0.
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    return peak * max(0.0, 1 - step / steps)


def clip_gradients(parameters: Iterable[Tensor], limit: float) -> float:
    """Scales all gradients so that their common norm is at most the limit; returns the norm before."""
    return float(torch.nn.utils.clip_grad_norm_(parameters, limit))


@contextmanager
def without_denormals() -> Iterator[None]:
    """Treats numbers below 1e-38 as 0 on a CPU: as second moments of unimportant weights they slow a step fourfold."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
