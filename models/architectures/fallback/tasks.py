"""What a model of transformers does, and where its two logits, or its one, come from."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Task: TypeAlias = Literal["classifier", "seq2seq", "causal"]


@dataclass(frozen=True)
class Readout:
    """The last linear map of a model.

    Attributes:
        task: what the model does.
        name: the map's tensor of weights.
        tokens: for a language model, the ids of the words for not relevant and relevant: the only rows of the map that
            are computed.
    """

    task: Task
    name: str
    tokens: tuple[int, int] | None = None
