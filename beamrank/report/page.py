"""The sections of a report, and its files: one page that needs no network, tables for papers, curves, pictures.

Sections are ours in the order of the page, and those of packages before the last.
"""

import base64
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from beamrank.evaluation.tables import Table, latex, markdown
from beamrank.plugins import Registry
from beamrank.report.blocks import Block, Picture, Section, TableBlock
from beamrank.report.curves import write_csv
from beamrank.report.drift import write_drift
from beamrank.report.report import Report
from beamrank.report.sections import drift, measures, queries, what_ran
from beamrank.storage import files as storage
from beamrank.storage.urls import printable

PAGE = "report.html"
# A column with a text of so many characters needs room.
_WIDE = 24
_OURS = {
    "What ran": Section(what_ran.blocks),
    "What changed": Section(drift.blocks),
    "Measures": Section(measures.blocks),
    "Effectiveness against inferences": Section(measures.curve_blocks),
    "Queries": Section(queries.blocks),
    "Largest rank changes": Section(queries.change_blocks),
    "Scores": Section(measures.score_blocks),
    "Machines and settings": Section(what_ran.setting_blocks),
}
SECTIONS: Registry[Section] = Registry("report section", "beamrank.report_sections", _OURS)


def section_options() -> list[inspect.Parameter]:
    """The options of all sections."""
    return [option for section in SECTIONS.importable().values() for option in _options(section)]


def _make_sections(report: Report, options: Mapping[str, Any]) -> dict[str, Sequence[Block]]:
    """The sections that have content, by title; `options` are those of the command, by name."""
    sections = SECTIONS.importable()
    found = {}
    *first, last = _OURS
    for title in [*first, *(each for each in sections if each not in _OURS), last]:
        chosen = {each.name: options[each.name] for each in _options(sections[title]) if each.name in options}
        if blocks := sections[title].blocks(report, **chosen):
            found[title] = blocks
    return found


def is_shown(folder: str) -> bool:
    """Whether a section shows a folder that holds no run."""
    return any(section.shows(folder) for section in SECTIONS.importable().values())


def _options(section: Section) -> list[inspect.Parameter]:
    parameters = inspect.signature(section.blocks, eval_str=True).parameters.values()
    return [each for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]


@dataclass(frozen=True)
class Part:
    """A part of the page: its heading, its sections by title, and other files by name."""

    title: str
    sections: Mapping[str, Sequence[Block]]
    files: Mapping[str, bytes] = field(default_factory=dict)

    def blocks(self, kind: type[Any]) -> list[Any]:
        """The blocks of one kind."""
        return [block for blocks in self.sections.values() for block in blocks if isinstance(block, kind)]


def report_part(report: Report, options: Mapping[str, Any] | None = None) -> Part:
    """A report with the sections that have content; `options` are those of the command, by name."""
    part = Part(report.title, _make_sections(report, options or {}))
    files = {"drift.csv": write_drift(report.drift)} if report.drift else {}
    if report.execution:
        files["curves.csv"] = write_csv(point for picture in part.blocks(Picture) for point in picture.points)
    return Part(part.title, part.sections, files)


def write_report(folder: str, parts: Sequence[Part]) -> str:
    """Writes the files of a report; those of a second part and of later ones have a number before their names.

    Returns:
        The path of the page.
    """
    storage.remove_leftovers(folder)
    for number, part in enumerate(parts, 1):
        prefix = "" if number == 1 else f"{number}-"
        for name, content in _files(part):
            storage.replace(storage.join(folder, prefix + name), content)
    page = storage.join(folder, PAGE)
    storage.replace(page, render(parts))
    return page


def render(parts: Sequence[Part]) -> bytes:
    """The page. Ids and texts are data: all of them are escaped."""
    # It takes a fifth of a second to import, and other commands do without.
    from jinja2 import Environment, StrictUndefined

    source = files("beamrank.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    shown = [
        (part.title, [(title, list(map(_block_values, blocks))) for title, blocks in part.sections.items()])
        for part in parts
    ]
    # Lone surrogates of damaged ids and names have no UTF-8.
    return environment.from_string(source).render(reports=shown).encode("utf-8", "backslashreplace")


def _files(part: Part) -> Iterator[tuple[str, bytes]]:
    exported = [block for block in part.blocks(TableBlock) if block.exported]
    yield from part.files.items()
    yield "tables.md", _joined(exported, markdown, "**{}**\n\n")
    yield "tables.tex", _joined(exported, latex, "% {}\n")
    for picture in part.blocks(Picture):
        yield f"{picture.name}.svg", picture.svg


def _joined(blocks: Sequence[TableBlock], write: Callable[[Table], str], caption: str) -> bytes:
    return "\n".join(caption.format(printable(block.caption)) + write(block.table) for block in blocks).encode()


def _block_values(block: Block) -> Mapping[str, Any]:
    kind = {"kind": type(block).__name__}
    if isinstance(block, Picture):
        return {**kind, "caption": block.caption, "data": base64.b64encode(block.svg).decode()}
    if isinstance(block, TableBlock):
        return {**kind, "caption": block.caption, **_table_values(block)}
    return {**kind, **vars(block)}


def _table_values(block: TableBlock) -> Mapping[str, Any]:
    """Columns: name, whether of numbers, whether wide; rows: anchor, cells; cells: text, value, whether a number."""
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
