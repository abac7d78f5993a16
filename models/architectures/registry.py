"""The architectures, by the class or the model_type that config.json names."""

from collections.abc import Mapping
from typing import Any

from beamrank.errors import PreflightError
from beamrank.plugins import Registry
from models.architectures.protocol import Architecture, ArchitectureReader, ModelFiles

_FAMILIES = "models.architectures.families:"
ARCHITECTURES: Registry[ArchitectureReader] = Registry(
    "architecture",
    "beamrank.architectures",
    {
        "bert": f"{_FAMILIES}BERT.read",
        "chunked_bert": "models.architectures.chunked_bert:read_chunked_bert",
        "roberta": f"{_FAMILIES}ROBERTA.read",
        "xlm-roberta": f"{_FAMILIES}ROBERTA.read",
        "camembert": f"{_FAMILIES}ROBERTA.read",
        "electra": f"{_FAMILIES}ELECTRA.read",
        "distilbert": f"{_FAMILIES}DISTILBERT.read",
        "modernbert": f"{_FAMILIES}MODERNBERT.read",
    },
)


def find_reader(config: Mapping[str, Any]) -> ArchitectureReader | None:
    """The architecture of a config.json: by its class, else by its model_type."""
    names = (ModelFiles("", config).class_name, config.get("model_type"))
    found = next((name for name in names if isinstance(name, str) and name in ARCHITECTURES), None)
    return None if found is None else ARCHITECTURES[found]


def read_architecture(files: ModelFiles, segments: int) -> Architecture:
    """The architecture of a checkpoint for inputs of so many texts, or that which transformers computes."""
    if reader := find_reader(files.config):
        return reader(files, segments)
    from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

    model_type, own_code = files.config.get("model_type"), files.config.get("auto_map")
    if own_code or not isinstance(model_type, str) or model_type not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES:
        name = f" ({files.class_name})" if files.class_name else ""
        raise PreflightError(
            f"{files} has the model_type {model_type!r:.100}{name:.100}, which cannot be scored; known: "
            f"{', '.join(map(repr, ARCHITECTURES))}, every sequence classifier of transformers"
            + (". The code that it comes with (auto_map) is never run" if own_code else "")
        )
    from models.architectures.transformers import read_classifier

    return read_classifier(files, segments)
