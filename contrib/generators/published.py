"""The prompts and answers of published language models whose files do not hold them."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

import yaml

from beamrank.storage.documents import usable


@dataclass(frozen=True)
class Published:
    """Some models: patterns of their Hugging Face ids, their template in Jinja, and their tokens
    for relevant and not relevant.
    """

    models: list[str]
    prompt: str
    answers: list[str]


@cache
def published() -> list[Published]:
    """All of them."""
    table = files("contrib.generators").joinpath("published.yaml")
    content = yaml.safe_load(table.read_text(encoding="utf-8"))
    return usable(list[Published], content, table.name)


def find_published(reference: str) -> Published | None:
    """What is published of a checkpoint, by its definite reference; None where nothing is."""
    name = reference.partition("@")[0]
    rows = (row for row in published() for pattern in row.models if fnmatchcase(name, pattern))
    return next(rows, None)
