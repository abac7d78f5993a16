"""Tables on standard output, and the warning about a stage that scores below the one before it."""

import sys
from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from beamrank.evaluation.evaluate import Evaluation
from beamrank.evaluation.significance import Loss, find_losses
from beamrank.printable import printable
from beamrank.progress import Progress
from pipelines.console.terminal import PrintableConsole

_BETWEEN = 2
_NARROWEST_NAME = 12
_LEVEL = 0.05


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], console: Console | None = None) -> None:
    """Prints a table without cutting cells, or a block of lines for each row where the table does not fit.

    Args:
        header: the column names. The first column names a row, and may be wrapped.
        rows: the cells.
        console: by default standard output.
    """
    console = console or PrintableConsole(sys.stdout)
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, cells)) for cells in zip(header, *rows, strict=True)]
    needed = min(widths[0], _NARROWEST_NAME) + sum(widths[1:]) + _BETWEEN * (len(widths) - 1)
    if needed > console.width:
        _print_blocks(console, header, rows)
        return
    first = Column(Text(header[0]), overflow="fold")
    others = [Column(Text(name), no_wrap=True) for name in header[1:]]
    table = Table(first, *others, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _print_blocks(console: Console, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    width = max(map(cell_len, header))
    for name, *cells in rows:
        console.print(Text(name, "bold"), soft_wrap=True)
        for label, cell in zip(header[1:], cells, strict=True):
            console.print(Text(f"  {label:<{width}}  {cell}"), soft_wrap=True)


def print_measures(evaluations: Mapping[str, Evaluation]) -> None:
    """Prints one row for each run: a table on a terminal, tab-separated elsewhere."""
    measures = list(next(iter(evaluations.values())).means)
    rows = [[name, *(f"{each.means[measure]:.4f}" for measure in measures)] for name, each in evaluations.items()]
    if sys.stdout.isatty():
        print_table(["run", *measures], rows)
    else:
        print("\n".join("\t".join(row) for row in [["run", *measures], *rows]))


def warn_of_losses(evaluations: Mapping[str, Evaluation], progress: Progress) -> None:
    """Warns about each stage that scores below the stage before it."""
    for loss in find_losses(evaluations):
        progress.warn(_explain(loss))


def _explain(loss: Loss) -> str:
    found = loss.comparison
    advice = (
        "Use a larger checkpoint, or remove the stage"
        if found.p_value < _LEVEL
        else "A difference of this size can be due to chance"
    )
    return (
        f"{loss.run} is below {loss.before}: {loss.measure} {found.mean:.4f} after {found.baseline:.4f}, difference "
        f"{found.difference:+.4f} (topics better {found.better:,}, equal {found.equal:,}, worse {found.worse:,}; "
        f"p = {found.p_value:.2g}, paired t-test). {advice}: docs/reference/measures.md, "
        '"A stage below the one before it"'
    )
