"""A family of checkpoints on the encoder: what its files must hold, and the architecture that they describe."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import SEGMENTS, InputTemplate
from beamrank.records import SpecialTokens
from models.architectures.classifier import check_class, check_tensors, count_labels
from models.architectures.encoder.modules import read_modular_head
from models.architectures.encoder.shape import EncoderShape, Head, Part
from models.architectures.protocol import ModelFiles, Shapes
from models.tokenizers.layout import FamilyLayout, extend_layout, own_layout

if TYPE_CHECKING:
    import torch


class Slice(NamedTuple):
    """One of several parts that a checkpoint holds in one tensor: the rows from `number / of` of it on."""

    name: str
    number: int
    of: int


Names = Mapping[str, str | Slice]
"""The checkpoint's name for each part of the encoder, below the prefix, with `{}` for a layer's number."""


@dataclass(frozen=True)
class EncoderClassifier:
    """An encoder with a classifier: an `Architecture`."""

    shape: EncoderShape
    head: Head
    names: Names
    prefix: str
    layout: FamilyLayout
    segments: int
    warnings: tuple[str, ...]
    own_layout: InputTemplate | None

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
    def token_cost(self) -> int:
        return self.shape.token_cost

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        return tensor_shapes(self.shape, self.head, self.names, self.prefix)

    def template(self, special: SpecialTokens) -> InputTemplate:
        """The layout of the checkpoint's own tokenizer, which is the family's unless its files say otherwise."""
        if self.own_layout is not None:
            return replace(self.own_layout, pad_id=special.pad_id)
        return self.layout.fill(special, self.segments)

    def build(self, weights: Mapping[str, "torch.Tensor"], dtype: "torch.dtype") -> "torch.nn.Module":
        """Builds the model; a text whose token type is missing gets a row of zeros."""
        import torch

        from models.architectures.encoder.model import EncoderScorer

        found = {}
        for part, (_, bias), (name, number, of) in _parts(self.shape, self.head, self.names, self.prefix):
            for kind in ("weight", "bias") if bias else ("weight",):
                found[f"{part}.{kind}"] = weights[f"{name}.{kind}"].chunk(of)[number]
        if "types.weight" in found:
            types = found["types.weight"]
            wanted = _types(self.layout, self.own_layout, self.segments)
            rows = types.new_zeros(max(0, max(wanted) + 1 - len(types)), types.shape[1])
            found["types.weight"] = torch.cat([types, rows])
        return EncoderScorer(self.shape, self.head, found, dtype)


class Source(NamedTuple):
    """A checkpoint's files, and the prefix of its encoder's tensors."""

    files: ModelFiles
    prefix: str

    @property
    def config(self) -> Mapping[str, Any]:
        """config.json."""
        return self.files.config

    @property
    def checkpoint(self) -> str:
        """Names the checkpoint in errors."""
        return f"the checkpoint {self.files.reference}"


@dataclass(frozen=True)
class Family:
    """How checkpoints of one family are read; `read` is an `ArchitectureReader`.

    Attributes:
        prefix: of the encoder's tensors in a classifier's file, with its dot.
        names: the tensors of the encoder.
        classifier: the tensor whose rows are the logits.
        layout: the layout of an input.
        read_shape: the encoder's sizes.
        read_head: the head over so many logits.
        check_types: warnings about the token types of an input's texts; raises PreflightError where the model cannot
            have been trained on them.
    """

    prefix: str
    names: Names
    classifier: str
    layout: FamilyLayout
    read_shape: Callable[[Source], EncoderShape]
    read_head: Callable[[Source, EncoderShape, int], Head]
    check_types: Callable[[Source, EncoderShape, tuple[int, ...]], tuple[str, ...]]

    def read(self, files: ModelFiles, segments: int) -> EncoderClassifier:
        """Checks a sequence classifier of the family.

        Args:
            files: the checkpoint's.
            segments: how many texts an input has.

        Raises:
            PreflightError: it cannot be scored.
        """
        source = Source(files, self._find_prefix(files))
        check_class(files)
        if len(files.modules) > 1:
            shape = self.read_shape(source)
            head = read_modular_head(files, shape.hidden)
        else:
            labels = count_labels(files, f"{self.classifier}.weight")
            shape = self.read_shape(source)
            head = self.read_head(source, shape, labels)
        expected = tensor_shapes(shape, head, self.names, source.prefix)
        check_tensors(files, expected)
        self.refuse_other_parts(files.reference, files.tensors, expected, source.prefix)
        pair = own_layout(files.folder, files.reference, self.layout, reads_types=shape.token_types is not None)
        own = None if pair is None else self._for_texts(pair, segments, shape)
        warnings = self.check_types(source, shape, _types(self.layout, own, segments))
        return EncoderClassifier(shape, head, self.names, source.prefix, self.layout, segments, warnings, own)

    def _for_texts(self, pair: InputTemplate, segments: int, shape: EncoderShape) -> InputTemplate:
        """A tokenizer's layout of a pair for so many texts.

        No tokenizer lays three texts out, so a table of three token types was made and trained by other code, whatever
        the tokenizer says of types.
        """
        own = extend_layout(pair, segments)
        if segments > SEGMENTS["mono"] and self.layout.typed and (shape.token_types or 0) >= segments:
            return replace(own, token_types=tuple(range(segments)))
        return own

    def refuse_other_parts(self, reference: str, tensors: Shapes, expected: Shapes, prefix: str) -> None:
        """Raises PreflightError for parts of an encoder that are not the family's: adapters, relative positions."""
        names = [each.name if isinstance(each, Slice) else each for each in self.names.values()]
        roots = tuple({f"{prefix}{name.partition('.')[0]}." for name in names if "{}" in name})
        unknown = [
            name
            for name in sorted(tensors.keys() - expected.keys())
            if name.startswith(roots) and not name.endswith(("_ids", "inv_freq"))
        ]
        if unknown:
            raise PreflightError(
                f"the checkpoint {reference} has {len(unknown)} tensors in its layers that a model of this config.json "
                f"does not have ({', '.join(unknown[:3])}): parts such as adapters or relative positions, without "
                "which its scores would be others. Merge them into the weights, or give the config.json that it was "
                "saved with"
            )

    def _find_prefix(self, files: ModelFiles) -> str:
        """The prefix of the encoder's tensors; a file that was saved from the encoder has none."""
        return "" if f"{self.names['words']}.weight" in files.tensors else self.prefix


def tensor_shapes(shape: EncoderShape, head: Head, names: Names, prefix: str) -> dict[str, tuple[int, ...]]:
    """The name and shape of every tensor of a checkpoint."""
    shapes: dict[str, tuple[int, ...]] = {}
    for _, (weight, bias), (name, _, of) in _parts(shape, head, names, prefix):
        size = (weight[0] * of, *weight[1:])
        shapes |= {f"{name}.weight": size} | ({f"{name}.bias": size[:1]} if bias else {})
    return shapes


def missing_token_types(source: Source, shape: EncoderShape, types: tuple[int, ...]) -> tuple[str, ...]:
    """A warning where only separators tell the docs of duo's input apart.

    Raises:
        PreflightError: an input has more token types than the model.
    """
    refuse_missing_types(shape.token_types, types, source.checkpoint)
    if len(types) == SEGMENTS["mono"] or any(types):
        return ()
    why = "has no token types" if shape.token_types is None else "has a tokenizer that gives every text token type 0"
    return (
        f"{source.checkpoint} {why}, so only the separators divide duo's input of three texts "
        "(docs/reference/model-inputs.md). A model that was not trained on this layout, such as every mono, scores "
        "badly",
    )


def refuse_missing_types(known: int | None, types: tuple[int, ...], checkpoint: str) -> None:
    """Raises PreflightError where an input has more token types than a model; None for one that reads none."""
    if known is not None and known <= max(types):
        kind = next(kind for kind, count in SEGMENTS.items() if count == len(types))
        raise PreflightError(
            f"{checkpoint} knows {known} token type{'s' if known > 1 else ''}, and {kind}BERT's input has "
            f"{max(types) + 1} segments: it cannot have been trained for this"
        )


def _types(family: FamilyLayout, own: InputTemplate | None, segments: int) -> tuple[int, ...]:
    """The token type of each text."""
    if own is not None:
        return own.token_types
    return tuple(range(segments)) if family.typed else (0,) * segments


def _parts(shape: EncoderShape, head: Head, names: Names, prefix: str) -> Iterator[tuple[str, Part, Slice]]:
    for part, size in shape.parts().items():
        layer, _, key = part.rpartition(".")
        found = names[key]
        name, number, of = found if isinstance(found, Slice) else (found, 0, 1)
        yield part, size, Slice(prefix + name.format(layer), number, of)
    for name, size in head.parts().items():
        yield name, size, Slice(name, 0, 1)
