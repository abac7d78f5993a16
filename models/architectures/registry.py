"""The known architectures, by the model_type of config.json."""

from beamrank.errors import PreflightError
from models.architectures.bert import BERT
from models.architectures.chunk_sizes import CHUNKED_BERT
from models.architectures.protocol import Architecture, ArchitectureReader, ModelFiles

ARCHITECTURES: dict[str, ArchitectureReader] = {"bert": BERT.read, CHUNKED_BERT: BERT.read}


def read_architecture(files: ModelFiles, segments: int) -> Architecture:
    """Finds the architecture of a checkpoint and reads it.

    Args:
        files: the checkpoint's.
        segments: how many texts an input has.

    Raises:
        PreflightError: the architecture is not known, or the checkpoint cannot be scored.
    """
    model_type = files.config.get("model_type")
    reader = ARCHITECTURES.get(model_type) if isinstance(model_type, str) else None
    if reader is None:
        classes = files.config.get("architectures")
        name = f" ({classes[0]})" if isinstance(classes, list) and classes else ""
        raise PreflightError(
            f"the checkpoint {files.reference} has the model_type {model_type!r}{name}, which cannot be scored; known: "
            f"{', '.join(map(repr, ARCHITECTURES))}"
        )
    return reader(files, segments)
