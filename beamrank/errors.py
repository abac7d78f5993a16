"""Errors that users see. Each message names the problem, its place and effect, and a remedy."""

from typing import Any


class BeamrankError(Exception):
    """A job failed; the command ends with exit code 1.

    Attributes:
        kind: of an input that cannot be read, a short constant for the reason: `column-twice`.
        file: the input's.
        place: the line, byte or row there.
    """

    exit_code = 1

    def __init__(
        self, message: str = "", *, kind: str = "", file: str = "", place: int | None = None
    ) -> None:
        super().__init__(message)
        self.kind, self.file, self.place = kind, file, place

    @property
    def of_input(self) -> dict[str, Any]:
        """What the error says about an input, to raise it as another class."""
        return {"kind": self.kind, "file": self.file, "place": self.place}


class ConfigError(BeamrankError):
    """Flags or a configuration are wrong; found before anything starts."""

    exit_code = 2


class PreflightError(BeamrankError):
    """A file, a model or a runner is missing or invalid; found before anything starts."""

    exit_code = 3


class DataError(BeamrankError):
    """Input data is invalid."""


class ReceiptError(BeamrankError):
    """A stage's output does not match its receipts."""


class WorkerLostError(BeamrankError):
    """A worker process or a job server died: nothing is wrong with the data, and another attempt
    may succeed.
    """
