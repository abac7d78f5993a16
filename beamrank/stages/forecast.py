"""The duration of a scoring stage before its first shard is done, predicted from the scoring stage before it."""

from collections.abc import Iterable

from beamrank.stages.receipts import Receipt
from beamrank.stages.stage_record import ScoringWork


def pair_inferences(candidates: float, k: int, opponents: int | None) -> float:
    """The number of ordered pairs that are scored for a query with so many candidates."""
    admitted = min(k, candidates)
    return admitted * max(0, min(opponents or admitted, admitted - 1))


def work_ratio(work: ScoringWork, before: ScoringWork, scored: Iterable[Receipt]) -> float | None:
    """The ratio of a stage's duration to that of the stage before it, on the same workers.

    An input with two docs is taken to be twice as long as one with one doc, up to the most tokens of an input.

    Args:
        work: the work of the stage.
        before: the work of the stage before it, whose inputs have one doc.
        scored: receipts of the stage before it.

    Returns:
        None if the receipts lack the counts.
    """
    receipts = list(scored)
    queries, candidates, inferences, tokens = (
        sum(receipt.counts.get(name, 0) for receipt in receipts)
        for name in ("queries", "candidates", "inferences", "tokens")
    )
    if not (candidates and tokens and before.token_cost):
        return None
    length = min(float(work.max_length), work.docs * tokens / inferences)
    each = candidates / queries
    asked = min(work.k, each) if work.docs == 1 else pair_inferences(each, work.k, work.opponents)
    return queries * asked * length * work.token_cost / (tokens * before.token_cost)
