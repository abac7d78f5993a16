"""Effectiveness against inferences, from stored scores: figures 2 and 3 of Nogueira et al. 2019.

Figure 2 is the measure against k0, the docs that a stage scores one by one; figure 3 against k1,
those that it compares in pairs, for every aggregation.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from beamrank.commit.parts import ShardParts
from beamrank.commit.stage import Stage
from beamrank.evaluation.evaluate import CurveEvaluator
from beamrank.evaluation.measures import Measure
from beamrank.evaluation.significance import SIGNIFICANT
from beamrank.evaluation.tables import Column, Table, comma_separated
from beamrank.ranking.variants import Depths, Variant, Variants
from beamrank.records import Relevance

_BY_DEPTH = 2
_FEWEST_DOCS = 2


class CurvePoint(NamedTuple):
    """A measure of a variant of a stage over all judged topics: a row of `curves.csv`.

    A stage that compares pairs has the `k0` of the last stage before it that does not.
    """

    figure: int
    stage: str
    variant: Variant
    measure: str
    value: float


@dataclass(frozen=True)
class Gain:
    """The best depth below a stage's `k`: the measure there minus that at `k`, with an interval of
    95 % for all these depths together (Bonferroni).
    """

    k: int
    best_k: int
    difference: float
    low: float
    high: float


class Curves:
    """The curves of a run's stages; shards arrive one by one."""

    def __init__(
        self,
        relevance: Relevance,
        measures: Mapping[str, Measure],
        stages: Sequence[Stage],
        depths: Depths,
    ) -> None:
        """Takes the judgments, measures that positions suffice for, the stages that rank, and the
        points.
        """
        self._curves: dict[str, tuple[Variants, CurveEvaluator, dict[int, int]]] = {}
        for stage in stages:
            if (variants := stage.variants(depths)) and variants.variants:
                # Of the run's own aggregation, by depth.
                places = {
                    variant.depth: place
                    for place, variant in enumerate(variants.variants)
                    if variant.trial is None
                    and variant.aggregation == getattr(stage, "aggregation", None)
                }
                evaluator = CurveEvaluator(relevance, measures, places.get(variants.k, 0))
                self._curves[stage.name] = variants, evaluator, places
        names = [stage.name for stage in stages]
        # At depth 0 a curve has the ranking before.
        self._before = dict(zip(names[1:], ("first", *names[1:]), strict=False))

    def add(self, parts: ShardParts) -> None:
        """Takes a shard."""
        for name, (variants, evaluator, _) in self._curves.items():
            before = parts.before(name)
            assert before is not None
            for query in variants.positions(before, parts.rankings(name), parts.part(name)):
                evaluator.add(*query)

    def found(self) -> dict[str, list[CurvePoint]]:
        """The means over all judged topics, by the name of the stage, in the order of the
        stages.
        """
        k0, by_stage = 0, {}
        for stage, (variants, evaluator, _) in self._curves.items():
            k0 = variants.k if variants.figure == _BY_DEPTH else k0
            points = [
                CurvePoint(
                    variants.figure,
                    stage if variant.k0 or variant.k1 else self._before[stage],
                    variant._replace(k0=k0 if variant.k0 is None else variant.k0),
                    name,
                    float(value),
                )
                for name, means in evaluator.means().items()
                for variant, value in zip(variants.variants, means, strict=True)
            ]
            if points:
                by_depth = groupby(points, key=lambda point: (point.measure, *point.variant[:2]))
                by_stage[stage] = [
                    point for _, points_of in by_depth for point in _with_trials(list(points_of))
                ]
        return by_stage

    def gain(self, stage: str, measure: str | None) -> Gain | None:
        """The gain of a stage; None where its curve lacks its `k`, or lower depths of two docs or
        more.
        """
        if stage not in self._curves:
            return None
        variants, evaluator, places = self._curves[stage]
        lower = [depth for depth in places if _FEWEST_DOCS <= depth < variants.k]
        if not lower or variants.k not in places or measure not in evaluator.means():
            return None
        differences, widths = evaluator.differences(measure, SIGNIFICANT / len(lower))
        best_k = min(lower, key=lambda depth: (-differences[places[depth]], depth))
        mean, width = (float(column[places[best_k]]) for column in (differences, widths))
        return Gain(variants.k, best_k, mean, mean - width, mean + width)


def _with_trials(points: Sequence[CurvePoint]) -> Iterator[CurvePoint]:
    """The points of one depth, then the mean and the standard deviation of the trials."""
    yield from points
    drawn = [point for point in points if point.variant.trial is not None]
    for _, points_of in groupby(drawn, key=lambda point: point.variant.label):
        trials = list(points_of)
        values = [point.value for point in trials]
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        for name, value in (("mean", float(np.mean(values))), ("sd", spread)):
            yield trials[0]._replace(variant=trials[0].variant._replace(trial=name), value=value)


def write_csv(points: Iterable[CurvePoint]) -> bytes:
    """`curves.csv`; a cell is empty where a column says nothing."""
    columns = map(Column, ("figure", "stage", *Variant._fields, "measure", "value"))
    rows: list[list[Any]] = [
        [figure, stage, *variant, *measured] for figure, stage, variant, *measured in points
    ]
    return comma_separated(Table(list(columns), rows)).encode()
