"""The measures of every stage and aggregation from stored scores, query by query."""

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from beamrank.config.run import RunConfig
from beamrank.evaluation.evaluate import Evaluation, Evaluator
from beamrank.evaluation.positions import Positions
from beamrank.formats.qrels import Qrels
from beamrank.ranking.aggregation import METHODS, aggregate
from beamrank.report.stored.scores import StoredQuery


def stored_aggregations(config: RunConfig) -> list[str]:
    """The aggregations of the stored pairs: `sample` where only a sample was scored, else all that need no draw."""
    if config.duo is None:
        return []
    return ["sample"] if config.duo.opponents is not None else [name for name in METHODS if name != "sample"]


def stage_orders(query: StoredQuery, aggregations: Sequence[str]) -> list[Positions]:
    """The candidates in the order of the first stage, of mono and of duo by each aggregation, as far as finished."""
    orders = [np.arange(len(query.doc_ids))]
    if query.mono_scores is not None:
        orders.append(query.mono_order)
    if query.z is not None:
        orders += [query.duo_order(aggregate(query.z, name)) for name in aggregations]
    return orders


class StageMeasures:
    """Measures runs whose queries arrive a shard at a time."""

    def __init__(self, qrels: Qrels, measures: Sequence[str], runs: Sequence[str], aggregations: Sequence[str]) -> None:
        """Takes the judgments, the measures, and the names of the runs in the order of `stage_orders`."""
        self._aggregations = aggregations
        self._evaluators = {run: Evaluator(qrels, measures, by_position=True) for run in runs}

    def add(self, queries: Iterable[StoredQuery]) -> None:
        """Takes the stored scores of some queries."""
        for query in queries:
            doc_ids = np.array(query.doc_ids, object)
            for evaluator, order in zip(
                self._evaluators.values(), stage_orders(query, self._aggregations), strict=False
            ):
                evaluator.add([(query.query_id, doc_ids[order].tolist())])

    def evaluations(self, topics: Collection[str]) -> dict[str, Evaluation]:
        """The measures of each run over all judged topics."""
        return {run: evaluator.evaluation(topics) for run, evaluator in self._evaluators.items()}
