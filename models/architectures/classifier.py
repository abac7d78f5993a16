"""Checks that every sequence classifier shares: its labels, its tensors, and that nothing follows it."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from beamrank.errors import PreflightError
from beamrank.storage.documents import validated
from models.architectures.protocol import ModelFiles, Shapes

_NUMBER = re.compile(r"\.\d+\.")
_POSITIVE = {"relevant", "positive", "true", "yes", "1", "label_1", "entailment", "duplicate", "match"}
_NEGATIVE = {"irrelevant", "negative", "false", "no", "0", "label_0", "not_entailment", "contradiction"}
_NEGATIVE |= {f"{prefix}_{name}" for prefix in ("not", "non") for name in _POSITIVE}
_Label = bool | int | float | Annotated[str, Field(max_length=200)]
_LABELS: TypeAdapter[dict[int, _Label] | None] = TypeAdapter(dict[int, _Label] | None)


def check_class(files: ModelFiles) -> None:
    """Makes sure that a checkpoint is an encoder that is scored by the code of its family.

    Raises:
        PreflightError: it has another head, reads one way, adds something to attention, or comes with its own code.
    """
    reference, config = files.reference, files.config
    classes = config.get("architectures")
    name = str(classes[0]) if isinstance(classes, list) and classes else ""
    if "For" in name and not name.endswith("ForSequenceClassification"):
        raise PreflightError(
            f"the checkpoint {reference} is a {name:.100}; a re-ranker's score is the logits of a sequence classifier. "
            "Fine-tune it as a ...ForSequenceClassification first"
        )
    check_attention(config, reference)


def check_attention(config: Mapping[str, Any], reference: str) -> None:
    """Makes sure that a model is computed as its family: it reads both ways, by positions that are embedded.

    Raises:
        PreflightError: it does otherwise, or comes with its own code.
    """
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise PreflightError(
            f"the checkpoint {reference} has position_embedding_type {config['position_embedding_type']!r}; only "
            "'absolute' can be scored"
        )
    if config.get("is_decoder"):
        raise PreflightError(f"the checkpoint {reference} is a decoder (is_decoder): a re-ranker reads both ways")
    if config.get("auto_map"):
        raise PreflightError(
            f"the checkpoint {reference} comes with its own code (auto_map), which is never run: its model may differ "
            f"from the {config['model_type']} that beamrank knows"
        )


def count_labels(files: ModelFiles, classifier: str) -> int:
    """The number of logits of the head, by the rows of its last matrix, the tensor `classifier`.

    Raises:
        PreflightError: there is no head, it does not have one or two rows, or its labels are not `check_labels`'s.
    """
    reference = files.reference
    if classifier not in files.tensors:
        raise PreflightError(
            f"the checkpoint {reference} has no {classifier}: it is a bare encoder, which gives no scores. Fine-tune "
            "it as a re-ranker first"
        )
    size = files.tensors[classifier]
    if len(size) != 2:
        raise PreflightError(f"the checkpoint {reference} has a {classifier} of {size}, not one row a label")
    labels = size[0]
    if labels not in (1, 2):
        raise PreflightError(f"the checkpoint {reference} has {labels} labels; a re-ranker has one logit or two")
    check_labels(files.config, labels, reference)
    return labels


def check_labels(config: Mapping[str, Any], labels: int, reference: str) -> None:
    """Makes sure that a config.json names as many labels as the head has, and the relevant one last.

    Raises:
        PreflightError: it does not.
    """
    try:
        names = validated(_LABELS, config.get("id2label"))
    except ValueError as error:
        raise PreflightError(
            f"the id2label of the checkpoint {reference} is not a mapping from numbers to names: {error}"
        ) from error
    if names is not None and len(names) != labels:
        raise PreflightError(
            f"the checkpoint {reference} contradicts itself: id2label has {len(names)} labels, its weights {labels}"
        )
    if names is not None and labels == 2:
        _check_label_order(names, reference)


def _check_label_order(id2label: Mapping[int, _Label], reference: str) -> None:
    plain = {key: str(name).strip().lower().replace("-", "_").replace(" ", "_") for key, name in id2label.items()}
    if plain.get(0) in _POSITIVE or plain.get(1) in _NEGATIVE:
        raise PreflightError(
            f"the checkpoint {reference} has a reversed id2label: {dict(id2label)}. The score is logit 1 - logit 0, so "
            "label 1 must be the relevant one, or every ranking would be upside down; swap the classifier's two rows"
        )


def check_tensors(files: ModelFiles, expected: Shapes) -> None:
    """Makes sure that a checkpoint has the tensors that its config.json requires.

    Raises:
        PreflightError: one is missing or has another shape, or there are more layers or biases.
    """
    missing = [name for name in expected if name not in files.tensors]
    if missing:
        raise PreflightError(
            f"the checkpoint {files.reference} lacks {len(missing)} of the {len(expected)} tensors that its "
            f"config.json calls for: {', '.join(missing[:3])}"
        )
    for name, size in expected.items():
        if files.tensors[name] != size:
            raise PreflightError(
                f"the checkpoint {files.reference}: {name} is {files.tensors[name]}, config.json calls for {size}"
            )
    refuse_unread(files.reference, files.tensors, expected)


def refuse_unread(reference: str, tensors: Shapes, expected: Shapes) -> None:
    """Raises PreflightError for weights that the model of config.json would leave out: of further layers, or biases."""
    kinds = {_NUMBER.sub(".#.", name) for name in expected}
    parts = {name.rpartition(".")[0] for name in expected}
    unread = [
        name
        for name in tensors.keys() - expected.keys()
        if _NUMBER.sub(".#.", name) in kinds or (name.endswith(".bias") and name.rpartition(".")[0] in parts)
    ]
    if unread:
        raise PreflightError(
            f"the checkpoint {reference} has {len(unread)} tensors that config.json does not call for "
            f"({', '.join(sorted(unread)[:3])}): without them its scores would be those of another model. Give it the "
            "config.json that it was saved with (the number of layers, the keys about biases)"
        )
