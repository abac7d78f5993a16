"""The significance of the difference of two runs: tests over topics, and corrections for several
tests.

A new test or correction is a function and its line in `TESTS` or `CORRECTIONS`.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from ir_measures.measures import MeanAgg

from beamrank.evaluation.evaluate import Evaluation
from beamrank.evaluation.measures import Floats, parse_measures
from beamrank.evaluation.tables import Cell

SIGNIFICANT = 0.05
_LEVEL = 1 - SIGNIFICANT
_FEWEST_TOPICS = 2
_SEED = 0
_MOST_ASSIGNMENTS = 10_000
# The most by which a sum of float64 in a different order can differ.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Comparison:
    """A measure of two runs over the same topics.

    Attributes:
        mean, baseline: the means of the run and of the baseline run.
        difference: the first minus the second.
        low, high: the ends of the difference's 95 % confidence interval.
        p_value: two-sided, of the paired t-test or the test that was chosen; None (undefined) if no
            topic differs, 0 if all differ by the same.
        better, equal, worse: how many topics have a higher value than in the baseline, the same, a
            lower one.
    """

    mean: float
    baseline: float
    difference: float
    low: float
    high: float
    p_value: float | None
    better: int
    equal: int
    worse: int

    @property
    def interval(self) -> str:
        """The difference with its interval, for a reader."""
        return f"{self.difference:+.4f} ({self.low:+.4f} to {self.high:+.4f})"

    @property
    def topics(self) -> str:
        """The topics that are better, equal and worse, for a reader."""
        return f"{self.better:,}, {self.equal:,}, {self.worse:,}"

    def __str__(self) -> str:
        p_value = "undefined" if self.p_value is None else f"{self.p_value:.2g}"
        return (
            f"{self.mean:.4f} after {self.baseline:.4f}, difference {self.interval}, p = {p_value}"
            f", topics better, equal, worse {self.topics}"
        )

    def cells(self, corrected_p_value: float | None) -> list[Cell]:
        """The difference, p, p corrected, and the topics that are better, equal and worse."""
        p_values = (self.p_value, corrected_p_value)
        return [self.difference, *p_values, self.better, self.equal, self.worse]


def compare_evaluations(
    run: Evaluation,
    baseline: Evaluation,
    test: str = "t-test",
    tested: Collection[str] | None = None,
) -> dict[str, Comparison]:
    """Compares two evaluations with the same qrels by the measures that are means over topics.

    Fewer than two topics give no comparison. The p-values are not corrected for the number of
    measures; a measure that is not among the `tested`, by default all, has none.
    """
    comparisons = {}
    for name in comparable(list(run.means), len(run.per_query)):
        is_tested = tested is None or name in tested
        values = run.per_query.of(name), baseline.per_query.of(name)
        compared = compare_values(*values, test if is_tested else "t-test")
        comparisons[name] = compared if is_tested else replace(compared, p_value=None)
    return comparisons


def comparable(names: Sequence[str], topics: int) -> list[str]:
    """The measures that a t-test over so many topics can compare."""
    measures = parse_measures(names) if topics >= _FEWEST_TOPICS else {}
    return [name for name, measure in measures.items() if isinstance(measure.aggregator(), MeanAgg)]


def compare_values(
    run: Sequence[float] | Floats, baseline: Sequence[float] | Floats, test: str = "t-test"
) -> Comparison:
    """Compares the values of two runs for the same topics, in the same order; at least two."""
    mine, theirs = np.asarray(run, np.float64), np.asarray(baseline, np.float64)
    differences = mine - theirs
    low, high, p_value = _t_test(mine, theirs)
    return Comparison(
        mean=float(mine.mean()),
        baseline=float(theirs.mean()),
        difference=float(differences.mean()),
        low=low,
        high=high,
        p_value=p_value if test == "t-test" else TESTS[test](mine, theirs),
        better=int((differences > 0).sum()),
        equal=int((differences == 0).sum()),
        worse=int((differences < 0).sum()),
    )


def compare_all(runs: Sequence[Floats], baselines: Sequence[Floats]) -> list[Comparison]:
    """Compares the values of each run with those of its baseline; p is corrected for their number
    (Holm).
    """
    compared = list(map(compare_values, runs, baselines))
    p_values = corrected([comparison.p_value for comparison in compared], "holm")
    return [
        replace(comparison, p_value=p_value)
        for comparison, p_value in zip(compared, p_values, strict=True)
    ]


def randomization_test(run: Floats, baseline: Floats) -> float | None:
    """The two-sided p-value of Fisher's randomization test: how often random signs give as large a
    mean difference.

    All assignments of signs are counted where there are at most 10,000, else that many with a fixed
    seed. None if no topic differs. It is `scipy.stats.permutation_test` with
    `permutation_type="samples"`, without its minutes for thousands of topics.
    """
    differences = run - baseline
    differences = np.abs(differences[differences != 0])
    count = len(differences)
    if not count:
        return None
    observed = abs(float((run - baseline).sum())) * (1 - _ROUNDING)
    if 2**count <= _MOST_ASSIGNMENTS:
        negative = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
        return float(np.mean(np.abs((1 - 2 * negative) @ differences) >= observed))
    random = np.random.default_rng(_SEED)
    extreme = sum(
        abs(
            float(
                differences.sum()
                - 2 * differences[random.integers(2, size=count, dtype=np.bool_)].sum()
            )
        )
        >= observed
        for _ in range(_MOST_ASSIGNMENTS - 1)
    )
    # The assignment that was observed is one of them.
    return (extreme + 1) / _MOST_ASSIGNMENTS


TESTS: dict[str, Callable[[Floats, Floats], float | None]] = {
    "t-test": lambda run, baseline: _t_test(run, baseline)[2],
    "randomization": randomization_test,
}


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: controls the chance of one false difference or more."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, factors * np.asarray(p_values)[order]))
    return adjusted.tolist()


CORRECTIONS: dict[str, Callable[[Sequence[float]], list[float]]] = {
    "holm": holm,
    "bonferroni": lambda p_values: [min(1.0, len(p_values) * p_value) for p_value in p_values],
    "none": list,
}


def corrected(p_values: Sequence[float | None], correction: str) -> list[float | None]:
    """P-values that are corrected for the number of tests, with a name in `CORRECTIONS`.

    An undefined one stays so, and is no test.
    """
    adjusted = iter(
        CORRECTIONS[correction]([p_value for p_value in p_values if p_value is not None])
    )
    return [None if p_value is None else next(adjusted) for p_value in p_values]


def _t_test(run: Floats, baseline: Floats) -> tuple[float, float, float | None]:
    """The ends of the confidence interval of the mean difference, and p."""
    differences = run - baseline
    if np.ptp(differences) <= _ROUNDING:
        # The test divides by 0: a difference that all topics have is certain, and without any there
        # is nothing to test.
        difference = float(differences.mean())
        return difference, difference, 0.0 if differences.any() else None
    # It takes a second to import, and few commands compare runs.
    from scipy.stats import ttest_rel

    test = ttest_rel(run, baseline)
    interval = test.confidence_interval(_LEVEL)
    return float(interval.low), float(interval.high), float(test.pvalue)
