"""A family of checkpoints on the encoder: what its files must hold, and the architecture that they
describe.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import TEXT_COUNTS, InputTemplate
from beamrank.records import SpecialTokens
from models.architectures.encoder.modules import read_modular_head
from models.architectures.encoder.shape import EncoderShape, Head
from models.architectures.protocol import ModelFiles, check_class, check_tensors, count_labels
from models.tokenizers.layout import FamilyLayout, extend_layout, own_layout
from models.tokenizers.prompts import Prompt

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class EncoderClassifier:
    """An encoder with a classifier: an `Architecture`."""

    shape: EncoderShape
    head: Head
    names: Mapping[str, str]
    prefix: str
    layout: FamilyLayout
    segments: int
    warnings: tuple[str, ...] = ()
    own_layout: InputTemplate | None = None
    prompt: Prompt | None = None

    @property
    def num_labels(self) -> int:
        return self.head.classifier.rows

    @property
    def positions(self) -> int:
        return self.shape.positions

    @property
    def vocab_size(self) -> int:
        return self.shape.vocab_size

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {}
        parts = self.shape.parts() | self.head.parts()
        for part, name, _, of in self._places():
            size = (parts[part].weight[0] * of, *parts[part].weight[1:])
            shapes |= {f"{name}.weight": size} | (
                {f"{name}.bias": size[:1]} if parts[part].bias else {}
            )
        return shapes

    @property
    def token_types(self) -> tuple[int, ...]:
        """The token type of each text."""
        return self.template(SpecialTokens(0, 0, 0)).token_types

    def template(self, special: SpecialTokens) -> InputTemplate:
        """The layout of the checkpoint's own tokenizer, which is the family's unless its files say
        otherwise.
        """
        if self.prompt is not None:
            return self.prompt.template
        if self.own_layout is not None:
            return replace(self.own_layout, pad_id=special.pad_id)
        return self.layout.fill(special, self.segments)

    def build(
        self, weights: Mapping[str, "torch.Tensor"], dtype: "torch.dtype"
    ) -> "torch.nn.Module":
        """Builds the model; a text whose token type is missing gets a row of zeros."""
        import torch

        from models.architectures.encoder.model import EncoderScorer

        tensors = {
            f"{part}.{kind}": weights[f"{name}.{kind}"].chunk(of)[number]
            for part, name, number, of in self._places()
            for kind in ("weight", "bias")
            if f"{name}.{kind}" in weights
        }
        if "types.weight" in tensors:
            types = tensors["types.weight"]
            rows = types.new_zeros(max(0, max(self.token_types) + 1 - len(types)), types.shape[1])
            tensors["types.weight"] = torch.cat([types, rows])
        return EncoderScorer(self.shape, self.head, tensors, dtype)

    def _places(self) -> Iterator[tuple[str, str, int, int]]:
        """The tensor of each part, and which of how many parts in this tensor it is."""
        for part in self.shape.parts():
            layer, _, key = part.rpartition(".")
            sharing = [other for other, name in self.names.items() if name == self.names[key]]
            yield (
                part,
                self.prefix + self.names[key].format(layer),
                sharing.index(key),
                len(sharing),
            )
        for name in self.head.parts():
            yield name, name, 0, 1


@dataclass(frozen=True)
class Family:
    """How checkpoints of one family are read; `read` is an `ArchitectureReader`.

    Attributes:
        prefix: of the encoder's tensors in a classifier's file, with its dot.
        names: the tensor of each part of the encoder, with `{}` for a layer's number. Parts with
            one name share a tensor, one below the other in the order of the names.
        classifier: the tensor whose rows are the logits.
        layout: the layout of an input.
        read_shape: the encoder's sizes, given its prefix.
        read_head: the head over so many logits.
        adds_type: whether a model with two token types reads three texts: the third one's row is
            zeros.
    """

    prefix: str
    names: Mapping[str, str]
    classifier: str
    layout: FamilyLayout
    read_shape: Callable[[ModelFiles, str], EncoderShape]
    read_head: Callable[[ModelFiles, EncoderShape, int], Head]
    adds_type: bool = False

    def read(self, files: ModelFiles, segments: int) -> EncoderClassifier:
        """Checks a sequence classifier of the family, whose inputs have so many texts."""
        check_class(files, rotary="positions" not in self.names)
        # A file that was saved from the encoder has no prefix.
        prefix = "" if f"{self.names['words']}.weight" in files.tensors else self.prefix
        labels = 0 if len(files.modules) > 1 else count_labels(files, f"{self.classifier}.weight")
        shape = self.read_shape(files, prefix)
        head = (
            self.read_head(files, shape, labels)
            if labels
            else read_modular_head(files, shape.hidden)
        )
        classifier = EncoderClassifier(shape, head, self.names, prefix, self.layout, segments)
        check_tensors(files, classifier.tensors, self.roots(prefix))
        if prompt := files.read_chat(segments):
            return replace(classifier, own_layout=prompt.template, prompt=prompt)
        pair = own_layout(
            files.folder, files.reference, self.layout, reads_types=shape.token_types is not None
        )
        classifier = replace(
            classifier, own_layout=None if pair is None else self._for_texts(pair, segments, shape)
        )
        return replace(
            classifier,
            warnings=check_types(
                str(files), shape.token_types, classifier.token_types, self.adds_type
            ),
        )

    def _for_texts(self, pair: InputTemplate, segments: int, shape: EncoderShape) -> InputTemplate:
        """A tokenizer's layout of a pair for so many texts.

        No tokenizer lays three texts out, so a table of three token types was made and trained by
        other code, whatever the tokenizer says of types.
        """
        layout = extend_layout(pair, segments)
        if (
            segments > TEXT_COUNTS["mono"]
            and self.layout.typed
            and (shape.token_types or 0) >= segments
        ):
            return replace(layout, token_types=tuple(range(segments)))
        return layout

    def roots(self, prefix: str) -> tuple[str, ...]:
        """How the names of the tensors in the layers begin."""
        return tuple(
            {f"{prefix}{name.partition('.')[0]}." for name in self.names.values() if "{}" in name}
        )


def check_types(
    checkpoint: str, known: int | None, types: tuple[int, ...], adds_type: bool = False
) -> tuple[str, ...]:
    """Compares the token types of an input's texts with the types that a model has.

    Args:
        checkpoint: names it in messages.
        known: how many token types it has an embedding for; None for a model that reads none.
        types: of the texts.
        adds_type: see `Family`.

    Returns:
        A warning where the model cannot tell three texts apart by their types.

    Raises:
        PreflightError: an input has more token types than the model was trained on.
    """
    if known is not None and known <= max(types):
        if adds_type and known >= TEXT_COUNTS["mono"]:
            return (
                f"{checkpoint} has token type embeddings for 2 segments, duoBERT's input has 3. "
                "The second doc gets a row of zeros, as TensorFlow gave the models of 2019 that "
                "came so; any other model scores badly",
            )
        kind = next(kind for kind, count in TEXT_COUNTS.items() if count == len(types))
        raise PreflightError(
            f"{checkpoint} knows {known} token type{'s' if known > 1 else ''}, and {kind}BERT's "
            f"input has {max(types) + 1} segments: it cannot have been trained for this"
        )
    if len(types) == TEXT_COUNTS["mono"] or any(types):
        return ()
    why = (
        "has no token types"
        if known is None
        else "has a tokenizer that gives every text token type 0"
    )
    return (
        f"{checkpoint} {why}, so only the separators divide duo's input of three texts "
        "(docs/reference/model-inputs.md). A model that was not trained on this layout, such as "
        "every mono, scores badly",
    )
