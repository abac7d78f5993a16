"""Any sequence classifier of transformers as a mono that transformers computes."""

from typing import Any

from beamrank.errors import PreflightError
from beamrank.ranking.input_layout import SEGMENTS
from models.architectures.classifier import check_class, count_labels
from models.architectures.encoder.family import refuse_missing_types
from models.architectures.fallback.architecture import TransformersModel, slower
from models.architectures.fallback.skeleton import checked_tensors, count_products, make_skeleton
from models.architectures.fallback.tasks import Readout
from models.architectures.protocol import ModelFiles
from models.tokenizers.layout import pair_layout

_MOST = 1 << 24


def classifier_types() -> frozenset[str]:
    """The model_type of every sequence classifier of transformers."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

    return frozenset(MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES)


def read_classifier(files: ModelFiles, segments: int) -> TransformersModel:
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
    skeleton = make_skeleton(files, "classifier")
    classifier = _find_classifier(skeleton, reference)
    labels, tensors = count_labels(files, classifier), checked_tensors(skeleton, files)
    types = _count_types(skeleton)
    layout = pair_layout(files.folder, reference, reads_types=None if types is None else True)
    refuse_missing_types(types, layout.token_types, f"the checkpoint {reference}")
    return TransformersModel(
        config=files.config,
        readout=Readout("classifier", classifier),
        num_labels=labels,
        positions=_count_positions(skeleton, reference),
        vocab_size=skeleton.get_input_embeddings().num_embeddings,
        token_cost=count_products(skeleton),
        tensors=tensors,
        layout=layout,
        warnings=(slower(files),),
    )


def _find_classifier(skeleton: Any, reference: str) -> str:
    """The weights of the linear map to the logits."""
    import torch

    labels = skeleton.config.num_labels
    linear = {name: each for name, each in skeleton.named_modules() if isinstance(each, torch.nn.Linear)}
    found: list[str] = [name for name, each in linear.items() if each.out_features == labels]
    if not found:
        raise PreflightError(
            f"the checkpoint {reference} has no linear classifier over {labels} labels, so its head is not known"
        )
    return f"{found[-1]}.weight"


def _count_types(skeleton: Any) -> int | None:
    """The rows of the table of token types; None without one."""
    tables = (each for name, each in skeleton.named_modules() if name.endswith("token_type_embeddings"))
    return next((each.num_embeddings for each in tables), None)


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
