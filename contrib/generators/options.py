"""The options of language models in the section of a stage."""

import os
import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from beamrank.errors import PreflightError
from beamrank.section import Relative
from beamrank.storage.documents import read_at_most

_MOST_BYTES = 1 << 20
_PLACE = re.compile(r"\{(query|doc|doc_i|doc_j|instruction)\}")


def _read(value: Any) -> Any:
    """The content of a file, which a plan holds, so that no worker needs the file."""
    if not isinstance(value, str | os.PathLike):
        return value
    try:
        text = read_at_most(os.fspath(value), _MOST_BYTES).decode()
    except (OSError, ValueError) as error:
        raise PreflightError(f"cannot read the prompt {value}: {error}") from error
    is_jinja = "{{" in text or "{%" in text
    return {"text": text if is_jinja else _PLACE.sub(r"{{ \1 }}", text)}


PROMPT = Annotated[
    dict[Literal["text"], Annotated[str, Field(min_length=1)]],
    BeforeValidator(_read),
    Relative.PATH,
]
PREFIX = Literal["shared", "none"]
ANSWERS = Annotated[tuple[str, ...], Field(min_length=1, max_length=2)]
