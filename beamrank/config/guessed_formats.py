"""The formats that a configuration leaves to `auto`."""

from collections.abc import Iterator

from pydantic import ValidationError

from beamrank.config.run import RunConfig
from beamrank.config.yaml import explain
from beamrank.errors import ConfigError
from beamrank.formats import corpora, topics
from beamrank.formats.columns import column_names
from beamrank.formats.corpora import CorpusConfig
from beamrank.formats.files import shown_paths
from beamrank.formats.topics import TopicsConfig


def with_formats(config: RunConfig) -> tuple[RunConfig, list[str]]:
    """A configuration that names its formats, as the plan records it, and notes on those that were guessed.

    Raises:
        PreflightError: a format cannot be guessed.
        ConfigError: a guessed format does not go with other keys.
    """
    corpus, given_topics = corpora.resolved(config.corpus), topics.resolved(config.topics)
    resolved: dict[str, CorpusConfig | TopicsConfig] = {"corpus": corpus, "topics": given_topics}
    found = {key: section for key, section in resolved.items() if section != getattr(config, key)}
    notes = [note for key, section in found.items() for note in _guesses(key, section, getattr(config, key))]
    notes += [*corpora.notes(corpus), *topics.notes(given_topics)]
    if not found:
        return config, notes
    try:
        values = {name: getattr(config, name) for name in config.model_fields_set}
        return type(config).model_validate(values | found), notes
    except ValidationError as error:
        raise ConfigError(f"{'; '.join(notes)}: {explain(error, RunConfig)}") from error


def _guesses(key: str, section: CorpusConfig | TopicsConfig, given: CorpusConfig | TopicsConfig) -> Iterator[str]:
    if section.format != given.format:
        yield f"{shown_paths(section.path)} is read as `{key}.format: {section.format}`"
    if section.columns != given.columns:
        named = ", ".join(f"{meaning}: {name}" for meaning, name in column_names(section.columns).items())
        yield f"{shown_paths(section.path)} is read with `{key}.columns: {{{named}}}`"
