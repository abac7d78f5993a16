"""The formats that a configuration leaves to `auto`."""

from pydantic import ValidationError

from beamrank.config.run import RunConfig
from beamrank.config.yaml import explain
from beamrank.errors import ConfigError
from beamrank.formats import corpora, topics
from beamrank.formats.corpora import CorpusConfig
from beamrank.formats.folders import shown_paths
from beamrank.formats.topics import TopicsConfig


def with_formats(config: RunConfig) -> tuple[RunConfig, list[str]]:
    """A configuration that names its formats, as the plan records it, and notes on those that were guessed.

    Raises:
        PreflightError: a format cannot be guessed.
        ConfigError: a guessed format does not go with other keys.
    """
    resolved: dict[str, CorpusConfig | TopicsConfig] = {
        "corpus": corpora.resolved(config.corpus),
        "topics": topics.resolved(config.topics),
    }
    found = {key: section for key, section in resolved.items() if section != getattr(config, key)}
    if not found:
        return config, []
    notes = [f"{shown_paths(each.path)} is read as `{key}.format: {each.format}`" for key, each in found.items()]
    try:
        values = {name: getattr(config, name) for name in config.model_fields_set}
        return type(config).model_validate(values | found), notes
    except ValidationError as error:
        raise ConfigError(f"{'; '.join(notes)}: {explain(error, RunConfig)}") from error
