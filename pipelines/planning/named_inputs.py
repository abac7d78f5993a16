"""What a configuration leaves to names: formats, data sets of ir_datasets, pyserini's indexes and topics."""

from beamrank.config.guessed_formats import with_formats
from beamrank.config.run import RunConfig
from models.lucene.index.prebuilt import find_prebuilt
from models.lucene.prebuilt_topics import fetch_topics
from models.stages.planning import PlanningProgress
from pipelines.planning import irds
from pipelines.planning.irds import Part

_PREBUILT = "prebuilt:"


def named_inputs(config: RunConfig, progress: PlanningProgress) -> RunConfig:
    """A configuration whose inputs are files of named formats. Data sets and topics are fetched; an index is not yet.

    Raises:
        PreflightError: a name does not exist, cannot be fetched, or a format cannot be guessed.
        ConfigError: a guessed format does not go with other keys.
    """

    def path(value: str, part: Part) -> str:
        return irds.export(value, part, progress) if value.startswith(irds.PREFIX) else value

    def paths(value: str | tuple[str, ...], part: Part) -> str | tuple[str, ...]:
        return path(value, part) if isinstance(value, str) else tuple(path(each, part) for each in value)

    corpus, topics = config.corpus, config.topics
    if corpus.path.startswith(irds.PREFIX):
        file = irds.export(corpus.path, "docs", progress, corpus.fields)
        corpus = corpus.model_copy(update={"path": file, "format": "jsonl", "fields": None})
    given = [topics.path] if isinstance(topics.path, str) else topics.path
    fetched = tuple(_topics(each, progress) for each in given)
    if fetched != tuple(given):
        topics = topics.model_copy(update={"path": fetched if len(fetched) > 1 else fetched[0]})
    changed: dict[str, object] = {"corpus": corpus, "topics": topics}
    if config.qrels is not None:
        changed["qrels"] = paths(config.qrels, "qrels")
    if config.candidates is not None:
        run = path(config.candidates.run, "scoreddocs")
        changed["candidates"] = config.candidates.model_copy(update={"run": run})
    if config.index is not None and config.index.prebuilt is not None:
        folder = find_prebuilt(config.index.prebuilt).folder
        changed["index"] = config.index.model_copy(update={"path": folder})
    changed = {key: value for key, value in changed.items() if value != getattr(config, key)}
    named, notes = with_formats(config.model_copy(update=changed) if changed else config)
    for note in notes:
        progress.note(note)
    return named


def _topics(path: str, progress: PlanningProgress) -> str:
    if path.startswith(_PREBUILT):
        return fetch_topics(path.removeprefix(_PREBUILT))
    return irds.export(path, "queries", progress) if path.startswith(irds.PREFIX) else path
