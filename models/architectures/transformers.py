"""Any sequence classifier of transformers as a mono that transformers computes: slower than the
encoder here.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
from transformers.utils import logging

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import TEXT_COUNTS, InputTemplate
from beamrank.records import SpecialTokens
from models.architectures.encoder.family import check_types
from models.architectures.kernels.attention import Group, TokenRows
from models.architectures.protocol import (
    ELSEWHERE,
    ModelFiles,
    Shapes,
    check_class,
    check_tensors,
    count_labels,
)
from models.tokenizers.layout import pair_layout
from models.tokenizers.prompts import Prompt

_MOST_LAYERS, _MOST_POSITIONS = 1000, 1 << 24
_OTHER_CODE = "Save the model without it"
# Keys that name other code for a part of the model, or another format of its weights; and the way.
_REFUSED_KEYS = {
    "attn_implementation": _OTHER_CODE,
    "experts_implementation": _OTHER_CODE,
    "quantization_config": "Give it in bfloat16 or float32; a server can run it as it is, by "
    "`endpoint` of a `listwise` stage",
    "auto_map": ELSEWHERE,
}
_NO_ID = -1
_POSITION_TABLES = ("position_embeddings", "embed_positions", "wpe")


@dataclass(frozen=True)
class TransformersModel:
    """A model that transformers computes: an `Architecture` whose layout is its tokenizer's."""

    config: Mapping[str, Any]
    layout: InputTemplate
    num_labels: int
    positions: int
    vocab_size: int
    tensors: Shapes
    warnings: tuple[str, ...]
    prompt: Prompt | None

    @property
    def own_layout(self) -> InputTemplate | None:
        """The ids of its prompt, which an instruction decides too."""
        return self.layout if self.prompt else None

    def template(self, special: SpecialTokens) -> InputTemplate:  # noqa: ARG002
        return self.layout


@dataclass(frozen=True)
class TransformersClassifier(TransformersModel):
    """A sequence classifier; `classifier` is the tensor of the linear map to the logits."""

    classifier: str

    def build(self, weights: Mapping[str, Tensor], dtype: torch.dtype) -> nn.Module:
        """See `Architecture.build`."""
        model = load_model(self.config, find_classifier_class, weights, dtype)
        _check_dtype(model, dtype)
        return ClassifierScorer(model, self.classifier, weights, typed=any(self.layout.token_types))


def find_classifier_class(config: Any) -> Any:
    """The class of transformers for a configuration of transformers."""
    return MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[type(config)]


def read_classifier(files: ModelFiles, segments: int) -> TransformersClassifier:
    """Checks a sequence classifier that has no architecture of its own; an `ArchitectureReader`."""
    model_type = files.config["model_type"]
    if segments != TEXT_COUNTS["mono"]:
        raise PreflightError(
            f"{files} has the model_type {model_type!r}, which is scored through transformers, "
            "for mono alone: its tokenizer lays out two texts, and duo's input has three"
        )
    if len(files.modules) > 1:
        raise PreflightError(
            f"{files} has modules of sentence-transformers after a {model_type!r}, which is "
            "scored through transformers: only a ...ForSequenceClassification of this family is"
        )
    skeleton = make_skeleton(files, find_classifier_class)
    check_class(
        files, rotary=any("Rotary" in type(module).__name__ for module in skeleton.modules())
    )
    classifier = _find_classifier(skeleton, files)
    labels, tensors = count_labels(files, classifier), checked_tensors(skeleton, files)
    tables = (
        module
        for name, module in skeleton.named_modules()
        if name.endswith("token_type_embeddings")
    )
    types = next((table.num_embeddings for table in tables), None)
    if prompt := files.read_chat(segments):
        layout = prompt.template
    else:
        # XLNet's and Funnel's attention compares token types, of any number.
        is_relative = any(name.endswith("seg_embed") for name in tensors)
        reads_types = True if is_relative or types is not None else None
        layout = pair_layout(files.folder, files.reference, reads_types)
        check_types(str(files), types, layout.token_types)
    return TransformersClassifier(
        config=files.config,
        layout=layout,
        num_labels=labels,
        positions=_count_positions(skeleton, files),
        vocab_size=skeleton.get_input_embeddings().num_embeddings,
        tensors=tensors,
        warnings=(slower(files),),
        prompt=prompt,
        classifier=classifier,
    )


def slower(files: ModelFiles) -> str:
    """The warning for a model that has no architecture of its own."""
    return (
        f"{files.reference} is scored through transformers, because beamrank has no architecture "
        f"for its config.json ({files.config['model_type']!r}): slower than a native architecture"
    )


def make_skeleton(files: ModelFiles, find_class: Callable[[Any], Any], *id_inputs: str) -> Any:
    """The model of transformers that config.json describes, on the device `meta`.

    Args:
        files: the checkpoint's.
        find_class: the class of transformers for a configuration of transformers; its errors are of
            any type.
        id_inputs: what the model needs beside input_ids, such as decoder_input_ids.
    """
    for (key, value), (refused, way) in product(_items(files.config), _REFUSED_KEYS.items()):
        if key.endswith(refused):
            raise PreflightError(
                f"config.json of {files} has the key {key!r:.100} ({value!r:.200}): other code and "
                f"quantized weights are not supported. {way}"
            )
    try:
        config = AutoConfig.for_model(**files.config)
        layers = getattr(config, "num_hidden_layers", 0)
        if not 0 <= layers <= _MOST_LAYERS:
            raise ValueError(f"{layers} layers")
        if ropes := _growing_ropes(getattr(config, "rope_parameters", None)):
            raise ValueError(
                f"rotary positions of type {ropes[0]!r} depend on inputs that were scored before"
            )
        with torch.device("meta"):
            model = find_class(config)._from_config(config, attn_implementation="eager")
            _try_out(model, id_inputs)
    # transformers checks a configuration in parts, with errors of any type.
    except Exception as error:
        raise PreflightError(
            f"config.json of {files} cannot be used: transformers cannot run its model on text: "
            f"{type(error).__name__}: {error!s:.400}"
        ) from error
    return model


def load_model(
    config: Mapping[str, Any],
    find_class: Callable[[Any], Any],
    weights: Mapping[str, Tensor],
    dtype: torch.dtype,
) -> Any:
    """The model of transformers with its weights."""
    described = AutoConfig.for_model(**config)
    with without_bars():
        return find_class(described).from_pretrained(
            None,
            config=described,
            state_dict=dict(weights),
            dtype=dtype,
            attn_implementation="eager",
        )


@contextmanager
def without_bars() -> Iterator[None]:
    """Keeps the bars of transformers off the terminal."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def checked_tensors(skeleton: Any, files: ModelFiles) -> dict[str, tuple[int, ...]]:
    """The tensors of the model under the names of its files, all of which the checkpoint has."""
    saved = skeleton.state_dict()
    every = chain(skeleton.named_parameters(), skeleton.named_buffers())
    kept = {name: tensor for name, tensor in every if name in saved and tensor.is_floating_point()}
    tensors = {
        name: tuple(tensor.shape)
        for name, tensor in revert_weight_conversion(skeleton, kept).items()
    }
    check_tensors(files, tensors)
    return tensors


def _growing_ropes(parameters: object) -> list[str]:
    """The kinds of rotary positions that transformers adapts to the longest input so far."""
    if not isinstance(parameters, dict):
        return []
    nested = [kind for value in parameters.values() for kind in _growing_ropes(value)]
    return [
        kind for kind in (parameters.get("rope_type"), *nested) if kind in ("dynamic", "longrope")
    ]


def _try_out(model: Any, id_inputs: tuple[str, ...]) -> None:
    """Runs the model on ids alone, which all models here read. Raises an error of any type where it
    needs more.
    """
    model.get_input_embeddings().num_embeddings  # noqa: B018
    ids = torch.zeros(1, 4, dtype=torch.long)
    try:
        with torch.inference_mode():
            model(**dict.fromkeys(("input_ids", *id_inputs), ids))
    except RuntimeError as error:
        # torch's error for a tensor without values: what depends on values cannot be tried here.
        if "meta" not in str(error).lower():
            raise


def _check_dtype(model: Any, dtype: torch.dtype) -> None:
    """Raises PreflightError for a model whose code computes partly in float32, such as the first
    DeBERTa's.
    """
    if dtype == torch.float32:
        return
    try:
        with torch.inference_mode():
            model(input_ids=torch.zeros(1, 4, dtype=torch.long))
    # Some models refuse inputs like this one, with errors of any type; torch raises errors of
    # dtypes.
    except Exception as error:
        if re.search("dtype|scalar type", str(error)):
            name = str(dtype).removeprefix("torch.")
            raise PreflightError(
                f"transformers cannot compute a {model.config.model_type} in {name} "
                f"({error!s:.200}): set dtype to float32"
            ) from error


def _items(value: object) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _items(part)


def _find_classifier(skeleton: Any, files: ModelFiles) -> str:
    """The weights of the linear map to the logits."""
    labels = skeleton.config.num_labels
    linear = {
        name: module for name, module in skeleton.named_modules() if isinstance(module, nn.Linear)
    }
    heads: list[str] = [name for name, layer in linear.items() if layer.out_features == labels]
    if not heads:
        raise PreflightError(
            f"{files} has no linear classifier over {labels} labels, so its head is not known"
        )
    return f"{heads[-1]}.weight"


def _count_positions(skeleton: Any, files: ModelFiles) -> int:
    """The largest number of tokens; positions that are relative to others may have no limit."""
    tables = [
        module
        for name, module in skeleton.named_modules()
        if name.endswith(_POSITION_TABLES) and isinstance(module, nn.Embedding)
    ]
    rows = min((table.num_embeddings for table in tables), default=_MOST_POSITIONS)
    positions = getattr(skeleton.config, "max_position_embeddings", None)
    # XLNet's configuration says so that there is no limit.
    positions = rows if positions in (None, -1) else positions
    if not isinstance(positions, int) or not 0 < positions <= _MOST_POSITIONS:
        raise PreflightError(
            f"config.json of {files} has max_position_embeddings {positions!r:.100}, which must "
            "be the largest number of tokens that the model reads"
        )
    # With padding in the table, positions start after its id.
    padding = tables[0].padding_idx if tables else None
    return positions - (0 if padding is None else padding + 1)


class TransformersScorer(nn.Module, ABC):
    """Log-odds by a model of transformers, which gets inputs without padding.

    A subclass says how the model is called: `logits`. The head is computed in float32.
    """

    def __init__(self, model: Any, head: nn.Module) -> None:
        super().__init__()
        self.model = model
        head.register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))

    @abstractmethod
    def logits(self, ids: Tensor, types: Tensor) -> Tensor:
        """int64[b, n] ids and token types -> float32[b, 1 or 2]."""

    def forward(self, rows: TokenRows, **given: Any) -> Tensor:
        """Scores the inputs of a batch: float32[b]; `given` is of the subclass's `logits`."""
        return torch.cat([self._score(group, rows, given) for group in rows.groups])

    def _score(self, group: Group, rows: TokenRows, given: Mapping[str, Any]) -> Tensor:
        """Log-odds of inputs of one length; on a CPU one at a time, because a sum may round by its
        place in a batch.
        """
        ids, types = (group.split(array).long() for array in (rows.token_ids, rows.token_types))
        size = 1 if rows.token_ids.device.type == "cpu" else group.count
        chunks = zip(torch.split(ids, size), torch.split(types, size), strict=True)
        logits = torch.cat([self.logits(*chunk, **given) for chunk in chunks])
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits[:, 0]


class ClassifierScorer(TransformersScorer):
    """A sequence classifier, which gets token types if it is `typed`: some add an embedding for an
    untrained type.
    """

    def __init__(
        self, model: Any, classifier: str, weights: Mapping[str, Tensor], typed: bool
    ) -> None:
        name = classifier.removesuffix(".weight")
        head: nn.Module = model.get_submodule(name).float()
        head.load_state_dict({part: weights[f"{name}.{part}"] for part in head.state_dict()})
        super().__init__(model, head)
        self._typed = typed
        # Decoders look for padding after the last token; there is none.
        if model.config.pad_token_id is None:
            model.config.pad_token_id = _NO_ID

    def logits(self, ids: Tensor, types: Tensor) -> Tensor:
        given = {"token_type_ids": types} if self._typed else {}
        logits: Tensor = self.model(
            input_ids=ids, attention_mask=torch.ones_like(ids), **given
        ).logits
        return logits
