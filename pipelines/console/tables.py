"""The output of commands about a run: tables in every format, and in words its counts and its
cost.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from beamrank.commit.receipts import Manifest
from beamrank.commit.status import StageStatus
from beamrank.commit.working import LeftOpen
from beamrank.evaluation.evaluate import Evaluation
from beamrank.evaluation.tables import FORMATS, MEAN, Cell, Column, Table
from beamrank.formats.excluded import OWN_SHARE
from beamrank.notes import counted, first_few
from beamrank.storage.urls import printable
from pipelines.console.progress import PrintableConsole
from pipelines.console.terminal import write_line

_BETWEEN = 2
_NARROWEST_NAME = 12

# In which `print_result` prints.
RESULT_FORMATS = ("table", *FORMATS, "json")


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], console: Console | None = None
) -> None:
    """Prints a table without cutting cells, or a block of lines for each row where the table does
    not fit.

    The first column names a row, and may be wrapped.
    """
    console = console or PrintableConsole(sys.stdout)
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, cells)) for cells in zip(header, *rows, strict=True)]
    needed = min(widths[0], _NARROWEST_NAME) + sum(widths[1:]) + _BETWEEN * (len(widths) - 1)
    if needed > console.width:
        _print_blocks(console, header, rows)
        return
    first = rich_table.Column(Text(header[0]), overflow="fold")
    others = [rich_table.Column(Text(name), no_wrap=True) for name in header[1:]]
    table = rich_table.Table(
        first, *others, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _print_blocks(console: Console, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    width = max(map(cell_len, header))
    for name, *cells in rows:
        console.print(Text(name, "bold"), soft_wrap=True)
        for label, cell in zip(header[1:], cells, strict=True):
            console.print(Text(f"  {label:<{width}}  {cell}"), soft_wrap=True)


def print_result(table: Table, result: object, result_format: str) -> None:
    """Prints a result in one of `RESULT_FORMATS`; with `table`, a pipe gets it tab-separated, with
    all digits.
    """
    if result_format == "json":
        write_line(json.dumps(result, ensure_ascii=False, allow_nan=False))
    elif result_format in FORMATS:
        for line in FORMATS[result_format](table).removesuffix("\n").split("\n"):
            write_line(line)
    elif sys.stdout.isatty():
        print_table(table.header, table.shown())
    else:
        for row in (table.header, *table.exact()):
            # A text with a tab or a line end would look like more cells or rows.
            write_line(*(" ".join(cell.split()) for cell in row))


def print_measures(evaluations: Mapping[str, Evaluation]) -> None:
    """Prints one row for each run: a table on a terminal, tab-separated elsewhere."""
    measures = list(next(iter(evaluations.values())).means)
    rows: list[list[Cell]] = [
        [name, *map(evaluation.means.__getitem__, measures)]
        for name, evaluation in evaluations.items()
    ]
    table = Table([Column("run"), *(Column(measure, MEAN) for measure in measures)], rows)
    if sys.stdout.isatty():
        print_table(table.header, table.shown())
    else:
        print("\n".join("\t".join(row) for row in [table.header, *table.shown()]))


@dataclass(frozen=True)
class _Reported:
    """One count; `of` names the counts that add up to its total, `named` adds the receipts'
    examples.

    A share of the total below `least` is not reported.
    """

    count: str
    of: tuple[str, ...]
    noun: str
    verb: str
    named: bool = False
    least: float = 0.0


# The join works shard by shard, so a doc that several shards need is counted in each of them.
_NEEDED = "docs (counted once for each shard that needs them)"
_NO_CANDIDATES = "have no candidates: they keep their place but have no run lines"
_OWN_DOCS = (
    "have the doc of their own id among the first ten candidates: where topics are docs, as in "
    "ArguAna and Quora, `exclude: self` in the first stage leaves it out"
)
_DROPPED = "are not in the corpus: dropped (on_missing_doc: drop)"
_PARTS, _AGAIN = "parts of earlier runs", "so their scores were computed again"
_REPORTED = (
    _Reported("topics_without_candidates", ("topics",), "topics", _NO_CANDIDATES, named=True),
    _Reported("excluded", (), "docs", "were left out of the candidates (exclude)"),
    _Reported("own_docs", ("topics",), "topics", _OWN_DOCS, least=OWN_SHARE),
    _Reported("missing_docs", ("distinct_docs", "missing_docs"), _NEEDED, _DROPPED, named=True),
    _Reported("truncated_queries", ("queries",), "queries", "were truncated"),
    # Of the join, and of a stage that scores.
    _Reported("truncated_docs", ("distinct_docs",), _NEEDED, "were truncated"),
    _Reported("truncated_docs", ("candidates",), "query-document pairs", "had their doc truncated"),
    _Reported(
        "halvings",
        (),
        "batches",
        "were halved because memory ran out: scores may differ in the last digits",
    ),
    _Reported("unusable_parts", (), _PARTS, f"could not be read, {_AGAIN}"),
    _Reported(
        "parts_of_other_machines", (), _PARTS, f"came from a different kind of machine, {_AGAIN}"
    ),
)


def cost_words(stage: StageStatus) -> Iterator[str]:
    """The cost of the finished shards of a stage; nothing if there are none."""
    if stage.done:
        yield f"{stage.seconds:,.1f} worker seconds"
    if stage.inferences or stage.reused:
        rates = {
            "per query": stage.inferences_per_query,
            "a second on one worker": stage.inferences_per_second,
        }
        shown = ", ".join(f"{rate:,.1f} {unit}" for unit, rate in rates.items() if rate is not None)
        reused = f" and {stage.reused:,} reused from earlier runs" if stage.reused else ""
        yield f"{stage.inferences:,} inferences{reused} ({shown})"
    if stage.padding_share is not None:
        yield f"{stage.tokens:,} tokens ({stage.padding_share:.1%} padding)"
    if stage.retries:
        yield f"started again {counted(len(stage.retries), 'time')} ({'; '.join(stage.retries)})"


def left_open_words(shards: Iterable[LeftOpen]) -> Iterator[str]:
    """The shards that were left open for each reason."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for left in shards:
        numbers[left.reason].append(left.shard)
    for reason, left_open in numbers.items():
        yield f"shards left open: {first_few(left_open)} ({reason})"


def count_lines(manifest: Manifest) -> Iterator[str]:
    """A line for each count that is not zero, with its share if every receipt has the counts of the
    total.
    """
    receipts = manifest.receipts
    examples = [example for receipt in receipts for example in receipt.examples][:3]
    for reported in _REPORTED:
        number, total = manifest.total(reported.count), sum(map(manifest.total, reported.of))
        has_total = [all(name in receipt.counts for name in reported.of) for receipt in receipts]
        if not any(has_total) or not number or number < reported.least * total:
            continue
        share = ""
        if total and all(has_total):
            percent = 100 * number / total
            share = f" ({percent:.1f} %)" if percent >= 0.1 else " (less than 0.1 %)"
        of = f" of {total:,}" if share else ""
        first = f" (first: {'; '.join(examples)})" if reported.named else ""
        yield f"{manifest.stage}: {number:,}{of} {reported.noun}{share} {reported.verb}{first}"
