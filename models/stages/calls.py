"""The calls for answers that this process makes.

After 20 in a row without an answer the server is taken to be gone: the remaining shards are left
open at once, and wait for no call of their own.
"""

from collections.abc import Callable

from beamrank.commit.asked import Answer
from beamrank.errors import LeftOpenError

MOST_FAILED = 20
_failed: list[LeftOpenError] = []


def start() -> None:
    """Forgets the calls that failed, at the start of a job."""
    _failed.clear()


def make(call: Callable[[], Answer]) -> Answer:
    """What a call answers; raises LeftOpenError where it, or each of the last, got no answer."""
    if len(_failed) >= MOST_FAILED:
        raise LeftOpenError(
            f"{MOST_FAILED} calls in a row got no answer in this process; the last: {_failed[-1]}"
        )
    try:
        answer = call()
    except LeftOpenError as error:
        _failed.append(error)
        raise
    _failed.clear()
    return answer
