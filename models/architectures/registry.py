"""The known architectures, by the model_type of config.json."""

from beamrank.errors import PreflightError
from models.architectures.bert import BERT
from models.architectures.chunked_bert import CHUNKED_BERT, read_chunked_bert
from models.architectures.distilbert import DISTILBERT
from models.architectures.electra import ELECTRA
from models.architectures.fallback.classifier import classifier_types, read_classifier
from models.architectures.fallback.generator import GENERATORS, is_generator, read_generator
from models.architectures.modernbert import MODERNBERT
from models.architectures.protocol import Architecture, ArchitectureReader, ModelFiles
from models.architectures.roberta import ROBERTA

ARCHITECTURES: dict[str, ArchitectureReader] = {
    "bert": BERT.read,
    CHUNKED_BERT: read_chunked_bert,
    "roberta": ROBERTA.read,
    "xlm-roberta": ROBERTA.read,
    "camembert": ROBERTA.read,
    "electra": ELECTRA.read,
    "distilbert": DISTILBERT.read,
    "modernbert": MODERNBERT.read,
}


def read_architecture(files: ModelFiles, segments: int) -> Architecture:
    """Finds the architecture of a checkpoint and reads it; without one of its own, transformers computes the model.

    Args:
        files: the checkpoint's.
        segments: how many texts an input has.

    Raises:
        PreflightError: the architecture is not known, or the checkpoint cannot be scored.
    """
    model_type = files.config.get("model_type")
    if is_generator(files.config) and not files.config.get("auto_map"):
        return read_generator(files, segments)
    reader = ARCHITECTURES.get(model_type) if isinstance(model_type, str) else None
    if reader is not None:
        return reader(files, segments)
    if not isinstance(model_type, str) or files.config.get("auto_map") or model_type not in classifier_types():
        raise PreflightError(_unknown(files))
    return read_classifier(files, segments)


def _unknown(files: ModelFiles) -> str:
    model_type, classes = files.config.get("model_type"), files.config.get("architectures")
    name = f" ({classes[0]})" if isinstance(classes, list) and classes else ""
    code = ". The code that it comes with (auto_map) is never run" if files.config.get("auto_map") else ""
    return (
        f"the checkpoint {files.reference} has the model_type {model_type!r:.100}{name:.100}, which cannot be scored; "
        f"known: {', '.join(map(repr, ARCHITECTURES))}, every sequence classifier of transformers, "
        f"{', '.join(GENERATORS)}{code}"
    )
