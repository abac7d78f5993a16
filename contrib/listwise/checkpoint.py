"""The checkpoint of a causal language model: its files and their digest."""

from typing import NamedTuple

from beamrank.errors import PreflightError
from models.checkpoints.files import digest_files, digest_of, read_config
from models.checkpoints.sources import locate


class LanguageModel(NamedTuple):
    """A checkpoint on this machine: its folder, its definite reference, and its digest."""

    folder: str
    reference: str
    digest: str

    @classmethod
    def read(cls, reference: str) -> "LanguageModel":
        """Brings a checkpoint here.

        Raises:
            PreflightError: it is missing, or quantized.
        """
        folder, definite = locate(reference)
        config = read_config(folder, definite)
        for key in ("quantization_config", "auto_map"):
            if key in config:
                raise PreflightError(
                    f"the checkpoint {definite} has {key} in its config.json, which is not read "
                    "here: serve it, and give `endpoint`"
                )
        return cls(folder, definite, digest_of(digest_files(folder), folder))
