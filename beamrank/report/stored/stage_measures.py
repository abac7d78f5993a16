"""The measures of every stage and aggregation from stored scores, query by query."""

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from beamrank.config.run import RunConfig
from beamrank.evaluation.evaluate import Evaluation, Evaluator, Meeting
from beamrank.evaluation.measures import parse_measures
from beamrank.formats.qrels import Qrels
from beamrank.ranking.aggregation import METHODS, aggregate
from beamrank.report.stored.positions import judged_positions, supported, values
from beamrank.report.stored.scores import Positions, StoredQuery


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
        self._qrels = qrels
        self._names = list(measures)
        self._fast, others = supported(measures)
        self._runs, self._aggregations = list(runs), aggregations
        self._others = {run: Evaluator(qrels, others) for run in runs} if others else {}
        self._found: dict[str, list[dict[str, float]]] = {}
        self._meeting = Meeting(qrels, parse_measures(measures))

    def add(self, queries: Iterable[StoredQuery]) -> None:
        """Takes the stored scores of some queries."""
        for query in queries:
            if not self._meeting.add(query.query_id, query.doc_ids):
                continue
            judgments = self._qrels.relevance[query.query_id]
            orders = stage_orders(query, self._aggregations)
            places = np.empty((len(query.doc_ids), len(orders)), np.int64)
            for column, order in enumerate(orders):
                places[order, column] = np.arange(1, len(order) + 1)
            judged = judged_positions(judgments, query.doc_ids, places.__getitem__)
            by_name = {name: values(measure, judged) for name, measure in self._fast.items()}
            self._found[query.query_id] = [
                {name: float(each[column]) for name, each in by_name.items()} for column in range(len(orders))
            ]
            for evaluator, order in zip(self._others.values(), orders, strict=False):
                evaluator.add([(query.query_id, [query.doc_ids[place] for place in order])])

    def evaluations(self, topics: Collection[str]) -> dict[str, Evaluation]:
        """The measures of each run over all judged topics."""
        notes = self._meeting.notes(topics)
        found = {}
        for column, run in enumerate(self._runs):
            rows = {query_id: dict(each[column]) for query_id, each in self._found.items()}
            rows |= {query_id: dict.fromkeys(self._fast, 0.0) for query_id in notes.not_in_run}
            means = {name: float(np.mean([row[name] for row in rows.values()])) for name in self._fast}
            if self._others:
                other = self._others[run].evaluation()
                means |= other.means
                rows = {query_id: row | other.per_query[query_id] for query_id, row in rows.items()}
            found[run] = Evaluation({name: means[name] for name in self._names}, rows, notes)
        return found
