"""Data sets of ir_datasets by their ids, exported once a machine into files that beamrank reads."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from beamrank.errors import PreflightError
from beamrank.storage.documents import SHORT, digest
from models.checkpoints.disk_cache import add_entry, cache_folder, exclusive, find_entry
from models.stages.planning import PlanningProgress

PREFIX = "irds:"
_KIND = "irds"

Part: TypeAlias = Literal["docs", "queries", "qrels", "scoreddocs"]


def exported(path: str, part: Part, progress: PlanningProgress, fields: Sequence[str] | None = None) -> str:
    """What a key or argument names: a path as it is, or the file of a part of the data set `irds:ID`; see `export`."""
    return export(path, part, progress, fields) if path.startswith(PREFIX) else path


def export(reference: str, part: Part, progress: PlanningProgress, fields: Sequence[str] | None = None) -> str:
    """The file of a part of a data set: JSONL of docs or queries, TREC qrels, or a TREC run.

    It is in `irds/` below BEAMRANK_CACHE, and is written again when the version of ir_datasets changes, which downloads
    what it needs and checks it.

    Args:
        reference: `irds:` and the id.
        part: what is exported.
        progress: receives notes, and how many rows have been written.
        fields: of a doc or query that make its text; by default ir_datasets' own text of it.

    Raises:
        PreflightError: ir_datasets is missing, or the data set or its part is, or cannot be downloaded.
    """
    ir_datasets = _library(reference)
    name = reference.removeprefix(PREFIX)
    try:
        dataset = ir_datasets.load(name)
    except (KeyError, ValueError) as error:
        raise PreflightError(f"ir_datasets has no data set {name!r}: see its catalog at ir-datasets.com") from error
    if not getattr(dataset, f"has_{part}")():
        raise PreflightError(f"the data set {name!r} of ir_datasets has no {part}: name one that has them")
    # Subsets share the docs of their parent.
    owner = ir_datasets.docs_parent_id(name) or name if part == "docs" else name
    key = digest([owner, part, fields, ir_datasets.__version__])[:SHORT]

    def fetch(folder: Path) -> str:
        progress.note(f"exporting the {part} of {reference}")
        with progress.bar("export") as bar, open(folder / _FILES[part], "w", encoding="utf-8") as file:
            for count, line in enumerate(_lines(dataset, part, fields), 1):
                file.write(f"{line}\n")
                if count % 10_000 == 0:
                    bar.update(count, None, part)
        return key

    with exclusive(cache_folder(_KIND) / f".{key}.lock"):
        try:
            folder = find_entry(_KIND, key) or add_entry(_KIND, key, fetch)
        except (OSError, RuntimeError) as error:
            raise PreflightError(f"cannot export the {part} of {reference}: {error}") from error
    return str(folder / _FILES[part])


_FILES: dict[Part, str] = {
    "docs": "docs.jsonl",
    "queries": "queries.jsonl",
    "qrels": "qrels.txt",
    "scoreddocs": "scoreddocs.trec",
}


def _library(reference: str) -> Any:
    try:
        import ir_datasets
    except ImportError as error:
        raise PreflightError(f"{reference} needs the package ir_datasets: pip install 'beamrank[irds]'") from error
    return ir_datasets


def _lines(dataset: Any, part: Part, fields: Sequence[str] | None) -> Iterator[str]:
    match part:
        case "docs":
            rows = ({"id": doc.doc_id, "contents": _text(doc, fields)} for doc in dataset.docs_iter())
            yield from (json.dumps(row, ensure_ascii=False) for row in rows)
        case "queries":
            topics = ({"query_id": each.query_id, "text": _text(each, fields)} for each in dataset.queries_iter())
            yield from (json.dumps(row, ensure_ascii=False) for row in topics)
        case "qrels":
            yield from (f"{each.query_id} 0 {each.doc_id} {each.relevance}" for each in dataset.qrels_iter())
        case "scoreddocs":
            yield from _run_lines(dataset.scoreddocs_iter())


def _text(row: Any, fields: Sequence[str] | None) -> str:
    if fields is None:
        return str(row.default_text())
    missing = [name for name in fields if name not in row._fields]
    if missing:
        raise PreflightError(f"a row of ir_datasets has no field `{missing[0]}`; it has: {', '.join(row._fields)}")
    return " ".join(filter(None, (str(getattr(row, name)) for name in fields)))


def _run_lines(rows: Iterable[Any]) -> Iterator[str]:
    """A TREC run in the order of the scores; ranks break ties in the order of the data set."""
    scores: dict[str, list[tuple[str, float]]] = {}
    for row in rows:
        scores.setdefault(row.query_id, []).append((row.doc_id, row.score))
    for query_id, docs in scores.items():
        for rank, (doc_id, score) in enumerate(sorted(docs, key=lambda each: -each[1]), 1):
            yield f"{query_id} Q0 {doc_id} {rank} {score!r} irds"
