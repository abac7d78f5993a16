"""What the contract reads with: one function for each input, and the places of errors."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from types import MappingProxyType
from typing import Any, TypeAlias

from beamrank.errors import BeamrankError, PreflightError
from beamrank.formats.columns import DocColumns, TopicColumns
from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.excluded import read_excluded
from beamrank.formats.qrels import read_qrels
from beamrank.formats.rejects import NO_LIMIT, Rejects
from beamrank.formats.run_order import Run
from beamrank.formats.runs import read_run
from beamrank.formats.schemas import (
    DOCS,
    EXCLUDED,
    QRELS,
    RUN,
    TOPICS,
    Hints,
    Schema,
    bind,
)
from beamrank.formats.topics import TopicsConfig, read_topics
from beamrank.formats.values import RowError
from beamrank.frames import qrels_of_frame, run_of_frame, texts_of
from beamrank.ranking.input_layout import INPUT_TEXTS
from beamrank.records import BadRow
from beamrank.storage.digested import RowRange, digest_file
from contrib.pairs.tables import ID, find_pairs, read_pairs
from tests.beamrank.formats.contract import (
    Left,
    Outcome,
    Read,
    Refused,
    Row,
    Source,
)

Columns: TypeAlias = Mapping[str, str]
# The rows that are read, and those that are left out.
Found: TypeAlias = tuple[Iterable[Row], Sequence[BadRow]]


def outcome(kind: str, source: Source, columns: Columns = MappingProxyType({})) -> Outcome:
    """What reading an input gives; a crash is a refusal of its own kind."""
    of_frame = not isinstance(source.given, str)
    read = (OF_FRAMES if of_frame else READERS)[kind]
    try:
        rows, left_out = read(source.given, columns)
        found = tuple(rows)
    except BeamrankError as error:
        return Refused(error.kind, _place(error, source, of_frame))
    # A reader that fails in another way is what the contract is to show, not an error of the test.
    except Exception as error:
        return Refused(f"crash: {type(error).__name__}")
    places = tuple((each.kind, _place(each, source, of_frame)) for each in left_out)
    return Left(found, places) if places else Read(found)


# The entry points.


def _docs(path: str, columns: Columns) -> Found:
    config = CorpusConfig(path=path, columns=DocColumns(**columns) if columns else None)
    rejects = Rejects("docs", NO_LIMIT)
    batches = [batch for unit in list_units(config) for batch in read_unit(unit, rejects)]
    rows = [row for each in batches for row in zip(each.doc_ids, each.texts, strict=True)]
    return rows, _left_out(rejects)


def _topics(path: str, columns: Columns) -> Found:
    rejects = Rejects("topics", NO_LIMIT)
    config = TopicsConfig(path=path, columns=TopicColumns(**columns) if columns else None)
    table = read_topics(config, rejects).table
    columns_of_topics = table.select(["query_id", "text"]).to_pydict().values()
    return zip(*columns_of_topics, strict=True), _left_out(rejects)


def _left_out(rejects: Rejects) -> list[BadRow]:
    return [row for _, row in rejects.rows]


def _run(path: str, columns: Columns) -> Found:
    rejects = Rejects("run", NO_LIMIT)
    return _rows_of_run(read_run(path, hints=Hints(columns), rejects=rejects)), _left_out(rejects)


def _rows_of_run(run: Run) -> list[Row]:
    return [(q, d, score) for q, docs in run.to_dict().items() for d, score in docs.items()]


def _ranked(path: str, columns: Columns) -> Found:
    rows, left_out = _run(path, columns)
    return _with_ranks(rows), left_out


def _with_ranks(rows: Iterable[Row]) -> list[Row]:
    """Rows of a run without scores, whose values are minus the ranks."""
    return [(query_id, doc_id, -value) for query_id, doc_id, value in rows]


def _qrels(path: str, columns: Columns) -> Found:
    rejects = Rejects("qrels", NO_LIMIT)
    found = read_qrels(path, Hints(columns), rejects).relevance
    return _judged(found), _left_out(rejects)


def _judged(relevance: Mapping[str, Mapping[str, int]]) -> list[Row]:
    return [(q, d, level) for q, docs in relevance.items() for d, level in docs.items()]


def _excluded(path: str, _columns: Columns) -> Found:
    pairs = read_excluded(path).pairs or {}
    return sorted((query_id, doc_id) for query_id, docs in pairs.items() for doc_id in docs), ()


def _pairs(path: str, columns: Columns) -> Found:
    rows, left_out = list[Row](), list[BadRow]()
    for file in (each for each in find_pairs([path], columns) if each.rows):
        whole = RowRange(digest_file(file.url), 0, file.rows)
        found = read_pairs(whole, "mono", file.id_type, columns)
        ids = map(str, compress(found.ids.to_pylist(), found.usable))
        rows += zip(ids, *found.texts, strict=True)
        left_out += found.bad
    return rows, left_out


READERS: Mapping[str, Callable[[str, Columns], Found]] = {
    "docs": _docs,
    "topics": _topics,
    "run": _run,
    "ranked": _ranked,
    "qrels": _qrels,
    "excluded": _excluded,
    "pairs": _pairs,
}
OF_FRAMES: Mapping[str, Callable[[Any, Columns], Found]] = {
    "docs": lambda frame, _: (texts_of("the corpus", "doc_id", frame).items(), ()),
    "topics": lambda frame, _: (texts_of("the topics", "query_id", frame).items(), ()),
    "run": lambda frame, _: (_rows_of_run(run_of_frame(frame)), ()),
    "ranked": lambda frame, _: (_with_ranks(_rows_of_run(run_of_frame(frame))), ()),
    "qrels": lambda frame, _: (_judged(qrels_of_frame(frame).relevance), ()),
}


# The place of a row that is left out.
_PLACES: Mapping[str, str] = {
    r"at byte (\d+)$": "byte",
    r"at row (\d+)$": "row",
    r":(\d+)$": "line",
}
# Kinds that say something of a whole file; some readers name its first row too.
_OF_FILES = (
    "column-",
    "header-",
    "format-",
    "frame-",
    "no-",
    "list-",
    "mixed-",
    "damaged",
    "parts-",
)


def _place(error: BeamrankError | BadRow, source: Source, of_frame: bool) -> int | None:
    """The row that an error names: of files from 1, of frames from 0."""
    if error.kind.startswith(_OF_FILES):
        return None
    number = getattr(error, "place", None)
    if isinstance(number, int):
        return source.row("line" if source.rows else "row", number, 0 if of_frame else 1)
    for pattern, unit in _PLACES.items():
        if match := re.search(pattern, str(number)):
            return source.row(unit, int(match[1]), int(unit == "row"))
    return None


# Names.


def meanings(kind: str, names: Sequence[str], texts: Sequence[str]) -> dict[str, str]:
    """The name of each meaning among the names of a table's columns, of which `texts` hold strings.

    Docs have their id, `text`, and `title` where it is joined; topics their id and `text`; pairs
    `id`, `query`, `doc` or `doc_i` and `doc_j`.

    Raises:
        BeamrankError: one is missing, or several columns could have a meaning.
    """
    try:
        found = _meanings(kind, names, texts)
    except RowError as error:
        raise PreflightError(f"the file {error}", kind=error.kind) from error
    if found is None:
        raise PreflightError(
            f"the file has no column for each meaning of {kind}", kind="column-missing"
        )
    return found


_SCHEMAS: Mapping[str, Schema] = {
    "docs": DOCS,
    "topics": TOPICS,
    "run": RUN,
    "qrels": QRELS,
    "excluded": EXCLUDED,
}


def _meanings(kind: str, names: Sequence[str], texts: Sequence[str]) -> dict[str, str] | None:
    if kind == "pairs":
        needed = ((ID, *each) for each in INPUT_TEXTS.values())
        whole = next((each for each in needed if set(each) <= set(names)), None)
        return None if whole is None else {name: name for name in whole}
    schema = _SCHEMAS[kind]
    places = bind(schema, names, texts=[at for at, name in enumerate(names) if name in texts])
    if not schema.is_complete(places):
        return None
    found = {meaning: names[at[-1]] for meaning, at in places.items()}
    titles = [names[at[0]] for at in places.values() if len(at) > 1]
    return {**found, "title": titles[0]} if titles else found
