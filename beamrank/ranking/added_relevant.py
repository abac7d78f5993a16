"""A relevant doc among the candidates of every judged query, as Mass et al. 2019 measure re-rankers (section 4.2).

It flatters every measure: a re-ranker is measured as if the first stage had found a relevant doc for each query.
"""

from collections.abc import Mapping, Sequence


def missing_relevant(doc_ids: Sequence[str], judgments: Mapping[str, int], k: int) -> str | None:
    """The relevant doc to add at rank k, or after the last candidate if there are fewer.

    Args:
        doc_ids: the candidates of a query, best first.
        judgments: the relevance of the docs that are judged for it.
        k: the depth.

    Returns:
        The first relevant doc by doc_id; None if one is among the first k candidates, or none is judged relevant.
    """
    relevant = {doc_id for doc_id, level in judgments.items() if level > 0}
    return None if relevant.intersection(doc_ids[:k]) else min(relevant, default=None)
