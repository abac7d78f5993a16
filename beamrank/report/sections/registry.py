"""The sections of a report: ours in the order of the page, those of packages before the last."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from beamrank.plugins import Registry
from beamrank.report.blocks import Block, Section
from beamrank.report.report import Report
from beamrank.report.sections import drift, measures, queries, what_ran

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


def make_sections(report: Report, options: Mapping[str, Any]) -> dict[str, Sequence[Block]]:
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
