"""Pruning of a BERT's feed-forward units without training: the remaining units are refitted to do
the work of all.

Optimal brain surgeon (Hassibi and Stork 1993) on each feed-forward part: removes the units whose
loss adds the least squared error to the part's output, given that the output weights of the
remaining units are solved for again.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from transformers import BertModel

from experiments.embedded_pair.wiring.segment_marks import layers_of

_UNITS_AT_A_TIME = 32
_DAMPING = 1e-4


def prune_units(encoder: BertModel, batches: Iterable[Mapping[str, Tensor]], kept: int) -> None:
    """Prunes a model in place, layer by layer, each on the output of the pruned layers below it.

    Args:
        encoder: the model.
        batches: real inputs of some thousands of tokens, as transformers takes them.
        kept: units to keep in each layer.
    """
    batches = list(batches)
    for layer in layers_of(encoder):
        gram = _gram_of_units(encoder, layer.intermediate, batches)
        weights = layer.output.dense.weight.detach().T.double()
        units, fitted = choose_units(gram, weights, kept)
        layer.intermediate.dense = _linear(
            layer.intermediate.dense.weight[units], layer.intermediate.dense.bias[units]
        )
        layer.output.dense = _linear(fitted.T.float(), layer.output.dense.bias)
    encoder.config.intermediate_size = kept


def choose_units(gram: Tensor, weights: Tensor, kept: int) -> tuple[Tensor, Tensor]:
    """Chooses units and refits their weights.

    Args:
        gram: float64[n, n], products of the units' activations with each other, summed over tokens.
        weights: float64[n, d], what each unit writes.
        kept: how many to keep.

    Returns:
        int[kept], the units, and float64[kept, d], their new weights.
    """
    gram = gram + _DAMPING * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    target = gram @ weights
    units, fitted = torch.arange(len(gram)), weights
    while len(units) > kept:
        inverse = torch.linalg.inv(gram[units][:, units])
        costs = fitted.square().sum(dim=1) / inverse.diagonal()
        kept_units = costs.argsort(descending=True)[: max(kept, len(units) - _UNITS_AT_A_TIME)]
        units = units[kept_units.sort().values]
        fitted = torch.linalg.solve(gram[units][:, units], target[units])
    return units, fitted


@torch.inference_mode()
def _gram_of_units(
    encoder: BertModel, part: nn.Module, batches: Iterable[Mapping[str, Tensor]]
) -> Tensor:
    activations: list[Tensor] = []
    hook = part.register_forward_hook(lambda _part, _inputs, output: activations.append(output))
    gram = torch.zeros(())
    for batch in batches:
        encoder(**batch)
        units = activations.pop()[batch["attention_mask"].bool()].double()
        gram = gram + units.T @ units
    hook.remove()
    return gram.clone()


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0])
    linear.weight = nn.Parameter(weight.detach().clone().contiguous())
    linear.bias = nn.Parameter(bias.detach().clone())
    return linear
