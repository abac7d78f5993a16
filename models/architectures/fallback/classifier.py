"""Any sequence classifier of transformers as an architecture that transformers computes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import SEGMENTS, InputTemplate
from beamrank.records import SpecialTokens
from models.architectures.classifier import check_class, check_tensors, count_labels
from models.architectures.fallback.layout import read_pair_layout
from models.architectures.protocol import ModelFiles, Shapes

if TYPE_CHECKING:
    import torch

_MOST_LAYERS = 1000
_MOST = 1 << 24
# Keys that name other code for a part of the model, or another format of its weights.
_REFUSED_KEYS = ("attn_implementation", "experts_implementation", "quantization_config", "auto_map")


@dataclass(frozen=True)
class TransformersClassifier:
    """A sequence classifier that transformers computes: an `Architecture`."""

    config: Mapping[str, Any]
    classifier: str
    num_labels: int
    positions: int
    vocab_size: int
    token_cost: int
    tensors: Shapes
    layout: InputTemplate
    warnings: tuple[str, ...]
    chunks: int = 1
    prompt: None = None

    def template(self, special: SpecialTokens) -> InputTemplate:
        """The layout of the checkpoint's tokenizer, which has its own special tokens."""
        del special
        return self.layout

    def build(self, weights: Mapping[str, "torch.Tensor"], dtype: "torch.dtype") -> "torch.nn.Module":
        """Builds the model of transformers with these weights, its classifier in float32."""
        from models.architectures.fallback.model import TransformersScorer

        return TransformersScorer(self.config, self.classifier, weights, dtype)


def classifier_types() -> frozenset[str]:
    """The model_type of every sequence classifier of transformers."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

    return frozenset(MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES)


def read_classifier(files: ModelFiles, segments: int) -> TransformersClassifier:
    """Checks a sequence classifier of a family that has no architecture of its own.

    Args:
        files: the checkpoint's.
        segments: how many texts an input has.

    Raises:
        PreflightError: it cannot be scored.
    """
    reference, model_type = files.reference, files.config["model_type"]
    check_class(files)
    if segments != SEGMENTS["mono"]:
        raise PreflightError(
            f"the checkpoint {reference} has the model_type {model_type!r}, which is scored through transformers, for "
            "mono alone: its tokenizer lays out two texts, and duo's input has three"
        )
    if len(files.modules) > 1:
        raise PreflightError(
            f"the checkpoint {reference} has modules of sentence-transformers after a {model_type!r}, which is scored "
            "through transformers: only a ...ForSequenceClassification of this family is"
        )
    _check_config(files)
    skeleton = _skeleton(files)
    classifier = _find_classifier(skeleton, reference)
    labels = count_labels(files, f"{classifier}.weight")
    tensors = _tensors(skeleton)
    check_tensors(files, tensors)
    embedding = skeleton.get_input_embeddings()
    return TransformersClassifier(
        config=files.config,
        classifier=classifier,
        num_labels=labels,
        positions=_count_positions(skeleton, reference),
        vocab_size=embedding.num_embeddings,
        token_cost=_count_products(skeleton),
        tensors=tensors,
        layout=read_pair_layout(files.folder, reference),
        warnings=(
            f"{reference} is scored through transformers, because {model_type!r} has no architecture in beamrank: "
            "slower than a native architecture",
        ),
    )


def _check_config(files: ModelFiles) -> None:
    for key in _keys(files.config):
        if any(key.endswith(refused) for refused in _REFUSED_KEYS):
            raise PreflightError(
                f"config.json of the checkpoint {files.reference} has the key {key!r:.100}: other code and quantized "
                "weights are not supported. Save the model without it"
            )


def _keys(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _keys(each)


def _skeleton(files: ModelFiles) -> Any:
    """The model that config.json describes, without memory for its weights."""
    import torch

    from models.architectures.fallback.model import make_model, read_config

    try:
        config = read_config(files.config)
        layers = getattr(config, "num_hidden_layers", 0)
        if not 0 <= layers <= _MOST_LAYERS:
            raise ValueError(f"{layers} layers")
        with torch.device("meta"):
            model = make_model(config)
    # transformers checks a configuration in parts, with errors of any type.
    except Exception as error:
        raise PreflightError(
            f"config.json of the checkpoint {files.reference} cannot be used: transformers makes no model of it: "
            f"{type(error).__name__}: {error!s:.400}"
        ) from error
    return model


def _tensors(skeleton: Any) -> dict[str, tuple[int, ...]]:
    saved = skeleton.state_dict()
    every = chain(skeleton.named_parameters(), skeleton.named_buffers())
    return {name: tuple(each.shape) for name, each in every if name in saved and each.is_floating_point()}


def _find_classifier(skeleton: Any, reference: str) -> str:
    """The name of the linear map to the logits."""
    import torch

    labels = skeleton.config.num_labels
    linear = {name: each for name, each in skeleton.named_modules() if isinstance(each, torch.nn.Linear)}
    found: list[str] = [name for name, each in linear.items() if each.out_features == labels]
    if not found:
        raise PreflightError(
            f"the checkpoint {reference} has no linear classifier over {labels} labels, so its head is not known"
        )
    return found[-1]


def _count_positions(skeleton: Any, reference: str) -> int:
    import torch

    positions = getattr(skeleton.config, "max_position_embeddings", None)
    if not isinstance(positions, int) or not 0 < positions <= _MOST:
        raise PreflightError(
            f"config.json of the checkpoint {reference} has max_position_embeddings {positions!r:.100}, which must be "
            "the largest number of tokens that the model reads"
        )
    for name, module in skeleton.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            # With padding in the table, positions start after its id.
            return positions - (0 if module.padding_idx is None else module.padding_idx + 1)
    return positions


def _count_products(skeleton: Any) -> int:
    import torch

    return sum(module.weight.numel() for module in skeleton.modules() if isinstance(module, torch.nn.Linear))
