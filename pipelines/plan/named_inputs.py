"""What a configuration leaves to names: formats, data sets and indexes."""

from beamrank.config.run import RunConfig, with_formats
from beamrank.formats.files import Paths, paths_of
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
    if config.candidates is not None:
        run = _files(config.candidates.run, "scoreddocs", progress)
        changed["candidates"] = config.candidates.model_copy(update={"run": run})
    if config.index is not None and config.index.prebuilt is not None:
        folder = fetch_part(config.index.named, "index", None)
        changed["index"] = config.index.model_copy(update={"path": folder})
    changed = {key: value for key, value in changed.items() if value != getattr(config, key)}
    named, notes = with_formats(config.model_copy(update=changed) if changed else config)
    for note in notes:
        progress.note(note)
    return named


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
    files = tuple(fetch_part(each, part, progress) for each in names)
    if files == tuple(names):
        return paths
    return files if len(files) > 1 else files[0]
