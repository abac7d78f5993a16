"""How long work takes, and its price: at the pace of the finished part, from the scoring stage before, or by a plan."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from beamrank.commit.listing import PREDICTED
from beamrank.commit.receipts import Receipt
from beamrank.commit.stage import ScoringWork
from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import checked_json, checked_values, validated

_HOUR_SECONDS = 3600.0


@dataclass(frozen=True)
class Pace:
    """The things finished in one stretch of work: `done` (at least one) between `start` and `last`.

    Times are seconds of any one clock. A pace counts what all workers finish together.
    """

    start: float
    last: float
    done: int

    @property
    def seconds_each(self) -> float:
        """The mean time between two finished things."""
        return (self.last - self.start) / self.done

    def seconds_left(self, more: int, now: float) -> float:
        """Seconds until `more` things are finished; at least what one takes."""
        if more == 0:
            return 0.0
        return max(self.seconds_each, more * self.seconds_each - max(0.0, now - self.last))

    @classmethod
    def of_last_stretch(cls, finished: Iterable[tuple[float, float]], pause_seconds: float) -> Self | None:
        """The pace since work was last resumed.

        Args:
            finished: when each thing was finished, and how many seconds it took.
            pause_seconds: a new stretch begins after a longer pause than this.

        Returns:
            None if nothing is finished.
        """
        found: Self | None = None
        for end, seconds in sorted(finished):
            if found is None or end - seconds - found.last > pause_seconds:
                found = cls(end - seconds, end, 1)
            else:
                found = cls(min(found.start, end - seconds), end, found.done + 1)
        return found


def work_ratio(work: ScoringWork, before: ScoringWork, scored: Iterable[Receipt]) -> float | None:
    """The ratio of a stage's duration to that of the stage before it, on the same workers.

    An input with two docs is taken to be twice as long as one with one doc, up to the most tokens of an input, and the
    same share of inputs to be reused.

    The inputs of the stage before it have one doc; None if its receipts lack the counts.
    """
    receipts = list(scored)
    queries, candidates, inferences, reused, tokens = (
        sum(receipt.counts.get(name, 0) for receipt in receipts)
        for name in ("queries", "candidates", "inferences", "reused", "tokens")
    )
    if not (candidates and tokens and before.token_cost):
        return None
    length = min(float(work.max_length), work.docs * tokens / inferences)
    inputs = queries * work.inferences(candidates / queries) * inferences / (inferences + reused)
    return inputs * length * work.token_cost / (tokens * before.token_cost)


class Price(BaseModel):
    """The machines of a run and what they cost; worker seconds are spread over them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    machine: str
    """Its name, for the reader."""
    per_hour: Annotated[float, Field(ge=0)] = 0.0
    """In any currency, for one machine."""
    machines: Annotated[int, Field(ge=1)] = 1
    """How many of them work at once."""

    def cost(self, worker_seconds: float) -> float:
        """The cost of work, whatever the number of machines."""
        return worker_seconds / _HOUR_SECONDS * self.per_hour

    def elapsed_seconds(self, worker_seconds: float) -> float:
        """How long the machines take together, if there are shards for all of them."""
        return worker_seconds / self.machines


class Prediction(BaseModel):
    """What `beamrank plan --save` predicts: the worker seconds of each step, and the price of its machines."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seconds: Mapping[str, Annotated[float, Field(ge=0)]]
    """By step: retrieve, tokenize, mono, duo."""
    price: Price | None = None

    def save(self, output: str) -> str:
        """Writes it into an output, over an earlier one. Returns the path."""
        path = storage.join(output, PREDICTED)
        storage.replace(path, checked_json(self.model_dump(mode="json")))
        return path


_PREDICTION = TypeAdapter(Prediction)


def read_prediction(output: str) -> Prediction | None:
    """The last prediction that was saved in an output; None if there is none.

    Raises:
        PreflightError: the file is damaged.
    """
    path = storage.join(output, PREDICTED)
    try:
        return validated(_PREDICTION, checked_values(storage.read_bytes(path)))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise PreflightError(
            f"{path} is damaged: remove it, or save it again with `beamrank plan --save`: {error}"
        ) from error
