"""The table of measures that ends a run."""

import sys
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from beamrank.evaluation import Evaluation


def print_measures(evaluations: Mapping[str, Evaluation]) -> None:
    """One row a run, to standard output: a table on a terminal, tab-separated elsewhere."""
    measures = list(next(iter(evaluations.values())).means)
    console = Console(file=sys.stdout)
    rows = [[name, *(f"{each.means[measure]:.4f}" for measure in measures)] for name, each in evaluations.items()]
    if not console.is_terminal:
        print("\n".join("\t".join(row) for row in [["run", *measures], *rows]))
        return
    table = Table("run", *measures)
    for row in rows:
        table.add_row(*row)
    console.print(table)
