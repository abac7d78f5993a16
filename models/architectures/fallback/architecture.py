"""An architecture that transformers computes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beamrank.ranking.input_layout import InputTemplate, Prompt
from beamrank.records import SpecialTokens
from models.architectures.fallback.tasks import Readout
from models.architectures.protocol import ModelFiles, Shapes

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TransformersModel:
    """A model that transformers computes: an `Architecture`.

    Attributes:
        config: config.json.
        readout: where the logits come from.
        layout: the layout of a pair; None for a model with a prompt.
    """

    config: Mapping[str, Any]
    readout: Readout
    num_labels: int
    positions: int
    vocab_size: int
    token_cost: int
    tensors: Shapes
    warnings: tuple[str, ...]
    layout: InputTemplate | None = None
    prompt: Prompt | None = None

    def template(self, special: SpecialTokens) -> InputTemplate:
        """The layout of the checkpoint's tokenizer with its own special tokens, or the prompt."""
        if self.layout is not None:
            return self.layout
        start, *ends = special.fixed
        # The batches have no padding, so its id does not matter.
        return InputTemplate(start, tuple(ends), (0,) * len(ends), 0)

    def build(self, weights: Mapping[str, "torch.Tensor"], dtype: "torch.dtype") -> "torch.nn.Module":
        """Builds the model of transformers with these weights, its last map in float32."""
        from models.architectures.fallback.model import TransformersScorer

        typed = self.layout is not None and any(self.layout.token_types)
        return TransformersScorer(self.config, self.readout, weights, dtype, typed)


def slower(files: ModelFiles) -> str:
    """The warning for a model that has no architecture of its own."""
    return (
        f"{files.reference} is scored through transformers, because {files.config['model_type']!r} has no architecture "
        "in beamrank: slower than a native architecture"
    )
