"""The scores of a teacher: what cannot, or can hardly, be learned from."""

import numpy as np

from beamrank.errors import PreflightError
from models.training.data.arrays import Rows

_CHECKED_TOPICS = 1000
# Grades of a few docs may follow one another by chance.
_LEAST_DOCS = 4


def check_teacher(taught: Rows, url: str) -> list[str]:
    """Returns a line where the scores are all between 0 and 1; refuses ranks.

    Raises:
        PreflightError: see `_refuse_ranks`.
    """
    _refuse_ranks(taught, url)
    values = taught.values
    if not len(values) or values.min() < 0 or values.max() > 1:
        return []
    return [
        f"the scores of the teacher {url} are all between 0 and 1, and the objectives learn from their differences: if "
        "they are probabilities, give log-odds (logits); if they are cosines, a temperature of 10 or more"
    ]


def _refuse_ranks(taught: Rows, url: str) -> None:
    """Makes sure that scores are not just the places of docs, as in a run that was written without its scores.

    They are if they count up or down in every topic, or are the same in every topic.

    Raises:
        PreflightError: they are.
    """
    topics = [np.sort(rows.values)[::-1] for rows in next(taught.blocks(_CHECKED_TOPICS), taught).blocks(1)]
    topics = [values for values in topics if len(values) > 1]
    longest = max(topics, key=len, default=np.zeros(0, np.float32))
    if len(longest) < _LEAST_DOCS:
        return
    counting = all((values % 1 == 0).all() and (np.diff(values) == -1).all() for values in topics)
    repeated = len(topics) > 1 and all(np.array_equal(values, longest[: len(values)]) for values in topics)
    if counting or repeated:
        first = ", ".join(f"{value:g}" for value in longest[:3].tolist())
        raise PreflightError(
            f"data.teacher: the scores of {url} are ranks, or depend on ranks alone ({first}, ... in each topic), and "
            "the objectives that distil learn from the differences of log-odds or cosines. Give a run with the "
            "teacher's own scores"
        )
