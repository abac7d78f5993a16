"""The blocks of a report's sections. All of it is text: the page escapes it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from beamrank.evaluation.tables import Table
from beamrank.report.curves import CurvePoint

_LONGEST = 1200


@dataclass(frozen=True)
class Paragraph:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class TableBlock:
    """A table that can be sorted; it is also in `tables.md` and `tables.tex` if it is `exported`.

    Attributes:
        caption: what it shows.
        table: its columns and rows.
        anchors: the anchor on the page that each row's first cell links to, if any.
        exported: whether a paper could want it.
    """

    caption: str
    table: Table
    anchors: Sequence[str | None] = ()
    exported: bool = False


class PictureLink(NamedTuple):
    """A part of a picture, over its whole height, that leads to an anchor on the page; its left
    edge and its width are shares of the picture's width.
    """

    anchor: str
    title: str
    left: float
    width: float


@dataclass(frozen=True)
class Picture:
    """A picture, which is also the file NAME.svg. On a wide page, two of a section are side by
    side.

    Attributes:
        name: of the file.
        caption: what it shows.
        svg: the picture.
        points: the rows of `curves.csv` behind it.
        links: its parts that lead to anchors.
    """

    name: str
    caption: str
    svg: bytes
    points: Sequence[CurvePoint] = ()
    links: Sequence[PictureLink] = ()


@dataclass(frozen=True)
class Passage:
    """A doc: a title of one line, facts (names and values), and its text, empty if it is not known
    (`marked_text`).
    """

    title: str
    facts: Sequence[tuple[str, str]]
    text: Sequence[tuple[str, bool]]


@dataclass(frozen=True)
class Heading:
    """A heading inside a section, with an anchor that tables link to. The page folds what follows
    it.
    """

    text: str
    anchor: str


@dataclass(frozen=True)
class Failed:
    """A paragraph with the reason why `beamrank report` or `run`, once its files are written, ends
    with exit code 4.
    """

    text: str


@dataclass(frozen=True)
class File:
    """A file beside the page, which shows nothing of it."""

    name: str
    content: bytes


Block: TypeAlias = Failed | File | Paragraph | TableBlock | Picture | Passage | Heading


@dataclass(frozen=True)
class Section:
    """A section of a report; its title is its name in the registry.

    Attributes:
        blocks: from a `beamrank.report.report.Report` to what is shown; nothing leaves the section
            out. Keyword-only parameters are options of `beamrank report`, annotated as typer wants
            them; one that has the name of an option of the command gets its value.
        shows: whether the section shows a folder that holds no run, such as the output of a
            training.
        compares: whether the section compares a report with a `--baseline` that is none of its
            runs.
        judges: from the measures of a run, before it starts, to a function from the report of the
            finished run, which has the measures and the rows of its stages, to its `Failed`.
            Keyword-only parameters are options of `beamrank run`.
        leads: whether it follows the first section; otherwise it comes before the last one.
    """

    blocks: Callable[..., Sequence[Block]]
    shows: Callable[[str], bool] = lambda folder: False  # noqa: ARG005
    compares: Callable[[str], bool] = lambda baseline: False  # noqa: ARG005
    judges: Callable[..., Callable[[Any], Sequence[Block]]] | None = None
    leads: bool = False


def marked_text(text: str, query: str) -> list[tuple[str, bool]]:
    """A passage in pieces, each with whether it is a word of the query, but for single letters; a
    long one is cut.
    """
    words = {word.casefold() for word in re.findall(r"\w+", query) if len(word) > 1}
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
    return [(piece, piece.casefold() in words) for piece in re.split(r"(\w+)", shown) if piece]
