"""Small documents that may be damaged or written by others: every problem is a ValueError of one line."""

import json
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from beamrank.storage import files as storage

# In a receipt, for example. Sums and rates of these are numbers that can be printed.
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Seconds = Annotated[float, Field(ge=0, lt=1e12)]
_Value = TypeVar("_Value")


def read_at_most(url: str, most_bytes: int) -> bytes:
    """A whole file that should be small.

    Raises:
        ValueError: it is larger; only so much of it was read.
    """
    with storage.open_binary(url) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it is larger than {most_bytes:,} bytes")
    return content


def parse_json(content: bytes | str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, or has NaN, Infinity, numbers of thousands of digits or thousands of levels.
    """
    try:
        return json.loads(content, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(name: str) -> Any:
    raise ValueError(f"it holds {name}, which is not JSON")


def validated(kind: TypeAdapter[_Value], values: Any) -> _Value:
    """A value, converted to its type.

    Raises:
        ValueError: it is not of that type; the message names the first place.
    """
    try:
        return kind.validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        # Pydantic's own message names our class.
        problem = "Input should be an object" if first["type"] == "dataclass_type" else first["msg"]
        raise ValueError(": ".join(filter(None, (".".join(map(str, first["loc"])), problem)))) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
