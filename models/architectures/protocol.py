"""The protocol of an architecture, and the files that it is read from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from beamrank.ranking.input_layout import InputTemplate
from beamrank.records import SpecialTokens

if TYPE_CHECKING:
    import torch

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class ModelFiles:
    """What the files of a checkpoint hold, apart from the weights' values.

    Attributes:
        reference: names the checkpoint in errors.
        config: config.json.
        tensors: the shape of each tensor.
        modules: the class names in modules.json of sentence-transformers; empty without that file.
    """

    reference: str
    config: Mapping[str, Any]
    tensors: Shapes
    modules: tuple[str, ...] = ()


class Architecture(Protocol):
    """A cross-encoder of one family, as its files describe it. The weights are not loaded."""

    @property
    def num_labels(self) -> int:
        """How many logits the head has: 1, or 2 whose difference is the score."""

    @property
    def positions(self) -> int:
        """How many tokens an input may have."""

    @property
    def vocab_size(self) -> int:
        """How many token ids have an embedding."""

    @property
    def chunks(self) -> int:
        """How many inputs a doc is read as; 1 for all published models."""

    @property
    def token_cost(self) -> int:
        """How many multiplications one token takes; the estimate compares models by it."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the user of the checkpoint."""

    @property
    def tensors(self) -> Shapes:
        """The tensors that `build` needs, all of which the checkpoint has."""

    def template(self, special: SpecialTokens) -> InputTemplate:
        """The special tokens and token types around the texts of an input."""

    def build(self, weights: Mapping[str, "torch.Tensor"], dtype: "torch.dtype") -> "torch.nn.Module":
        """Builds the model on the CPU.

        Args:
            weights: the values of `tensors`, float32.
            dtype: of the layers; the head is float32, because log-odds in fewer bits tie.

        Returns:
            A module whose `forward(token_ids, token_types, mask)` takes int[b * chunks, n] twice and bool[b * chunks,
            n], True on tokens, or None for a batch without padding. It returns float32[b] log-odds.
        """


ArchitectureReader: TypeAlias = Callable[[ModelFiles, int], Architecture]
"""Reads an architecture for inputs of so many texts. Raises PreflightError for a checkpoint that cannot be scored."""
