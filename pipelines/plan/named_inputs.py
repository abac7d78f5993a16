"""What a configuration leaves to names: formats, data sets of ir_datasets, pyserini's indexes and topics."""

from beamrank.config.guessed_formats import with_formats
from beamrank.config.run import RunConfig
from beamrank.formats.corpora import CorpusConfig
from beamrank.formats.files import paths_of
from beamrank.formats.topics import TopicsConfig
from models.lucene.prebuilt import fetch_topics, find_prebuilt
from models.stages.planning import PlanningProgress
from models.training.config import DataConfig, DevConfig, TrainConfig
from pipelines.plan import irds
from pipelines.plan.irds import exported

_PREBUILT = "prebuilt:"


def named_inputs(config: RunConfig, progress: PlanningProgress) -> RunConfig:
    """A configuration whose inputs are files of named formats. Data sets and topics are fetched; an index is not yet.

    Raises:
        PreflightError: a name does not exist, cannot be fetched, or a format cannot be guessed.
        ConfigError: a guessed format does not go with other keys.
    """
    changed = _collection(config, progress)
    if config.candidates is not None:
        run = exported(config.candidates.run, "scoreddocs", progress)
        changed["candidates"] = config.candidates.model_copy(update={"run": run})
    if config.index is not None and config.index.prebuilt is not None:
        folder = find_prebuilt(config.index.prebuilt).folder
        changed["index"] = config.index.model_copy(update={"path": folder})
    changed = {key: value for key, value in changed.items() if value != getattr(config, key)}
    named, notes = with_formats(config.model_copy(update=changed) if changed else config)
    for note in notes:
        progress.note(note)
    return named


def named_training(config: TrainConfig, progress: PlanningProgress) -> TrainConfig:
    """The configuration of a training whose data and dev run are files.

    Raises:
        PreflightError: a name does not exist, or cannot be fetched.
    """

    def files(section: DataConfig | DevConfig) -> DataConfig | DevConfig:
        changed = _collection(section, progress)
        if section.run is not None:
            changed["run"] = exported(section.run, "scoreddocs", progress)
        return section.model_copy(update=changed)

    dev = None if config.dev is None else files(config.dev)
    return config.model_copy(update={"data": files(config.data), "dev": dev})


def _collection(section: RunConfig | DataConfig | DevConfig, progress: PlanningProgress) -> dict[str, object]:
    """The values of `corpus`, `topics` and `qrels` that a section has, as files."""
    changed: dict[str, object] = {}
    if section.corpus is not None:
        changed["corpus"] = _corpus(section.corpus, progress)
    if section.topics is not None:
        changed["topics"] = _topics(section.topics, progress)
    qrels = section.qrels
    if qrels is not None:
        files = tuple(exported(each, "qrels", progress) for each in paths_of(qrels))
        if files != paths_of(qrels):
            changed["qrels"] = files[0] if isinstance(qrels, str) else files
    return changed


def _corpus(corpus: CorpusConfig, progress: PlanningProgress) -> CorpusConfig:
    if not corpus.path.startswith(irds.PREFIX):
        return corpus
    file = exported(corpus.path, "docs", progress, corpus.fields)
    return corpus.model_copy(update={"path": file, "format": "jsonl", "fields": None})


def _topics(topics: TopicsConfig, progress: PlanningProgress) -> TopicsConfig:
    given = [topics.path] if isinstance(topics.path, str) else topics.path
    files = tuple(
        fetch_topics(each.removeprefix(_PREBUILT))
        if each.startswith(_PREBUILT)
        else exported(each, "queries", progress)
        for each in given
    )
    if files == tuple(given):
        return topics
    return topics.model_copy(update={"path": files if len(files) > 1 else files[0]})
