"""Tables as Markdown, LaTeX and CSV."""

import csv
import io

from beamrank.evaluation.tables import FORMATS, Column, Table, shown

TABLE = Table(
    [Column("run"), Column("RR@10 & more", ".4f"), Column("wins", ",")],
    [["a_b|c\\.trec", 1 / 3, 1234], ["50 % {x}", None, None]],
)


def test_markdown_escapes_bars_and_aligns_numbers():
    assert FORMATS["markdown"](TABLE).splitlines() == [
        "| run | RR@10 & more | wins |",
        "| --- | ---: | ---: |",
        "| a_b\\|c\\\\.trec | 0.3333 | 1,234 |",
        "| 50 % {x} | - | - |",
    ]


def test_latex_escapes_special_characters():
    assert FORMATS["latex"](TABLE).splitlines() == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"run & RR@10 \& more & wins \\",
        r"\midrule",
        r"a\_b|c\textbackslash{}.trec & 0.3333 & 1,234 \\",
        r"50 \% \{x\} & - & - \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_text_cannot_leave_its_cell():
    hostile = Table(
        [Column("run"), Column("text")], [["[1em]a\\|b", "<script>\nx"], ["*x", "y\u2028z"]]
    )
    assert FORMATS["markdown"](hostile).splitlines()[2:] == [
        "| [1em]a\\\\\\|b | &lt;script> x |",
        "| *x | y z |",
    ]
    assert FORMATS["latex"](hostile).splitlines()[4:6] == [
        r"{[}1em]a\textbackslash{}|b & <script> x \\",
        r"{*}x & y z \\",
    ]


def test_csv_has_all_digits_and_empty_cells():
    assert list(csv.reader(io.StringIO(FORMATS["csv"](TABLE)))) == [
        ["run", "RR@10 & more", "wins"],
        ["a_b|c\\.trec", repr(1 / 3), "1234"],
        ["50 % {x}", "", ""],
    ]


def test_shown_formats_numbers_only():
    assert [shown(cell, ".2f") for cell in ("x", 0.125, 1, None)] == ["x", "0.12", "1.00", "-"]
