"""Runs and qrels as dictionaries and frames: how Python code reads, writes and evaluates them."""

import logging
import os
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TypeAlias

from beamrank.errors import ConfigError
from beamrank.evaluation.evaluate import Evaluation, evaluate_one, without
from beamrank.evaluation.measures import parse_measures, split_measures
from beamrank.formats import qrels, run_writer, runs
from beamrank.formats.columns import TABLES, Columns, checked_hints
from beamrank.formats.excluded import excluded_of
from beamrank.formats.run_writer import text_formats
from beamrank.formats.runs import RunScores
from beamrank.formats.schemas import QRELS, RUN
from beamrank.frames import Frame, qrels_of_frame, run_of_frame
from beamrank.section import Texts, texts_of

_Path: TypeAlias = str | os.PathLike[str]
_FILES = (str, bytes, os.PathLike)

_log = logging.getLogger(__name__)


def read_run(
    path: _Path,
    *,
    columns: Columns = MappingProxyType({}),
    format: str = TABLES[0],
    quotes: bool = False,
) -> RunScores:
    """The scores of a TREC or MS MARCO run: {query_id: {doc_id: score}}.

    Args:
        path: a file or a URL, compressed or not.
        columns: the names of columns, or their numbers from 1 in a file without a header, by
            `query_id`, `doc_id`, `rank` and `score`.
        format: `tsv`, `csv`, `json` or a named one, such as `top_ranked`; `auto` recognizes it.
        quotes: whether a TSV has quotes, as a CSV has.

    Returns:
        Queries in the order of the file, docs best first: by score, ties by doc_id, descending, as
        in trec_eval. A run without scores is ordered by rank, and a score is minus the rank.

    Raises:
        ConfigError: there is no such format, or column of such files.
        PreflightError: the file does not exist, or lines are wrong; the first five are listed.
    """
    hints = checked_hints(RUN, runs.FORMATS, columns, format, quotes)
    return runs.read_run(os.fsdecode(path), hints=hints).to_dict()


def read_qrels(
    path: _Path,
    *,
    columns: Columns = MappingProxyType({}),
    format: str = TABLES[0],
    quotes: bool = False,
) -> dict[str, dict[str, int]]:
    """The judgments of a TREC, MS MARCO or BEIR file: {query_id: {doc_id: relevance}}.

    Args:
        path: a file or a URL, compressed or not.
        columns: the names of columns, or their numbers from 1 in a file without a header, by
            `query_id`, `doc_id` and `relevance`.
        format: `tsv`, `csv`, `json` or a named one, such as `lotte`; `auto` recognizes it.
        quotes: whether a TSV has quotes, as a CSV has.

    Raises:
        ConfigError: there is no such format, or column of such files.
        PreflightError: the file does not exist, or lines are wrong; the first five are listed.
    """
    hints = checked_hints(QRELS, qrels.FORMATS, columns, format, quotes)
    relevance = qrels.read_qrels(os.fsdecode(path), hints).relevance
    return {query_id: dict(docs) for query_id, docs in relevance.items()}


def write_run(
    run: Mapping[str, Mapping[str, float]] | Frame,
    path: _Path,
    tag: str = "beamrank",
    *,
    format: str = "trec",
) -> None:
    """Writes a run as the commands do: docs by score, scores strictly decreasing in float32, 9
    significant digits.

    Args:
        run: {query_id: {doc_id: score}}, where tied scores keep their order; or a frame, as
            `rerank` takes it.
        path: a file or a URL; a file that exists is replaced. It is compressed if it ends in .gz,
            .bz2, .xz or .zst.
        tag: the sixth column.
        format: `trec` or `msmarco`.

    Raises:
        ConfigError: the tag is empty or has white space, the format is unknown, or the path ends in
            .zip, .tar or the like.
        DataError: a score is not finite, or an id is not allowed in a run; nothing is written.
    """
    if not isinstance(tag, str) or tag.split() != [tag]:
        raise ConfigError(
            f"tag {tag!r} is empty or has white space, which separates the columns of a run"
        )
    if format not in text_formats():
        raise ConfigError(f"format {format!r} is unknown; accepted: {', '.join(text_formats())}")
    ordered = (
        run_of_frame(run, ties="rank") if isinstance(run, Frame) else runs.run_of(run, ties="rank")
    )
    rankings = {
        one: list(zip(ids, ordered.scores[one].tolist(), strict=True))
        for one, ids in ordered.order.items()
    }
    run_writer.write_run(os.fsdecode(path), rankings, tag, format)


def evaluate(
    run: Mapping[str, Mapping[str, float]] | Frame | _Path,
    qrels: Mapping[str, Mapping[str, int]] | Frame | _Path,
    measures: Texts,
    *,
    exclude: Mapping[str, Collection[str]] | _Path | None = None,
) -> Evaluation:
    """Measures a run; means are over all topics of the qrels, as with trec_eval's -c.

    Judged topics that the run lacks count as 0, and are counted in the log, as are ids that do not
    meet.

    Args:
        run: {query_id: {doc_id: score}}, a frame as `rerank` takes it, or a path. Ties are ordered
            by doc_id, descending, in all.
        qrels: {query_id: {doc_id: relevance}}, a frame with the columns query_id, doc_id and
            relevance, or a path.
        measures: names as ir_measures or trec_eval writes them: a list, or a string with spaces or
            commas between them.
        exclude: docs that are left out of the rankings, as BEIR and MTEB do it: `self` is the doc
            with the query's own id; else a file of pairs (docs/reference/formats.md), or {query_id:
            [doc_id, ...]}.

    Returns:
        `means` by measure, `per_query` by query_id and measure, also as an Arrow table
        (`per_query.table`), and `notes` on how run and qrels fit together.

    Raises:
        ConfigError: a measure is unknown.
        PreflightError: a file is wrong, or run and qrels have no topic in common.
        DataError: a dictionary or a frame is wrong.
    """
    names = (
        split_measures(measures) if isinstance(measures, str) else texts_of("measures", measures)
    )
    parse_measures(names)
    excluded = None if exclude is None else excluded_of(exclude)
    judged, its_name = _qrels(qrels), f" {os.fsdecode(qrels)}" if isinstance(qrels, _FILES) else ""
    if isinstance(run, Frame):
        read, name = run_of_frame(run), ""
    elif isinstance(run, _FILES):
        read, name = runs.read_run(os.fsdecode(run)), f" {os.fsdecode(run)}"
    else:
        read, name = runs.run_of(run), ""
    measured = evaluate_one(
        without(read, excluded, judged), judged, names, f"the run{name}", f"the qrels{its_name}"
    )
    notes = measured.evaluation.notes
    for line in (*map(str, (*notes.missing, *measured.own)), *notes.warnings):
        _log.warning("%s", line)
    return measured.evaluation


def _qrels(source: Mapping[str, Mapping[str, int]] | Frame | _Path) -> qrels.Qrels:
    if isinstance(source, Frame):
        return qrels_of_frame(source)
    return (
        qrels.read_qrels(os.fsdecode(source))
        if isinstance(source, _FILES)
        else qrels.qrels_of(source)
    )
