"""`beamrank calibrate DIR`: probabilities of relevance from the scores that a run stored, and how
far to trust them.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, astuple
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from scipy.special import expit

from beamrank.commit.listing import CALIBRATION
from beamrank.commit.receipts import table_chunks
from beamrank.errors import ConfigError, DataError, PreflightError
from beamrank.evaluation.tables import MEAN, Cell, Column, Table
from beamrank.formats.qrels import Qrels, read_qrels
from beamrank.report.pictures import figure
from beamrank.report.runs import PlanRuns
from beamrank.storage import files as storage
from beamrank.storage.documents import hashes64
from contrib.calibration.fit import (
    METHODS,
    Calibration,
    Judged,
    Reliability,
    Threshold,
    find_threshold,
    held_out,
    measure,
    split_topics,
)
from pipelines.commands.arguments import (
    OwnQrels,
    ResultFormat,
    RunFolder,
    one_of,
    open_runs,
    option,
    scored_stage,
)
from pipelines.console.progress import ConsoleProgress
from pipelines.console.tables import print_result
from pipelines.console.terminal import write_error

HELP_PANEL = "Evaluate"

_FOLDS = 5
_LEAST_TOPICS = 2 * _FOLDS
_SIGMOID, _BASE_RATE, _CALIBRATED = "sigmoid of the score", "share of relevant docs", "calibrated"
_COLUMNS = {
    **dict.fromkeys(("query_id", "doc_id"), pa.string()),
    "rank": pa.int32(),
    **dict.fromkeys(("score", "probability"), pa.float64()),
}
_SCHEMA = pa.schema([pa.field(*column, nullable=False) for column in _COLUMNS.items()])


def calibrate(
    folder: RunFolder,
    qrels: OwnQrels = None,
    method: Annotated[
        str,
        one_of(
            "--method", METHODS, "Logistic regression on the score, or any map that never falls."
        ),
    ] = "platt",
    precision: Annotated[
        float | None,
        option(
            "Also find the lowest score above which this share of docs is relevant.",
            metavar="SHARE",
        ),
    ] = None,
    stage: Annotated[
        str | None,
        option(
            "The stage of the scores; by default the last that scores docs one by one.",
            metavar="NAME",
        ),
    ] = None,
    rel: Annotated[int, option("The lowest label of a relevant doc.", min=1)] = 1,
    judged_only: Annotated[
        bool,
        option(
            "Leave docs without a judgment out; by default they are not relevant, as in measures.",
            "--judged-only",
        ),
    ] = False,
    output: Annotated[
        str | None,
        option("Where the files go; by default DIR/calibration/STAGE.", metavar="FOLDER"),
    ] = None,
    result_format: ResultFormat = "table",
) -> None:
    """Fit the probability of relevance to a run's scores and judgments; needs no model.

    Prints how reliable probabilities are on held-out topics, and writes them beside all scores.
    """
    if precision is not None and not 0 < precision < 1:
        raise ConfigError(f"--precision {precision:g} must be a share between 0 and 1, such as 0.9")
    runs = open_runs(folder)
    name = scored_stage(runs, stage)
    judgments = qrels or runs.config.qrels
    if judgments is None:
        raise ConfigError(f"the run in {folder} has no judgments: give --qrels")
    into = (
        storage.absolute(output)
        if output
        else storage.own_folder(runs.plan.output, CALIBRATION, name)
    )
    storage.check_folder(into)
    with ConsoleProgress().bar("calibrate") as bar:
        judged, hashes = gather(runs, name, read_qrels(judgments), rel, judged_only, bar.update)
    _check_enough(judged, method, judged_only)
    fold_of, fit = split_topics(hashes, _FOLDS), METHODS[method].fit
    probabilities = {
        _BASE_RATE: np.full_like(judged.scores, judged.relevant.mean()),
        _CALIBRATED: held_out(judged, fold_of, fit),
    }
    if runs.plan.stage(name).input_docs == 1:
        probabilities = {_SIGMOID: np.asarray(expit(judged.scores)), **probabilities}
    reliability = {kind: measure(judged, values) for kind, values in probabilities.items()}
    calibration = fit(judged)
    threshold = (
        None if precision is None else find_threshold(judged, fold_of, precision, calibration)
    )
    counts = {
        "topics": judged.count,
        "docs": len(judged.scores),
        "relevant": int(judged.relevant.sum()),
    }
    result = {
        "stage": name,
        "method": method,
        **counts,
        "rel": rel,
        "judged_only": judged_only,
        "folds": _FOLDS,
    }
    result["map"] = calibration.as_object()
    result["reliability"] = {kind: asdict(figures) for kind, figures in reliability.items()}
    result["threshold"] = threshold and asdict(threshold)
    storage.replace(
        storage.join(into, "calibration.json"),
        json.dumps(result, indent=1, allow_nan=False).encode(),
    )
    storage.replace(storage.join(into, "reliability.svg"), reliability_diagram(reliability, name))
    probabilities_url = storage.join(into, "probabilities.parquet")
    tables = _probabilities(runs, name, calibration)
    storage.replace_stream(probabilities_url, table_chunks(_SCHEMA, tables))
    print_result(_table(reliability), result, result_format)
    docs = f"{counts['docs']:,} docs of {judged.count:,} topics, {counts['relevant']:,} relevant"
    write_error(
        f"note: {name} by {docs}; the table is of topics that a map has not seen, in {_FOLDS} folds"
    )
    write_error(f"note: probabilities of all scores, the map and a picture are in {into}")
    if threshold is not None:
        write_error(f"note: {_threshold_words(threshold, name)}")


def gather(
    runs: PlanRuns, name: str, qrels: Qrels, rel: int, judged_only: bool, progress: Any
) -> tuple[Judged, np.ndarray[Any, np.dtype[np.uint64]]]:
    """The scored docs of judged topics, by scores before they are combined, and the hash of each of
    these topics: uint64[topics].
    """
    scores, relevant, topics, query_ids = (
        [np.empty(0)],
        [np.empty(0, bool)],
        [np.empty(0, np.int64)],
        list[str](),
    )
    for done, parts in enumerate(runs.shards(), 1):
        for query_id, ranking in parts.rankings(name).items():
            judgments = qrels.relevance.get(query_id)
            if judgments is None:
                continue
            labels = np.array(
                [judgments.get(doc_id, -1) for doc_id in ranking.doc_ids[: ranking.scored]],
                np.int64,
            )
            kept = labels >= 0 if judged_only else np.ones(len(labels), np.bool_)
            scores.append(ranking.own_scores[kept])
            relevant.append(labels[kept] >= rel)
            topics.append(np.full(int(kept.sum()), len(query_ids)))
            query_ids.append(query_id)
        progress(done, len(runs.plan.shards), "shards")
    judged = Judged(
        np.concatenate(scores), np.concatenate(relevant), np.concatenate(topics), len(query_ids)
    )
    return judged, hashes64(query_ids)


def _probabilities(runs: PlanRuns, name: str, calibration: Calibration) -> Iterator[pa.Table]:
    """The docs that a stage scored, a table for each shard."""
    for parts in runs.shards():
        ids, docs, ranks, scores = list[str](), list[str](), list[int](), [np.empty(0)]
        for query_id, ranking in parts.rankings(name).items():
            ids += [query_id] * ranking.scored
            docs += ranking.doc_ids[: ranking.scored]
            ranks += range(1, ranking.scored + 1)
            scores.append(ranking.own_scores)
        values = np.concatenate(scores)
        yield pa.table([ids, docs, ranks, values, calibration(values)], schema=_SCHEMA)


def reliability_diagram(reliability: dict[str, Reliability], name: str) -> bytes:
    """The share of relevant docs against the probability, in bins of as many docs, with
    intervals.
    """
    with figure(of_counts=False) as (axes, content):
        axes.plot([0, 1], [0, 1], color="tab:gray", linewidth=1, linestyle="--", label="reliable")
        for kind, figures in reliability.items():
            if kind == _BASE_RATE:
                continue
            share, low, high = np.transpose([astuple(one.relevant) for one in figures.bins])
            axes.errorbar(
                [one.probability for one in figures.bins],
                share,
                yerr=np.maximum([share - low, high - share], 0),
                marker="o",
                capsize=2,
                label=kind,
            )
        axes.set(xlabel=f"probability by the scores of {name}", ylabel="share of relevant docs")
        axes.legend()
    return content.getvalue()


def _check_enough(judged: Judged, method: str, judged_only: bool) -> None:
    """Raises PreflightError where a map would be chance."""
    least, relevant = METHODS[method].least, int(judged.relevant.sum())
    topics = len(np.unique(judged.topics[judged.relevant]))
    others = len(judged.relevant) - relevant
    if topics >= _LEAST_TOPICS and relevant >= least and others >= least:
        return
    advice = "Judge more topics"
    if judged_only and not others:
        advice = "Without --judged-only, docs without a judgment count as not relevant"
    elif topics >= _LEAST_TOPICS and min(relevant, others) >= min(
        other.least for other in METHODS.values()
    ):
        advice += ", or take --method platt"
    raise PreflightError(
        f"too few judgments: {method} needs {_LEAST_TOPICS} topics with a relevant doc among "
        f"those that were scored, {least} relevant docs and {least} others, and this run has "
        f"{topics:,}, {relevant:,} and {others:,}. {advice}"
    )


def _table(reliability: dict[str, Reliability]) -> Table:
    names = ("Brier score", "low", "high", "calibration error", "low", "high")
    rows: list[list[Cell]] = [
        [kind, *astuple(figures.brier), *astuple(figures.calibration_error)]
        for kind, figures in reliability.items()
    ]
    return Table([Column("probability"), *(Column(name, MEAN) for name in names)], rows)


def _threshold_words(threshold: Threshold, name: str) -> str:
    score, wanted, precision = threshold.score, threshold.wanted, threshold.precision
    if score is None:
        raise DataError(
            f"no threshold on the scores of {name} gives a precision of {wanted:g}: ask for a "
            "lower one"
        )
    words = (
        f"scores from {score:.4f} (probability {threshold.probability:.4f}) have "
        f"precision {wanted:g}"
    )
    if precision is None:
        return f"{words}; no held-out topic has such a score"
    held = f"{precision.value:.4f} ({precision.low:.4f} to {precision.high:.4f})"
    cost = f"recall {threshold.recall:.4f}, {threshold.docs_per_topic:.2f} docs a topic"
    return f"{words}; on held-out topics {held}, {cost}"
