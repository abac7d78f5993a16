"""Measures of a random run file and random qrels, against pytrec_eval and ir_measures."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ir_measures
import numpy as np
import pytrec_eval

from beamrank.evaluation.evaluate import Evaluation, Evaluator, aggregate, evaluate
from beamrank.evaluation.measures import by_position, parse_measures
from beamrank.formats.qrels import Qrels, read_qrels
from beamrank.formats.runs import read_run

# trec_eval's names; IPrec is left out, since pytrec_eval has that of trec_eval 9.
_TREC = [
    *("map", "ndcg", "recip_rank", "bpref", "infAP", "Rprec", "set_P", "set_recall", "set_F"),
    *(
        f"{name}_{at}"
        for name in ("map_cut", "ndcg_cut", "P", "recall")
        for at in (5, 10, 100, 1000)
    ),
    *("num_ret", "num_rel_ret", "success_1", "success_5", "success_10"),
]
# Those of ir_measures beyond pytrec_eval's defaults; where scores tie, its providers disagree.
_MEASURES = [
    *("RR@1", "RR@10", "RR(rel=2)@5", "RR(rel=2)", "Judged@1", "Judged@10", "Compat"),
    *("Compat(p=0.8)", "P(rel=2)@5", "P(judged_only=True)@7", "R(rel=3)@20", "Success(rel=2)@3"),
    *("Rprec(rel=2)", "AP(rel=2)", "nDCG(gains={1:3,2:1})@5", "nDCG(judged_only=True)@10"),
    *("nDCG@1", "SetF(beta=0.5)", "Bpref(rel=2)", "AP@3", "NumRet(rel=1)"),
]
_WORDS = ("d", "D", "é", "日本", "😀", "d-", "1")

Scores = dict[str, dict[str, float]]
Judgments = dict[str, dict[str, int]]


class Drawn(NamedTuple):
    """A run and its qrels. Whether any two docs of a topic have one score in float32 is `ties`."""

    run: Scores
    qrels: Judgments
    ties: bool


def draw(seed: int) -> Drawn:
    """Topics of which the run or the qrels lack some, graded and negative levels, and scores of
    several kinds.
    """
    random = np.random.default_rng(seed)
    topics = [f"q{number}" for number in range(random.integers(1, 8))]
    words = random.choice(_WORDS, 2, replace=False)
    # Some rankings are deeper than the deepest cutoff.
    count = 1300 if random.random() < 0.02 else 60
    docs = [f"{words[number % 2]}{number}" for number in range(count)]
    least, levels = -2 if random.random() < 0.1 else 0, random.integers(2, 6)

    def some(topics: list[str]) -> list[str]:
        return [topic for topic in topics if random.random() < 0.8] or topics[:1]

    qrels = {}
    for query_id in some(topics):
        judged = random.choice(docs, random.integers(1, len(docs) // 2), replace=False)
        drawn = random.integers(least, levels, len(judged))
        qrels[query_id] = dict(zip(judged.tolist(), drawn.tolist(), strict=True))
    run = {query_id: _scores(random, docs) for query_id in some(topics)}
    values = [np.array([*scores.values()], np.float32) for scores in run.values()]
    return Drawn(run, qrels, any(len(np.unique(scores)) < len(scores) for scores in values))


def _scores(random: np.random.Generator, docs: list[str]) -> dict[str, float]:
    count = int(random.integers(1, len(docs)))
    signs = random.choice([-1, 1], count)
    values = [
        random.normal(size=count) * 10 ** random.uniform(-3, 3),
        random.integers(-2, 3, count).astype(float),
        signs * 10 ** random.uniform(30, 38.4, count),
        signs * 10 ** random.uniform(-50, -37, count),
        # Some are equal in float32 only.
        30 * (1 + random.integers(0, 90, count) * 2.0**-26),
    ][random.integers(5)]
    values = np.abs(values) if random.random() < 0.5 else values
    return dict(zip(random.permutation(docs).tolist(), values.tolist(), strict=False))


def _files(drawn: Drawn, seed: int, folder: Path) -> tuple[Mapping[str, Any], Qrels]:
    """The run and the qrels as beamrank reads them, of rows in any order; the rank column is not
    the order.
    """
    random = np.random.default_rng([seed, 1])
    for name, given, line in (
        ("run", drawn.run, "{} Q0 {} 7 {!r} t\n"),
        ("qrels", drawn.qrels, "{} 0 {} {}\n"),
    ):
        rows = [(query, *judged) for query, docs in given.items() for judged in docs.items()]
        lines = [line.format(*rows[place]) for place in random.permutation(len(rows))]
        (folder / name).write_text("".join(lines), encoding="utf-8")
    return read_run(str(folder / "run")).order, read_qrels(str(folder / "qrels"))


def check(seed: int, folder: Path) -> int:
    """Every topic's values are theirs to the bit, the mean is their exact mean, and positions give
    the same.
    """
    drawn = draw(seed)
    order, qrels = _files(drawn, seed, folder)
    names = dict(zip(parse_measures(_TREC), _TREC, strict=True))
    evaluation = evaluate(order.items(), qrels, [*names, *_MEASURES])
    # trec_eval reads beyond its arrays where all levels are negative.
    judged = {query_id: docs for query_id, docs in drawn.qrels.items() if max(docs.values()) >= 0}
    theirs = _by_pytrec_eval(drawn.run, judged, names) if judged else {}
    if judged and not drawn.ties:
        theirs |= _by_ir_measures(drawn.run, judged)
    for name, values in theirs.items():
        ours = {query_id: evaluation.per_query[query_id][name] for query_id in values}
        assert ours == values, name
        if len(values) == len(drawn.qrels):
            mean = aggregate(parse_measures([name])[name], np.array([*values.values()]))
            assert evaluation.means[name] == mean, name
    _check_positions(order, qrels, evaluation)
    return sum(map(len, theirs.values()))


def _by_pytrec_eval(
    run: Scores, qrels: Judgments, names: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """By measure and topic; a topic that the run lacks counts as 0."""
    asked = {re.sub(r"_(\d+)$", r".\1", name) for name in names.values()}
    values = pytrec_eval.RelevanceEvaluator(qrels, asked).evaluate(run)
    return {
        ours: {query_id: values.get(query_id, {}).get(theirs, 0.0) for query_id in qrels}
        for ours, theirs in names.items()
    }


def _by_ir_measures(run: Scores, qrels: Judgments) -> dict[str, dict[str, float]]:
    """By measure and topic, one measure at a time: some would change others of the same call.

    Compat of a topic with scores below 0 is left out: there ir_measures takes docs that a run
    lacks, as if their score was 0, to be better than those that it ranks.
    """
    below_0 = {query_id for query_id, docs in run.items() if min(docs.values()) <= 0}
    return {
        name: {
            value.query_id: value.value
            for value in ir_measures.iter_calc([measure], qrels, run)
            if measure.NAME != "Compat" or value.query_id not in below_0
        }
        for name, measure in parse_measures(_MEASURES).items()
    }


def _check_positions(order: Mapping[str, Any], qrels: Qrels, expected: Evaluation) -> None:
    """What is computed from the positions of judged docs is the same but for the last digits."""
    measures = by_position(list(expected.means))[0]
    evaluator = Evaluator(qrels, list(measures), fast=True)
    evaluator.add(order.items())
    evaluation = evaluator.evaluation()
    for name in measures:
        assert np.allclose(
            evaluation.per_query.of(name), expected.per_query.of(name), rtol=0, atol=1e-12
        ), name
        assert math.isclose(evaluation.means[name], expected.means[name], abs_tol=1e-12), name
