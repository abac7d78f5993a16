"""Runs, read and put in the order in which every measure reads them."""

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beamrank.errors import DataError
from beamrank.formats.checks import checked_queries
from beamrank.formats.decode.lines import ROWS_AT_ONCE
from beamrank.formats.files import Format, InputFile, Paths, input_files
from beamrank.formats.id_places import IdPlaces, repeated_rows
from beamrank.formats.reader import TableReader, check_all, notes_of
from beamrank.formats.rejects import Rejects
from beamrank.formats.run_order import (
    Ordered,
    Run,
    RunLayout,
    RunNotes,
    Ties,
    order_rows,
    run_values,
)
from beamrank.formats.run_writer import text_formats
from beamrank.formats.schemas import NO_HINTS, RUN, Hints, Schema
from beamrank.formats.values import RowError
from beamrank.notes import SILENT, Progress
from beamrank.plugins import Registry
from beamrank.storage import files as storage

RunScores: TypeAlias = dict[str, dict[str, float]]

# The number of a row: its file in the upper bits, its line in the lower ones.
_LINE_BITS = 40


FORMATS: Registry[Format] = Registry(
    "run format",
    "beamrank.runs",
    {
        "labelled": "beamrank.formats.named_formats:LABELLED",
        "top_ranked": "beamrank.formats.named_formats:TOP_RANKED",
    },
)


def run_files(paths: Paths) -> list[InputFile]:
    """The files of a run, as `input_files`."""
    return input_files(paths, "run")


def open_run_file(
    file: InputFile | pa.Table, hints: Hints = NO_HINTS, rejects: Rejects | None = None
) -> TableReader:
    """Opens a file of a run, or a table in memory."""
    return TableReader(file, run_schema(), hints, rejects, FORMATS)


def run_schema() -> Schema:
    """The meanings of a run's columns, in the text formats of packages too."""
    return replace(
        RUN, unnamed={name: run_format.columns for name, run_format in text_formats().items()}
    )


class _RunFiles:
    """The files of a run, whose rows are read as one.

    Attributes:
        files: each one's rows.
        layout: the layout of the first file with rows.
    """

    def __init__(self, url: str | pa.Table, hints: Hints, rejects: Rejects | None) -> None:
        files: Sequence[InputFile | pa.Table] = run_files(url) if isinstance(url, str) else [url]
        self.files = [open_run_file(file, hints, rejects) for file in files]
        self.layout = RunLayout(self.files[0].url)

    def tables(self, number: Callable[[Any], NDArray[np.int32]]) -> Iterator[pa.Table]:
        """The rows, in order: query, doc_id, rank, score, position; `number` gives the query of
        each query_id.
        """
        for place, file in enumerate(self.files):
            layout = RunLayout.of(file)
            self.layout = self.layout if self.layout.columns else layout
            self.layout.check(layout)
            for batch in filter(len, file.batches()):
                columns = {name: batch.column(name) for name in ("doc_id", "rank", "score")}
                position = batch.column("place").to_numpy() + (place << _LINE_BITS)
                yield pa.table(
                    {"query": number(batch.column("query_id")), **columns, "position": position}
                )

    def ordered(
        self, tables: Iterable[pa.Table], ties: Ties, name_of: Callable[[int], str]
    ) -> Iterator[Ordered]:
        """The rows of some queries at a time, of tables by query; a doc that a query has twice is a
        problem.
        """
        for rows in _whole_queries(tables):
            for second, first in repeated_rows(rows["query"], rows["doc_id"]):
                places = rows["position"].take(pa.array([second, first])).to_pylist()
                (here, line), (there, before) = (divmod(place, 1 << _LINE_BITS) for place in places)
                of_file = "" if len(self.files) == 1 else f" of {self.files[there].url}"
                already = f"{self.files[there].decoder.noun} {before}{of_file} has"
                reason = (
                    f"has doc {rows['doc_id'][second].as_py()!r} of query "
                    f"{name_of(rows['query'][second].as_py())!r}, which {already} too"
                )
                self.files[here].bad(line, RowError(reason, "doc-twice", fatal=True))
            yield order_rows(rows.drop_columns(["position"]), "query", self.layout, ties)


def read_run(
    url: str | pa.Table,
    *,
    ties: Ties = "doc_id",
    hints: Hints = NO_HINTS,
    rejects: Rejects | None = None,
    progress: Progress = SILENT,
) -> Run:
    """Reads a run from any fsspec URL: a file, compressed or not, a folder or a glob. Its format is
    detected.

    A run with scores is ordered by float32 score, descending, ties by doc_id, descending in UTF-8
    bytes: trec_eval's order. Its rank column is not read. A run without scores is ordered by rank,
    ties in the order of the file.

    With `ties="rank"` the rank column, if there is one, orders tied scores, as for a run that feeds
    a stage. `url` can be a table in memory; `hints` names columns that have other names than
    usual; `rejects` takes the rows that cannot be used, which are left out: by default each is an
    error.

    Raises:
        PreflightError: the file does not exist, or lines are wrong: columns, ranks, scores that are
            not finite in float32, invalid UTF-8, ids that cannot be used (formats/checks.py), more
            than may be left out; or, always, a doc_id twice for a query, or rows of another format.
            The first of each kind is listed.
    """
    files = _RunFiles(url, hints, rejects)
    numbers: dict[str, int] = {}

    def number(query_ids: Any) -> NDArray[np.int32]:
        encoded = query_ids.dictionary_encode()
        of_ids = [
            numbers.setdefault(query_id, len(numbers))
            for query_id in encoded.dictionary.to_pylist()
        ]
        return np.asarray(np.array(of_ids, np.int32)[encoded.indices.to_numpy()])

    held: deque[pa.Table] = deque()
    rows = 0
    for table in files.tables(number):
        held.append(table)
        rows += len(table)
        progress.update(rows, None, f"rows of {storage.name(files.files[0].url)} read")
    ordered = files.ordered(_by_query(held), ties, lambda number: list(numbers)[number])
    first = next((file for file in files.files if file.binding), files.files[0])
    # A file with names has the format with the same columns.
    name = first.layout or ("trec" if "score" in first.binding else "msmarco")
    run = _run(ordered, numbers, files.layout, name)
    check_all(files.files, rows)
    comments = [comment for file in files.files for comment in file.decoder.comments]
    in_columns = sum(len(comment.split()) == first.decoder.width for comment in comments)
    rejected = notes_of(files.files, rejects)
    return replace(
        run,
        notes=replace(
            run.notes, comments=len(comments), comment_rows=in_columns, rejected=rejected
        ),
    )


def run_of(scores: Mapping[str, Mapping[str, float]], *, ties: Ties = "doc_id") -> Run:
    """A run of a dictionary, in the order of `read_run`; `ties="rank"` keeps its order where scores
    tie in float32.

    Queries without docs are left out.

    Raises:
        DataError: there are no rows, an id cannot be used, or a score is not finite in float32.
    """
    queries = {query_id: docs for query_id, docs in checked_queries("the run", scores) if docs}
    if not queries:
        raise DataError("the run has no rows: give at least one query with one doc")
    doc_ids = [doc_id for docs in queries.values() for doc_id in docs]
    values = np.concatenate([_finite(query_id, docs) for query_id, docs in queries.items()])
    counts = [len(docs) for docs in queries.values()]
    columns = [
        np.repeat(np.arange(len(counts), dtype=np.int32), counts),
        doc_ids,
        np.arange(len(doc_ids)),
        values,
    ]
    rows = pa.table(columns, ["query", "doc_id", "rank", "score"])
    layout = RunLayout("", columns=(("rank", ""), ("score", "")))
    numbers = {query_id: number for number, query_id in enumerate(queries)}
    return _run([order_rows(rows, "query", layout, ties)], numbers, layout, "trec")


def _finite(query_id: str, docs: Mapping[str, float]) -> NDArray[np.float32]:
    try:
        scores = np.frombuffer(array("f", docs.values()), np.float32)
    except (TypeError, OverflowError) as error:
        raise DataError(
            f"query {query_id!r} of the run has a score that cannot be used: {error}"
        ) from error
    infinite = np.flatnonzero(~np.isfinite(scores))
    if len(infinite):
        at = infinite[0]
        raise DataError(
            f"query {query_id!r}: the score of doc {list(docs)[at]!r} is not finite in float32: "
            f"{scores[at]}"
        )
    return scores


def _by_query(held: deque[pa.Table]) -> Iterator[pa.Table]:
    """Tables sorted by the number of the query; gives up what was read where it is sorted."""
    queries = np.concatenate([np.empty(0, np.int32), *(table["query"] for table in held)])
    if (queries[1:] >= queries[:-1]).all():
        while held:
            yield held.popleft()
        return
    table = pa.concat_tables(held)
    order = np.argsort(queries, kind="stable")
    for start in range(0, len(order), ROWS_AT_ONCE):
        yield table.take(pa.array(order[start : start + ROWS_AT_ONCE]))


def _whole_queries(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """All rows of some queries at a time, of tables sorted by the number of the query."""
    rest: list[pa.Table] = []
    for table in tables:
        queries = table["query"].to_numpy()
        last = int(np.searchsorted(queries, queries[-1]))
        if last or (rest and rest[-1]["query"][-1].as_py() != queries[-1]):
            yield pa.concat_tables([*rest, table.slice(0, last)])
            rest = []
        rest.append(table.slice(last))
    if rest:
        yield pa.concat_tables(rest)


def _run(parts: Iterable[Ordered], numbers: Mapping[str, int], layout: RunLayout, name: str) -> Run:
    """A run of all its queries in the order of their numbers."""
    starts, values, doc_ids = [np.empty(0, np.int64)], [np.empty(0, np.float32)], list[Any]()
    rows = tied = disagreements = 0
    for ordered in parts:
        starts.append(ordered.begins + rows)
        values.append(run_values(ordered, layout))
        doc_ids += ordered.rows["doc_id"].chunks
        rows, tied, disagreements = (
            rows + len(ordered.rows),
            tied + ordered.tied,
            disagreements + ordered.disagreements.sum(),
        )
    ties = (tied, 0) if layout.has_scores else (0, tied)
    counts = (len(numbers), rows, *ties, int(disagreements))
    notes = RunNotes(name, *counts, has_scores=layout.has_scores)
    places = IdPlaces(pa.array(list(numbers), pa.string()))
    columns = (
        np.concatenate([*starts, [rows]]),
        pa.chunked_array(doc_ids, pa.string()),
        np.concatenate(values),
    )
    return Run(places, *columns, notes)
