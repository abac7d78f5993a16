"""What a configuration leaves to names: formats, data sets of ir_datasets, pyserini's indexes and
topics.

A data set is exported once a machine, into files that beamrank reads.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

from beamrank.config.run import RunConfig, with_formats
from beamrank.errors import PreflightError, TemporaryError
from beamrank.formats.checks import Template, joined
from beamrank.formats.files import Paths, paths_of
from beamrank.formats.texts.units import Fields
from beamrank.storage.disk_cache import fetched
from beamrank.storage.documents import SHORT, digest
from beamrank.storage.stores import is_unanswered
from models.lucene.prebuilt import fetch_topics, find_prebuilt
from models.stages.planning import PlanningProgress
from models.training.config import DataConfig, DevConfig, TrainConfig

_IRDS, _PREBUILT = "irds:", "prebuilt:"
_CACHE = "irds"

Part: TypeAlias = Literal["docs", "queries", "qrels", "scoreddocs"]
_FILES: dict[Part, str] = {
    "docs": "docs.jsonl",
    "queries": "queries.jsonl",
    "qrels": "qrels.txt",
    "scoreddocs": "scoreddocs.trec",
}


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
        folder = find_prebuilt(config.index.prebuilt).folder
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
            changed["run"] = exported(section.run, "scoreddocs", progress)
        return section.model_copy(update=changed)

    dev = None if config.dev is None else files(config.dev)
    return config.model_copy(update={"data": files(config.data), "dev": dev})


def _collection(
    section: RunConfig | DataConfig | DevConfig, progress: PlanningProgress
) -> dict[str, object]:
    """The values of `corpus`, `topics` and `qrels` that a section has, as files."""
    changed: dict[str, object] = {}
    corpus, topics, qrels = section.corpus, section.topics, section.qrels
    if corpus is not None and corpus.path.startswith(_IRDS):
        file = exported(corpus.path, "docs", progress, *corpus.text_rule)
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
    files = tuple(
        fetch_topics(each.removeprefix(_PREBUILT))
        if part == "queries" and each.startswith(_PREBUILT)
        else exported(each, part, progress)
        for each in names
    )
    if files == tuple(names):
        return paths
    return files if len(files) > 1 else files[0]


def exported(
    path: str,
    part: Part,
    progress: PlanningProgress,
    fields: Fields = None,
    template: Template | None = None,
) -> str:
    """A path as it is, or the file of a part of a data set: JSONL of docs or queries, TREC qrels,
    or a TREC run.

    It is in `irds/` below BEAMRANK_CACHE, and is written again when the version of ir_datasets
    changes, which downloads what it needs and checks it.

    Args:
        path: what a key or argument names; `irds:` and an id for a data set.
        part: what is exported.
        progress: receives notes, and how many rows have been written.
        fields: of a doc or query that make its text; by default ir_datasets' own text of it.
        template: what is around these.

    Raises:
        PreflightError: ir_datasets is missing, or the data set or its part is, or cannot be
            downloaded.
    """
    if not path.startswith(_IRDS):
        return path
    try:
        import ir_datasets
    except ImportError as error:
        raise PreflightError(
            f"{path} needs the package ir_datasets: pip install 'beamrank[irds]'"
        ) from error
    name = path.removeprefix(_IRDS)
    try:
        dataset = ir_datasets.load(name)
    except (KeyError, ValueError) as error:
        raise PreflightError(
            f"ir_datasets has no data set {name!r}: see its catalog at ir-datasets.com"
        ) from error
    if not getattr(dataset, f"has_{part}")():
        raise PreflightError(
            f"the data set {name!r} of ir_datasets has no {part}: name one that has them"
        )
    # Subsets share the docs of their parent.
    owner = ir_datasets.docs_parent_id(name) or name if part == "docs" else name
    key = digest([owner, part, fields, template, ir_datasets.__version__])[:SHORT]

    def fetch(folder: Path) -> None:
        progress.note(f"exporting the {part} of {path}")
        with (
            progress.bar("export") as bar,
            open(folder / _FILES[part], "w", encoding="utf-8") as file,
        ):
            for count, line in enumerate(_lines(dataset, part, fields, template), 1):
                file.write(f"{line}\n")
                if count % 10_000 == 0:
                    bar.update(count, None, part)

    try:
        return str(fetched(_CACHE, key, fetch) / _FILES[part])
    except (OSError, RuntimeError) as error:
        kind = TemporaryError if is_unanswered(error) else PreflightError
        raise kind(f"cannot export the {part} of {path}: {error}") from error


def _lines(dataset: Any, part: Part, fields: Fields, template: Template | None) -> Iterator[str]:
    match part:
        case "docs":
            rows = (
                {"id": doc.doc_id, "contents": _text(doc, fields, template)}
                for doc in dataset.docs_iter()
            )
            yield from (json.dumps(row, ensure_ascii=False) for row in rows)
        case "queries":
            topics = (
                {"query_id": each.query_id, "text": _text(each, fields, template)}
                for each in dataset.queries_iter()
            )
            yield from (json.dumps(row, ensure_ascii=False) for row in topics)
        case "qrels":
            yield from (
                f"{each.query_id} 0 {each.doc_id} {each.relevance}" for each in dataset.qrels_iter()
            )
        case "scoreddocs":
            yield from _run_lines(dataset.scoreddocs_iter())


def _text(row: Any, fields: Fields, template: Template | None) -> str:
    if fields is None:
        return str(row.default_text())
    missing = [name for name in fields if name not in row._fields]
    if missing:
        raise PreflightError(
            f"a row of ir_datasets has no field `{missing[0]}`; it has: {', '.join(row._fields)}"
        )
    return joined([str(getattr(row, name)) for name in fields], template)


def _run_lines(rows: Iterable[Any]) -> Iterator[str]:
    """A TREC run in the order of the scores; ranks break ties in the order of the data set."""
    scores: dict[str, list[tuple[str, float]]] = {}
    for row in rows:
        scores.setdefault(row.query_id, []).append((row.doc_id, row.score))
    for query_id, docs in scores.items():
        for rank, (doc_id, score) in enumerate(sorted(docs, key=lambda each: -each[1]), 1):
            yield f"{query_id} Q0 {doc_id} {rank} {score!r} irds"
