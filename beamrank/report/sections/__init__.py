"""The sections of a report. Another one is a file beside this one, and its line in `SECTIONS`."""

from collections.abc import Callable, Sequence

from beamrank.report.blocks import Block
from beamrank.report.report import Report
from beamrank.report.sections import changes, curves, distributions, drift, measures, queries, what_ran

# In the order of the page; one that returns no blocks is left out.
SECTIONS: dict[str, Callable[[Report], Sequence[Block]]] = {
    "What ran": what_ran.blocks,
    "What changed": drift.blocks,
    "Measures": measures.blocks,
    "Effectiveness against inferences": curves.blocks,
    "Queries": queries.blocks,
    "Largest rank changes": changes.blocks,
    "Scores": distributions.blocks,
    "Machines and settings": what_ran.setting_blocks,
}
