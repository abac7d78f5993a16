"""The sections of a report, and its files: one page that needs no network, tables for papers,
curves, pictures.

Sections are ours in the order of the page; packages' sections follow the first or precede the last.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from beamrank.evaluation.tables import latex, markdown
from beamrank.plugins import Registry, chosen
from beamrank.report import sections
from beamrank.report.blocks import Block, File, Picture, Section, TableBlock
from beamrank.report.curves import write_csv
from beamrank.report.report import Report
from beamrank.storage import files as storage
from beamrank.storage.urls import printable

PAGE = "report.html"
# A column with a text of so many characters needs room.
_WIDE = 32
_OURS = {
    "The answer": Section(sections.answer),
    "Pictures": Section(sections.pictures),
    "Measures": Section(sections.measures),
    "Cost": Section(sections.cost),
    "Queries": Section(sections.queries),
    "Largest rank changes": Section(sections.rank_changes),
    "Inputs, machines and settings": Section(sections.inputs_and_machines),
}
SECTIONS: Registry[Section] = Registry("report section", "beamrank.report_sections", _OURS)


def is_shown(folder: str) -> bool:
    """Whether a section shows a folder that holds no run."""
    return any(section.shows(folder) for section in SECTIONS.importable().values())


def is_compared(baseline: str | None) -> bool:
    """Whether a section compares reports with a baseline that is none of their runs."""
    return baseline is not None and any(
        section.compares(baseline) for section in SECTIONS.importable().values()
    )


@dataclass(frozen=True)
class Part:
    """A part of the page: a report with its sections that have content, by title."""

    report: Report
    sections: Mapping[str, Sequence[Block]]

    def blocks(self, kind: type[Any]) -> list[Any]:
        """The blocks of one kind."""
        return [
            block
            for blocks in self.sections.values()
            for block in blocks
            if isinstance(block, kind)
        ]

    def files(self) -> Iterator[tuple[str, bytes]]:
        """The files beside the page, by name."""
        pictures = self.blocks(Picture)
        yield from ((file.name, file.content) for file in self.blocks(File))
        if self.report.execution:
            yield "curves.csv", write_csv(point for picture in pictures for point in picture.points)
        exported = [block for block in self.blocks(TableBlock) if block.exported]
        for name, caption, write in (
            ("tables.md", "**{}**\n\n", markdown),
            ("tables.tex", "% {}\n", latex),
        ):
            tables = [
                caption.format(printable(block.caption)) + write(block.table) for block in exported
            ]
            yield name, "\n".join(tables).encode()
        for picture in pictures:
            yield f"{picture.name}.svg", picture.svg


def report_part(report: Report, options: Mapping[str, Any] | None = None) -> Part:
    """A report with its sections; `options` has the command's options by name."""
    known, given, blocks_of = SECTIONS.importable(), options or {}, {}
    first, *middle, last = _OURS
    added = list(known)[len(_OURS) :]
    leading = [title for title in added if known[title].leads]
    titles = [first, *leading, *middle, *added, last] if report.execution else added
    for title in dict.fromkeys(titles):
        section = known[title]
        if blocks := section.blocks(report, **chosen(section.blocks, given)):
            blocks_of[title] = blocks
    return Part(report, blocks_of)


def write_report(folder: str, parts: Sequence[Part]) -> str:
    """Writes a report, the files of later parts with a number before their names; returns the path
    of its page.
    """
    storage.remove_leftovers(folder)
    for number, part in enumerate(parts, 1):
        prefix = "" if number == 1 else f"{number}-"
        for name, content in part.files():
            storage.replace(storage.join(folder, prefix + name), content)
    page = storage.join(folder, PAGE)
    storage.replace(page, render(parts))
    return page


def render(parts: Sequence[Part]) -> bytes:
    """The page. Ids and texts are data: all of them are escaped."""
    # It takes a fifth of a second to import, and other commands do without.
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["kind"] = lambda block: type(block).__name__
    environment.filters["base64"] = lambda content: base64.b64encode(content).decode()
    environment.filters["cells"] = _cells
    source = files("beamrank.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    # Lone surrogates of damaged ids and names have no UTF-8.
    return environment.from_string(source).render(parts=parts).encode("utf-8", "backslashreplace")


def _cells(block: TableBlock) -> Mapping[str, Any]:
    """Columns: name, whether of numbers, whether wide; rows: anchor, cells; cells: text, value,
    whether a number.
    """
    table, texts = block.table, block.table.shown()
    places = range(len(table.columns))
    numbers = [not table.is_text(place) for place in places]
    wide = [any(len(row[place]) > _WIDE for row in texts) for place in places]
    anchors = [*block.anchors, *[None] * (len(table.rows) - len(block.anchors))]
    return {
        "columns": list(zip(table.header, numbers, wide, strict=True)),
        "rows": [
            (anchor, list(zip(text, row, numbers, strict=True)))
            for anchor, text, row in zip(anchors, texts, table.rows, strict=True)
        ],
    }
