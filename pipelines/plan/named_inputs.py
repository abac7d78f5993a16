"""The inputs that a configuration names: formats, data sets and indexes."""

from collections.abc import Iterator

from pydantic import ValidationError

from beamrank.config.run import RunConfig
from beamrank.config.stages import CandidatesConfig
from beamrank.config.yaml import explain
from beamrank.errors import ConfigError
from beamrank.formats import corpora, topics
from beamrank.formats.columns import column_names
from beamrank.formats.corpora import CorpusConfig
from beamrank.formats.files import Paths, paths_of, shown_paths
from beamrank.formats.topics import TopicsConfig
from beamrank.sources import Part, fetch_part, is_named
from models.stages.planning import PlanningProgress
from models.training.config import DataConfig, DevConfig, TrainConfig


def named_inputs(config: RunConfig, progress: PlanningProgress) -> RunConfig:
    """A configuration whose inputs are files of named formats. Data sets and topics are fetched; an
    index is not yet.

    Raises:
        PreflightError: a name does not exist, cannot be fetched, or a format cannot be guessed.
        ConfigError: a guessed format does not go with other keys.
    """
    changed = _collection(config, progress)
    first, *later = config.cascade
    if isinstance(first.section, CandidatesConfig):
        run = _files(first.section.run, "scoreddocs", progress)
        section = first.section.model_copy(update={"run": run})
        changed["cascade"] = (first._replace(section=section), *later)
    if config.index is not None and config.index.prebuilt is not None:
        folder = fetch_part(config.index.named, "index", None)
        changed["index"] = config.index.model_copy(update={"path": folder})
    changed = {key: value for key, value in changed.items() if value != getattr(config, key)}
    named, notes = with_formats(config.model_copy(update=changed) if changed else config)
    for note in notes:
        progress.note(note)
    return named


def with_formats(config: RunConfig) -> tuple[RunConfig, list[str]]:
    """A configuration that names its formats, as the plan records it, and notes on formats that
    were guessed.

    Raises:
        PreflightError: a format cannot be guessed.
        ConfigError: a guessed format does not go with other keys.
    """
    corpus, given_topics = corpora.resolved(config.corpus), topics.resolved(config.topics)
    resolved: dict[str, CorpusConfig | TopicsConfig] = {"corpus": corpus, "topics": given_topics}
    guessed = {key: section for key, section in resolved.items() if section != getattr(config, key)}
    notes = [
        note
        for key, section in guessed.items()
        for note in _guesses(key, section, getattr(config, key))
    ]
    notes += [*corpora.notes(corpus), *topics.notes(given_topics)]
    if not guessed:
        return config, notes
    try:
        values = {name: getattr(config, name) for name in config.model_fields_set}
        return type(config).model_validate(values | guessed), notes
    except ValidationError as error:
        raise ConfigError(f"{'; '.join(notes)}: {explain(error, RunConfig)}") from error


def _guesses(
    key: str, section: CorpusConfig | TopicsConfig, given: CorpusConfig | TopicsConfig
) -> Iterator[str]:
    if section.format != given.format:
        yield f"{shown_paths(section.path)} is read as `{key}.format: {section.format}`"
    if section.columns != given.columns:
        named = ", ".join(
            f"{meaning}: {name}" for meaning, name in column_names(section.columns).items()
        )
        yield f"{shown_paths(section.path)} is read with `{key}.columns: {{{named}}}`"


def named_training(config: TrainConfig, progress: PlanningProgress) -> TrainConfig:
    """The configuration of a training with files for its data and dev run; raises PreflightError as
    `named_inputs`.
    """

    def files(section: DataConfig | DevConfig) -> DataConfig | DevConfig:
        changed = _collection(section, progress)
        if section.run is not None:
            changed["run"] = fetch_part(section.run, "scoreddocs", progress)
        return section.model_copy(update=changed)

    dev = None if config.dev is None else files(config.dev)
    return config.model_copy(update={"data": files(config.data), "dev": dev})


def _collection(
    section: RunConfig | DataConfig | DevConfig, progress: PlanningProgress
) -> dict[str, object]:
    """The values of `corpus`, `topics` and `qrels` that a section has, as files."""
    changed: dict[str, object] = {}
    corpus, topics, qrels = section.corpus, section.topics, section.qrels
    if corpus is not None and is_named(corpus.path):
        file = fetch_part(corpus.path, "docs", progress, *corpus.text_rule)
        plain = {"path": file, "format": "jsonl", "fields": None, "template": None}
        changed["corpus"] = corpus.model_copy(update=plain)
    if topics is not None:
        changed["topics"] = topics.model_copy(
            update={"path": _files(topics.path, "queries", progress)}
        )
    if qrels is not None:
        changed["qrels"] = qrels.model_copy(update={"path": _files(qrels.path, "qrels", progress)})
    return changed


def _files(paths: Paths, part: Part, progress: PlanningProgress) -> Paths:
    """The files of topics or qrels: the value itself where it names files."""
    names = paths_of(paths)
    files = tuple(fetch_part(name, part, progress) for name in names)
    if files == tuple(names):
        return paths
    return files if len(files) > 1 else files[0]
