"""The files of a report: one page that needs no network, tables for papers, curves as CSV, pictures as SVG."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from beamrank.evaluation.tables import Cell, Table, latex, markdown
from beamrank.report.blocks import Block, Picture, Section, TableBlock
from beamrank.report.curves import write_csv
from beamrank.report.run_report import RunReport
from beamrank.report.sections import SECTIONS
from beamrank.storage import files as storage

PAGE = "report.html"


def write_report(folder: str, reports: Sequence[RunReport]) -> str:
    """Writes the files of a report; those of a second run and of later ones have a number before their names.

    Returns:
        The path of the page.
    """
    sections = [_sections(report) for report in reports]
    for number, (report, each) in enumerate(zip(reports, sections, strict=True), 1):
        prefix = "" if number == 1 else f"{number}-"
        for name, content in _files(report, each):
            storage.replace(storage.join(folder, prefix + name), content)
    page = storage.join(folder, PAGE)
    storage.replace(page, render(reports, sections))
    return page


def render(reports: Sequence[RunReport], sections: Sequence[Sequence[Section]]) -> bytes:
    """The page. Ids and texts are data: all of them are escaped."""
    # It takes a fifth of a second to import, and other commands do without.
    from jinja2 import Environment, StrictUndefined

    source = files("beamrank.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    shown = [
        {"title": report.title, "sections": [_as_values(section) for section in each]}
        for report, each in zip(reports, sections, strict=True)
    ]
    # Lone surrogates of damaged ids have no UTF-8.
    return environment.from_string(source).render(reports=shown).encode("utf-8", "replace")


def _sections(report: RunReport) -> list[Section]:
    found = [Section(title, make(report)) for title, make in SECTIONS.items()]
    return [section for section in found if section.blocks]


def _files(report: RunReport, sections: Sequence[Section]) -> Iterator[tuple[str, bytes]]:
    tables = [block for section in sections for block in section.blocks if isinstance(block, TableBlock)]
    exported = [block for block in tables if block.exported]
    yield "curves.csv", write_csv(report.points)
    yield "tables.md", _joined(exported, markdown, "**{}**\n\n")
    yield "tables.tex", _joined(exported, latex, "% {}\n")
    for section in sections:
        for block in section.blocks:
            if isinstance(block, Picture):
                yield f"{block.name}.svg", block.svg


def _joined(blocks: Sequence[TableBlock], write: Callable[[Table], str], caption: str) -> bytes:
    return "\n".join(caption.format(block.caption) + write(block.table) for block in blocks).encode()


def _as_values(section: Section) -> Mapping[str, Any]:
    return {"title": section.title, "blocks": [_block_values(block) for block in section.blocks]}


def _block_values(block: Block) -> Mapping[str, Any]:
    kind = {"kind": type(block).__name__}
    if isinstance(block, Picture):
        return {**kind, "caption": block.caption, "data": base64.b64encode(block.svg).decode()}
    if isinstance(block, TableBlock):
        return {**kind, "caption": block.caption, **_table_values(block)}
    return {**kind, **vars(block)}


def _table_values(block: TableBlock) -> Mapping[str, Any]:
    table = block.table
    numbers = [not table.is_text(position) for position in range(len(table.columns))]
    anchors = [*block.anchors, *[None] * (len(table.rows) - len(block.anchors))]
    rows = [
        [
            _cell(cell, text, number, anchor if position == 0 else None)
            for position, (cell, text, number) in enumerate(zip(row, texts, numbers, strict=True))
        ]
        for row, texts, anchor in zip(table.rows, table.shown(), anchors, strict=True)
    ]
    columns = [{"name": name, "number": number} for name, number in zip(table.header, numbers, strict=True)]
    return {"columns": columns, "rows": rows}


def _cell(cell: Cell, text: str, number: bool, anchor: str | None) -> Mapping[str, Any]:
    return {"text": text, "value": "" if cell is None else cell, "number": number, "anchor": anchor}
