"""The values of topics in an array, and their means: exact sums, which no order of topics or cut of shards changes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from ir_measures.measures import SumAgg

from beamrank.evaluation.measures import Floats, Measure, Positions
from beamrank.id_places import IdMapping, IdPlaces


class TopicValues(IdMapping[Mapping[str, float]]):
    """The values of each judged topic, by query_id and measure, in one array."""

    def __init__(self, judged: IdPlaces, order: Positions, names: Sequence[str], values: Floats) -> None:
        """Takes the judged topics, the order in which they are read, and values: float64[topics, measures]."""
        super().__init__(judged, lambda place: dict(zip(self._names, values[place].tolist(), strict=True)), order)
        self._names, self._values = list(names), values

    @property
    def table(self) -> Any:
        """The values in their order as an Arrow table: query_id, and a column for each measure."""
        order = pa.array(self.order)
        columns = [self.ids.take(order), *(pa.array(self.of(name)).take(order) for name in self._names)]
        return pa.table(columns, ["query_id", *self._names])

    def of(self, name: str) -> Floats:
        """A measure's values, in the order of the qrels: float64[topics]."""
        return np.asarray(self._values[:, self._names.index(name)])


class ExactSum:
    """Sums of values from 0 to 1, as whole numbers of 2**-62: the same for any order of up to 2**32 values."""

    _HALF = 1 << 31

    def __init__(self) -> None:
        self._high: Any = 0
        self._low: Any = 0

    def add(self, values: Floats) -> None:
        """Takes one value of each sum: float64[p]."""
        high = np.floor(values * self._HALF)
        self._high = self._high + high.astype(np.int64)
        self._low = self._low + np.rint((values * self._HALF - high) * self._HALF).astype(np.int64)

    def over(self, count: int) -> Floats:
        """The sums, divided by a number and rounded once: float64[p]."""
        parts = zip(self._high.tolist(), self._low.tolist(), strict=True)
        return np.array([(high * self._HALF + low) / (count * self._HALF**2) for high, low in parts])


def aggregate(measure: Measure, values: Floats) -> float:
    """The mean of a measure, or the sum of one that counts; exact but for one rounding, so in any order the same."""
    total = math.fsum(values)
    return total if isinstance(measure.aggregator(), SumAgg) else total / len(values) if len(values) else math.nan
