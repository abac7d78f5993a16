"""Data sets of ir_datasets as files that beamrank reads, each exported once a machine."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from beamrank.errors import PreflightError, TemporaryError
from beamrank.formats.checks import Template, joined
from beamrank.formats.texts.units import Fields
from beamrank.sources import Part
from beamrank.storage.disk_cache import fetched
from beamrank.storage.documents import SHORT, digest
from beamrank.storage.stores import is_unanswered

_CACHE = "irds"
_FILES: dict[Part, str] = {
    "docs": "docs.jsonl",
    "queries": "queries.jsonl",
    "qrels": "qrels.txt",
    "scoreddocs": "scoreddocs.trec",
}


def fetch_part(
    name: str,
    part: Part,
    progress: Any,
    fields: Fields = None,
    template: Template | None = None,
) -> str:
    """As `beamrank.sources.fetch_part`.

    The file is in `irds/` below BEAMRANK_CACHE, and is written again when the version of
    ir_datasets changes, which downloads what it needs and checks it.

    Raises:
        PreflightError: ir_datasets is missing, or the data set or its part is, or cannot be
            downloaded.
    """
    try:
        import ir_datasets
    except ImportError as error:
        raise PreflightError(
            f"irds:{name} needs the package ir_datasets: pip install '.[irds]'"
        ) from error
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
        progress.note(f"exporting the {part} of irds:{name}")
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
        raise kind(f"cannot export the {part} of irds:{name}: {error}") from error


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
                {"query_id": topic.query_id, "text": str(topic.default_text())}
                for topic in dataset.queries_iter()
            )
            yield from (json.dumps(row, ensure_ascii=False) for row in topics)
        case "qrels":
            yield from (
                f"{row.query_id} 0 {row.doc_id} {row.relevance}" for row in dataset.qrels_iter()
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
        for rank, (doc_id, score) in enumerate(sorted(docs, key=lambda pair: -pair[1]), 1):
            yield f"{query_id} Q0 {doc_id} {rank} {score!r} irds"
