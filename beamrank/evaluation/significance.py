"""The significance of the difference of two runs: the paired t-test over topics."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from ir_measures.measures import MeanAgg

from beamrank.evaluation.evaluate import Evaluation
from beamrank.evaluation.measures import parse_measures

_LEVEL = 0.95
_FEWEST_TOPICS = 2
# Half of the last of the four digits that a table shows.
_SMALLEST_LOSS = 0.00005


@dataclass(frozen=True)
class Comparison:
    """A measure of two runs over the same topics.

    Attributes:
        mean: of the run.
        baseline: the mean of the baseline run.
        difference: the mean minus the baseline.
        low: the lower end of the difference's 95 % confidence interval.
        high: its upper end.
        p_value: two-sided, of the paired t-test; 1 if no topic differs, 0 if all differ by the same.
        better: topics where the run has a higher value.
        equal: topics with the same value.
        worse: topics where the run has a lower value.
    """

    mean: float
    baseline: float
    difference: float
    low: float
    high: float
    p_value: float
    better: int
    equal: int
    worse: int


@dataclass(frozen=True)
class Loss:
    """A stage whose run is below the run of the stage before it.

    Attributes:
        run: the name of its run.
        before: the name of the run before it.
        measure: the first measure that is a mean over topics.
        comparison: of the two runs by that measure.
    """

    run: str
    before: str
    measure: str
    comparison: Comparison


def compare_evaluations(run: Evaluation, baseline: Evaluation) -> dict[str, Comparison]:
    """Compares the measures of two evaluations with the same qrels, those that are means over topics.

    Fewer than two topics give no comparison. The p-values are not corrected for the number of measures.
    """
    return {name: _compare_measure(run, baseline, name) for name in _comparable(run)}


def find_losses(evaluations: Mapping[str, Evaluation]) -> list[Loss]:
    """The stages whose run is below that of the previous stage, by the first measure that is a mean over topics.

    Args:
        evaluations: of the run of each stage, in the order of the stages, with the same qrels and measures.
    """
    losses = []
    for (before, baseline), (name, run) in itertools.pairwise(evaluations.items()):
        for measure in _comparable(run)[:1]:
            if baseline.means[measure] - run.means[measure] >= _SMALLEST_LOSS:
                losses.append(Loss(name, before, measure, _compare_measure(run, baseline, measure)))
    return losses


def _comparable(run: Evaluation) -> list[str]:
    """The measures that a t-test can compare."""
    if len(run.per_query) < _FEWEST_TOPICS:
        return []
    measures = parse_measures(list(run.means))
    return [name for name, measure in measures.items() if isinstance(measure.aggregator(), MeanAgg)]


def _compare_measure(run: Evaluation, baseline: Evaluation, name: str) -> Comparison:
    return compare_values(
        [values[name] for values in run.per_query.values()],
        [baseline.per_query[query_id][name] for query_id in run.per_query],
    )


def compare_values(run: Sequence[float], baseline: Sequence[float]) -> Comparison:
    """Compares the values of two runs for the same topics, in the same order; at least two."""
    mine, theirs = np.asarray(run, np.float64), np.asarray(baseline, np.float64)
    differences = mine - theirs
    difference = float(differences.mean())
    # If all topics differ by the same, the test divides by 0: its limit is certainty.
    low, high, p_value = difference, difference, float(not differences.any())
    if np.ptp(differences) > 0:
        # It takes a second to import, and few commands compare runs.
        from scipy.stats import ttest_rel

        test = ttest_rel(mine, theirs)
        interval = test.confidence_interval(_LEVEL)
        low, high, p_value = float(interval.low), float(interval.high), float(test.pvalue)
    return Comparison(
        float(mine.mean()),
        float(theirs.mean()),
        difference,
        low,
        high,
        p_value,
        better=int((differences > 0).sum()),
        equal=int((differences == 0).sum()),
        worse=int((differences < 0).sum()),
    )
