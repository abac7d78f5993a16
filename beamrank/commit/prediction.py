"""What `beamrank plan --save` predicted for a run; `beamrank status` shows it beside what was spent."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.documents import checked_json, checked_values, validated

_NAME = "prediction.json"
_HOUR_SECONDS = 3600.0


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
    """The worker seconds of each step of a run, and the price of its machines."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seconds: Mapping[str, Annotated[float, Field(ge=0)]]
    """By step: retrieve, tokenize, mono, duo."""
    price: Price | None = None

    def save(self, output: str) -> str:
        """Writes it into an output, over an earlier one. Returns the path."""
        path = storage.join(output, _NAME)
        storage.replace(path, checked_json(self.model_dump(mode="json")))
        return path


_PREDICTION = TypeAdapter(Prediction)


def read_prediction(output: str) -> Prediction | None:
    """The last prediction that was saved in an output; None if there is none.

    Raises:
        PreflightError: the file is damaged.
    """
    path = storage.join(output, _NAME)
    try:
        return validated(_PREDICTION, checked_values(storage.read_bytes(path)))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise PreflightError(
            f"{path} is damaged: remove it, or save it again with `beamrank plan --save`: {error}"
        ) from error
