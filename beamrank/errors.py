"""Errors that users see. Each message says what, where, why it matters and what to do."""


class BeamrankError(Exception):
    """A job failed; the command ends with exit code 1."""

    exit_code = 1


class ConfigError(BeamrankError):
    """Flags or a configuration are wrong; found before anything starts."""

    exit_code = 2


class PreflightError(BeamrankError):
    """A file, a model or a runner is not as it must be; found before anything starts."""

    exit_code = 3


class DataError(BeamrankError):
    """Input data is not as it must be."""


class ReceiptError(BeamrankError):
    """A stage's output does not hold what its receipts say."""
