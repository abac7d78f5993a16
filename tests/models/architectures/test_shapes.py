"""The shapes of everything that a model calls, which decide the order of a GPU's sums: they follow
from three numbers of a batch, or from all of its lengths.
"""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map_only

from models.architectures.encoder.model import EncoderScorer
from models.architectures.kernels.attention import Layout, TokenRows
from models.checkpoints.checkpoint import load_weights, resolve_checkpoint
from tests.support.models.families import CASES, random_inputs, save_case
from tests.support.models.varlen import varlen_attn

_BATCH = (40, 12, 12, 8)
# As many tokens and inputs, and as long a longest one.
_SIMILAR = (40, 4, 24, 4)
# One of the three is another number.
_OTHERS = ((40, 12, 12, 7), (40, 12, 20), (36, 16, 12, 8))
# What is computed for the inputs of one length together: a mean, and in the last layer the first
# token's attention within a window.
_MEANS = ("modernbert mean", "modernbert layer types")
_WINDOWS = ("modernbert rope", "modernbert last layer windowed", "modernbert biases")


class _Calls(TorchDispatchMode):
    """Records each call of torch, with the shapes of its tensors and its other arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[str, str]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.add(str(func), args, kwargs)
        return func(*args, **kwargs or {})

    def add(self, name: str, *given: Any) -> None:
        shapes = tree_map_only(torch.Tensor, lambda tensor: tensor.shape, given)
        self.made.append((name, str(shapes)))

    def attend(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Attention of all inputs, which is one call on a GPU."""
        self.add("varlen_attn", args, kwargs)
        with _disable_current_modes():
            return varlen_attn(*args, **kwargs)


def _calls(model: nn.Module, name: str, lengths: Sequence[int], layout: Layout) -> Any:
    ids, types = (torch.tensor([*chain(*each)]) for each in random_inputs(name, lengths))
    rows, calls = TokenRows(ids, types, lengths, layout), _Calls()
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode(), calls:
        patch.setattr("torch.nn.attention.varlen.varlen_attn", calls.attend)
        model(rows)
    return calls.made


def _model(name: str, folder: Path) -> EncoderScorer:
    checkpoint = resolve_checkpoint(save_case(folder, name), "mono")
    model = checkpoint.architecture.build(load_weights(checkpoint), torch.float32)
    assert isinstance(model, EncoderScorer)
    return model


@pytest.mark.parametrize("name", CASES)
def test_shapes_of_a_gpu_follow_from_tokens_inputs_and_the_longest(name, tmp_path):
    """Batches that are filled up to the same three would have the same shapes."""
    model, layout = _model(name, tmp_path), Layout(varlen=True)
    batch = _calls(model, name, _BATCH, layout)
    assert "varlen_attn" in {call for call, _ in batch}
    assert batch == _calls(model, name, _BATCH, layout)
    assert (batch == _calls(model, name, _SIMILAR, layout)) is (name not in (*_MEANS, *_WINDOWS))
    for lengths in _OTHERS:
        assert batch != _calls(model, name, lengths, layout)


@pytest.mark.parametrize("name", CASES)
def test_products_of_a_block_have_the_same_shapes_in_any_batch(name, tmp_path):
    """On a CPU: this is why scores do not depend on their batch there."""
    model = _model(name, tmp_path)
    layout = model.pack(None)

    def products(lengths: Sequence[int]) -> list[tuple[str, str]]:
        calls = _calls(model, name, lengths, layout)
        return [call for call in calls if "linear" in call[0] or "mm" in call[0]]

    batch = products(_BATCH)
    assert len(batch) > 3
    for lengths in (_SIMILAR, *_OTHERS, (5,)):
        assert products(lengths) == batch
