"""The scores of a teacher: what cannot be learned from."""

import numpy as np

from beamrank.errors import PreflightError
from models.training.data.arrays import Rows

_CHECKED_TOPICS = 1000
# Grades of a few docs may follow one another by chance.
_LEAST_DOCS = 4


def refuse_ranks(taught: Rows, url: str) -> None:
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
            f"data.teacher: the scores of {url} are ranks ({first}, ... in each topic), and the objectives that distil "
            "learn from the differences of log-odds or cosines. Give a run with the teacher's own scores"
        )
