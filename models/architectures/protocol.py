"""The protocol of an architecture, and the files that it is read from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from beamrank.ranking.input_layout import InputTemplate
from beamrank.records import SpecialTokens

if TYPE_CHECKING:
    import torch

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]


class Module(NamedTuple):
    """A module of sentence-transformers: the name of its class, its folder, and its config.json, empty if it has none.

    The names of its tensors in `ModelFiles.tensors` are `FOLDER/NAME`.
    """

    kind: str
    folder: str
    config: Mapping[str, Any]


@dataclass(frozen=True)
class ModelFiles:
    """The content of a checkpoint's files, apart from the weights' values.

    Attributes:
        reference: names the checkpoint in errors.
        config: config.json.
        tensors: the shape of each tensor.
        modules: those of modules.json, which run one after the other; empty without that file.
        folder: holds the files on this machine.
    """

    reference: str
    config: Mapping[str, Any]
    tensors: Shapes
    modules: tuple[Module, ...]
    folder: str


class Architecture(Protocol):
    """A cross-encoder of one family, as its files describe it. The weights are not loaded.

    One whose layout the checkpoint's tokenizer decides has `own_layout`, an `InputTemplate` or None for the family's.
    """

    @property
    def num_labels(self) -> int:
        """The number of logits of the head: 1, or 2 whose difference is the score."""

    @property
    def positions(self) -> int:
        """The maximum number of tokens of an input."""

    @property
    def vocab_size(self) -> int:
        """The number of token ids with an embedding."""

    @property
    def token_cost(self) -> int:
        """The number of multiplications for one token; the estimate compares models by it."""

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
            A module whose `forward(rows)` takes the `kernels.token_rows.TokenRows` of inputs, as many for each score as
            `template` has `doc_parts`, and returns float32 log-odds. On a CPU, the bits of a score must not depend on
            the other inputs. A module with a method `pack() -> Layout` gets rows in that layout there; others get rows
            without padding.
        """


ArchitectureReader: TypeAlias = Callable[[ModelFiles, int], Architecture]
"""Reads an architecture for inputs of so many texts. Raises PreflightError for a checkpoint that cannot be scored.

One whose texts are not tokenized by the checkpoint's tokenizer alone has `load_tokenizer(folder) -> Tokenizer`.
"""
