"""Checkpoints: BERT sequence classifiers with one or two logits, checked by name and shape before anything starts.

The check reads config.json and the header of the weights; it needs no torch where these are safetensors.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter

from beamrank.errors import ConfigError, PreflightError
from beamrank.storage.digested import DigestedFile
from beamrank.storage.documents import validated
from models.architectures.bert_shape import TOKEN_TYPES, BertShape, read_shape
from models.architectures.chunk_sizes import CHUNKED_BERT
from models.checkpoints.files import (
    SAFETENSORS,
    SENTENCE_TRANSFORMERS,
    digest_files,
    digest_of,
    read_config,
    read_json,
    tensor_shapes,
    weights_file,
)
from models.checkpoints.sources import locate

if TYPE_CHECKING:
    import torch

SEGMENTS = {"mono": 2, "duo": 3}

_POSITIVE = {"relevant", "positive", "true", "yes", "1", "label_1", "entailment", "duplicate", "match"}
_NEGATIVE = {"irrelevant", "negative", "false", "no", "0", "label_0", "not_entailment", "contradiction"}
_NEGATIVE |= {f"{prefix}_{name}" for prefix in ("not", "non") for name in _POSITIVE}
_Label = bool | int | float | Annotated[str, Field(max_length=200)]


@dataclass(frozen=True)
class _Module:
    """An entry of modules.json."""

    type: str


_LABELS: TypeAdapter[dict[int, _Label] | None] = TypeAdapter(dict[int, _Label] | None)
_MODULES = TypeAdapter(list[_Module])


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on this machine.

    Attributes:
        folder: config.json, tokenizer and weights, in the format of Hugging Face.
        digest: SHA-256 over these files.
        reference: what leads to it from any machine; a Hugging Face id carries its commit.
        kind: `mono` or `duo`, what it is used as.
        num_labels: logits, 1 or 2.
        weights: the weights' file name.
        shape: the model's sizes as in the files.
        files: what the digest covers.
        warnings: what its user should know.
    """

    folder: str
    digest: str
    reference: str
    kind: str
    num_labels: int
    weights: str
    shape: BertShape
    files: tuple[DigestedFile, ...] = field(default=(), compare=False)
    warnings: tuple[str, ...] = ()

    @contextmanager
    def held(self) -> Iterator[None]:
        """`DigestedFile.held` for all files; weights are mapped into memory, so they are read while a model scores."""
        with ExitStack() as stack:
            for file in self.files:
                stack.enter_context(file.held())
            yield

    def check_length(self, max_length: int) -> None:
        """Raises PreflightError where inputs of max_length tokens are too long for the model."""
        if max_length > self.shape.positions:
            raise PreflightError(
                f"the checkpoint {self.reference} knows {self.shape.positions} positions and input.max_length is "
                f"{max_length}: set input.max_length to {self.shape.positions} or less"
            )

    def check_vocabulary(self, ids: int) -> None:
        """Raises PreflightError where a tokenizer gives ids, 0 to `ids` - 1, that the model has no embedding for."""
        if ids > self.shape.vocab_size:
            raise PreflightError(
                f"the tokenizer of the checkpoint {self.reference} has {ids:,} ids and the model's embedding table "
                f"{self.shape.vocab_size:,} rows: it is not the tokenizer that the model was trained with, and some of "
                "its tokens have no embedding. Give the checkpoint its own tokenizer.json or vocab.txt"
            )


def resolve_checkpoint(reference: str, kind: str) -> Checkpoint:
    """Finds a checkpoint, brings it to this machine and checks that it can be used.

    Args:
        reference: `embedded:mono`, `embedded:duo`, a folder, an fsspec URL, or a Hugging Face id, `@revision` or not.
        kind: `mono` or `duo`.

    Raises:
        ConfigError: there is no such kind.
        PreflightError: the checkpoint is not there, cannot be reached or is not a BERT classifier that ranks.
    """
    if kind not in SEGMENTS:
        raise ConfigError(f"a checkpoint is used as mono or duo, not as {kind!r}")
    folder, definite = locate(reference)
    return _check(folder, definite, kind)


def load_weights(checkpoint: Checkpoint) -> "dict[str, torch.Tensor]":
    """The tensors of the classifier, float32 on the CPU, with a row for each of the kind's segments."""
    import torch

    for warning in checkpoint.warnings:
        logging.getLogger(__name__).warning("%s", warning)
    path = os.path.join(checkpoint.folder, checkpoint.weights)
    if checkpoint.weights == SAFETENSORS:
        from safetensors.torch import load_file

        tensors = load_file(path)
    else:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    weights = {name: tensors[name].float() for name in checkpoint.shape.tensors(checkpoint.num_labels)}
    types = weights[TOKEN_TYPES]
    missing_rows = max(0, SEGMENTS[checkpoint.kind] - len(types))
    weights[TOKEN_TYPES] = torch.cat([types, types.new_zeros(missing_rows, types.shape[1])])
    return weights


def _check(folder: str, reference: str, kind: str) -> Checkpoint:
    config = read_config(folder, reference)
    _check_architecture(config, kind, folder, reference)
    weights = weights_file(folder)
    found = tensor_shapes(os.path.join(folder, weights), reference)
    num_labels = _count_labels(config, found, reference)
    shape = read_shape(config, found, reference)
    _check_tensors(found, shape.tensors(num_labels), reference)
    files = digest_files(folder)
    return Checkpoint(
        folder=folder,
        digest=digest_of(files),
        reference=reference,
        kind=kind,
        num_labels=num_labels,
        weights=weights,
        shape=shape,
        files=files,
        warnings=_check_token_types(shape, kind, reference),
    )


def _check_architecture(config: Mapping[str, Any], kind: str, folder: str, reference: str) -> None:
    found = config.get("model_type")
    if found == CHUNKED_BERT and kind != "mono":
        raise PreflightError(f"the checkpoint {reference} reads passages in chunks, which is for mono alone")
    if found not in ("bert", CHUNKED_BERT):
        raise PreflightError(
            f"the checkpoint {reference} has the model_type {found!r}; only 'bert' and beamrank's own {CHUNKED_BERT!r} "
            "can be scored"
        )
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise PreflightError(
            f"the checkpoint {reference} has position_embedding_type {config['position_embedding_type']!r}; only "
            "'absolute' can be scored"
        )
    if config.get("is_decoder"):
        raise PreflightError(f"the checkpoint {reference} is a decoder (is_decoder): a re-ranker reads both ways")
    if os.path.isfile(os.path.join(folder, SENTENCE_TRANSFORMERS)):
        _check_modules(os.path.join(folder, SENTENCE_TRANSFORMERS), reference)


def _check_modules(path: str, reference: str) -> None:
    """A cross-encoder of sentence-transformers is one Transformer; what follows one would have to be run too."""
    try:
        modules = validated(_MODULES, read_json(path))
    except ValueError as error:
        raise PreflightError(f"{path} is not a list of the modules of sentence-transformers: {error}") from error
    others = [module.type.rpartition(".")[2] for module in modules[1:]]
    if others:
        raise PreflightError(
            f"the checkpoint {reference} is a sentence-transformers model that goes on with {', '.join(others)}: an "
            "embedding model, say. A re-ranker's score is the logits of a BERT sequence classifier (a cross-encoder)"
        )


def _count_labels(config: Mapping[str, Any], found: Mapping[str, tuple[int, ...]], reference: str) -> int:
    if "classifier.weight" not in found:
        raise PreflightError(
            f"the checkpoint {reference} has no classifier.weight: it is a bare encoder, which gives no scores. "
            "Fine-tune it as a re-ranker first"
        )
    classifier = found["classifier.weight"]
    if len(classifier) != 2:
        raise PreflightError(f"the checkpoint {reference} has a classifier.weight of {classifier}, not one row a label")
    labels = classifier[0]
    if labels not in (1, 2):
        raise PreflightError(f"the checkpoint {reference} has {labels} labels; a re-ranker has one logit or two")
    names = _label_names(config, reference)
    if names is not None and len(names) != labels:
        raise PreflightError(
            f"the checkpoint {reference} contradicts itself: id2label has {len(names)} labels, its weights {labels}"
        )
    if names is not None and labels == 2:
        _check_label_order(names, reference)
    return labels


def _label_names(config: Mapping[str, Any], reference: str) -> dict[int, _Label] | None:
    try:
        return validated(_LABELS, config.get("id2label"))
    except ValueError as error:
        raise PreflightError(
            f"the id2label of the checkpoint {reference} is not a mapping from numbers to names: {error}"
        ) from error


def _check_label_order(id2label: Mapping[int, _Label], reference: str) -> None:
    plain = {key: str(name).strip().lower().replace("-", "_").replace(" ", "_") for key, name in id2label.items()}
    if plain.get(0) in _POSITIVE or plain.get(1) in _NEGATIVE:
        raise PreflightError(
            f"the checkpoint {reference} has a reversed id2label: {dict(id2label)}. The score is logit 1 - logit 0, so "
            "label 1 must be the relevant one, or every ranking would be upside down; swap the classifier's two rows"
        )


def _check_tensors(
    found: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]], reference: str
) -> None:
    missing = [name for name in expected if name not in found]
    if missing:
        raise PreflightError(
            f"the checkpoint {reference} lacks {len(missing)} of the {len(expected)} tensors that its config.json "
            f"calls for: {', '.join(missing[:3])}"
        )
    for name, size in expected.items():
        if found[name] != size:
            raise PreflightError(f"the checkpoint {reference}: {name} is {found[name]}, config.json calls for {size}")


def _check_token_types(shape: BertShape, kind: str, reference: str) -> tuple[str, ...]:
    segments = SEGMENTS[kind]
    if shape.token_types >= segments:
        return ()
    if shape.token_types < 2:
        raise PreflightError(
            f"the checkpoint {reference} knows {shape.token_types} token type, and {kind}BERT's input has {segments} "
            "segments: it cannot have been trained for this"
        )
    return (
        f"the checkpoint {reference} has token type embeddings for 2 segments, duoBERT's input has 3. The second doc "
        "gets a row of zeros, as TensorFlow gave the models of 2019 that came so; any other model scores badly",
    )
