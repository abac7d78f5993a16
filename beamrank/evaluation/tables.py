"""Tables of results, and the text formats that a paper or a spreadsheet takes."""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from beamrank.storage.urls import printable

Cell: TypeAlias = str | int | float | None

_UNDEFINED = "-"
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    # After the end of a row they would be arguments of it.
    "[": "{[}",
    "*": "{*}",
}
_MARKDOWN = {"\\": "\\\\", "|": "\\|", "<": "&lt;"}

# All of ASCII's but the hyphen, which means nothing within a line.
_PUNCTUATION = re.compile(r"[!-,./:-@\[-`{-~]")


@dataclass(frozen=True)
class Column:
    """A column: its name, and the format of its numbers where a person reads them (`.4f`)."""

    name: str
    spec: str = ""


MEAN, DIFFERENCE, P_VALUE, COUNT = ".4f", "+.4f", ".2g", ","


@dataclass(frozen=True)
class Table:
    """Rows of text, numbers and, for what is undefined or does not apply, None."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    @property
    def header(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    def shown(self) -> list[list[str]]:
        """The cells as a person reads them, on one line each: numbers in their column's format, `-`
        for None.
        """
        return [
            [
                " ".join(shown(cell, column.spec).splitlines())
                for cell, column in zip(row, self.columns, strict=True)
            ]
            for row in self.rows
        ]

    def exact(self) -> list[list[str]]:
        """The cells with all digits; None is empty."""
        return [["" if cell is None else str(cell) for cell in row] for row in self.rows]

    def is_text(self, position: int) -> bool:
        """Whether a column holds text, which is aligned to the left."""
        return any(isinstance(row[position], str) for row in self.rows)


def markdown_text(text: str) -> str:
    """A text that Markdown shows as it is, on one line."""
    return _PUNCTUATION.sub(r"\\\g<0>", printable(text))


def markdown(table: Table) -> str:
    """A table of GitHub's Markdown."""
    rules = ["---" if table.is_text(position) else "---:" for position in range(len(table.columns))]
    cells = [[_escape(cell, _MARKDOWN) for cell in row] for row in [table.header, *table.shown()]]
    return "".join(f"| {' | '.join(row)} |\n" for row in [cells[0], rules, *cells[1:]])


def latex(table: Table) -> str:
    """A `tabular` with the rules of the package booktabs."""
    alignment = "".join(
        "l" if table.is_text(position) else "r" for position in range(len(table.columns))
    )
    cells = [[_escape(cell, _LATEX) for cell in row] for row in [table.header, *table.shown()]]
    header, *rows = [f"{' & '.join(row)} \\\\" for row in cells]
    lines = [
        f"\\begin{{tabular}}{{{alignment}}}",
        "\\toprule",
        header,
        "\\midrule",
        *rows,
        "\\bottomrule",
    ]
    return "\n".join([*lines, "\\end{tabular}", ""])


def comma_separated(table: Table) -> str:
    """CSV with a header and all digits; a cell that is undefined is empty."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.header, *table.exact()])
    return text.getvalue()


# Beside these, commands print tables for a terminal and JSON objects.
FORMATS: dict[str, Callable[[Table], str]] = {
    "latex": latex,
    "markdown": markdown,
    "csv": comma_separated,
}


def shown(cell: Cell, spec: str = "") -> str:
    """A cell as a person reads it: a number in a format, `-` for None."""
    if isinstance(cell, str):
        return cell
    return _UNDEFINED if cell is None else format(cell, spec)


def _escape(text: str, special: Mapping[str, str]) -> str:
    return "".join(special.get(character, character) for character in printable(text))
