"""What a configuration leaves to names: the formats of its inputs."""

from beamrank.config.guessed_formats import with_formats
from beamrank.config.run import RunConfig
from beamrank.progress import Progress


def named_inputs(config: RunConfig, progress: Progress) -> RunConfig:
    """A configuration that names the formats of its inputs; those that were guessed are noted.

    Raises:
        PreflightError: a format cannot be guessed.
        ConfigError: a guessed format does not go with other keys.
    """
    named, notes = with_formats(config)
    for note in notes:
        progress.note(note)
    return named
