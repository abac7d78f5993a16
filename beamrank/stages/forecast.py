"""How long duo will take, judged by mono, before duo has begun."""

from collections.abc import Iterable

from beamrank.stages.plan import StageSpec
from beamrank.stages.receipts import Receipt


def duo_inferences(candidates: float, k: int, opponents: int | None) -> float:
    """How many ordered pairs are scored for a query that mono gives so many candidates."""
    admitted = min(k, candidates)
    return admitted * max(0, min(opponents or admitted, admitted - 1))


def duo_to_mono(mono: StageSpec, duo: StageSpec, scored: Iterable[Receipt]) -> float | None:
    """How many times as long as mono duo takes on the same workers, by what the two models multiply.

    An input of duo has two docs, so it is taken to be twice as long as one of mono, as far as `max_length` allows.

    Args:
        mono: the stage.
        duo: the stage.
        scored: receipts of mono.

    Returns:
        None where the receipts do not tell.
    """
    receipts = list(scored)
    queries, candidates, inferences, tokens = (
        sum(receipt.counts.get(name, 0) for receipt in receipts)
        for name in ("queries", "candidates", "inferences", "tokens")
    )
    if not (candidates and tokens and mono.token_cost):
        return None
    length = min(float(duo.keys["max_length"]), 2 * tokens / inferences)
    asked = duo_inferences(candidates / queries, duo.keys["k"], duo.keys.get("opponents"))
    return queries * asked * length * duo.token_cost / (tokens * mono.token_cost)
