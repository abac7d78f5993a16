"""The architectures, by the class or the model_type that config.json names."""

from collections.abc import Mapping
from typing import Any

from beamrank.errors import PreflightError
from beamrank.plugins import Registry
from models.architectures.protocol import Architecture, ArchitectureReader, ModelFiles
from models.architectures.transformers import classifier_types, read_classifier

_HERE = "models.architectures."
ARCHITECTURES: Registry[ArchitectureReader] = Registry(
    "architecture",
    "beamrank.architectures",
    {
        "bert": f"{_HERE}bert:BERT.read",
        "chunked_bert": f"{_HERE}chunked_bert:read_chunked_bert",
        "roberta": f"{_HERE}bert_variants:ROBERTA.read",
        "xlm-roberta": f"{_HERE}bert_variants:ROBERTA.read",
        "camembert": f"{_HERE}bert_variants:ROBERTA.read",
        "electra": f"{_HERE}bert_variants:ELECTRA.read",
        "distilbert": f"{_HERE}bert_variants:DISTILBERT.read",
        "modernbert": f"{_HERE}modernbert:MODERNBERT.read",
    },
)


def find_reader(config: Mapping[str, Any]) -> ArchitectureReader | None:
    """The architecture of a config.json: by its class, else by its model_type.

    Raises:
        PreflightError: its package cannot be imported.
    """
    classes = config.get("architectures")
    names = (classes[0] if isinstance(classes, list) and classes else None, config.get("model_type"))
    found = next((name for name in names if isinstance(name, str) and name in ARCHITECTURES), None)
    return None if found is None else ARCHITECTURES[found]


def read_architecture(files: ModelFiles, segments: int) -> Architecture:
    """Finds the architecture of a checkpoint and reads it; without one of its own, transformers computes the model.

    Args:
        files: the checkpoint's.
        segments: how many texts an input has.

    Raises:
        PreflightError: the architecture is not known, or the checkpoint cannot be scored.
    """
    if reader := find_reader(files.config):
        return reader(files, segments)
    model_type = files.config.get("model_type")
    if not isinstance(model_type, str) or files.config.get("auto_map") or model_type not in classifier_types():
        raise PreflightError(_unknown(files))
    return read_classifier(files, segments)


def _unknown(files: ModelFiles) -> str:
    model_type, classes = files.config.get("model_type"), files.config.get("architectures")
    name = f" ({classes[0]})" if isinstance(classes, list) and classes else ""
    code = ". The code that it comes with (auto_map) is never run" if files.config.get("auto_map") else ""
    return (
        f"the checkpoint {files.reference} has the model_type {model_type!r:.100}{name:.100}, which cannot be scored; "
        f"known: {', '.join(map(repr, ARCHITECTURES))}, every sequence classifier of transformers{code}"
    )
