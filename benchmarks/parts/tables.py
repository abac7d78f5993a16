"""Rows a second and peak memory of the readers of docs, runs and qrels, beside pandas, which reads
a whole file at once.

Each file is read in a process of its own, by both in turn; the best round counts. Memory
is what a process has more at its peak than before it reads.
"""

import argparse
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from beamrank.formats.corpora import CorpusConfig, list_units, read_unit
from beamrank.formats.qrels import read_qrels
from beamrank.formats.runs import read_run
from benchmarks import synthetic
from benchmarks.results import Part
from benchmarks.subprocess_meter import run_apart

_MILLION = 1_000_000
_K = 1000
_AT_ONCE = 1 << 16
_RUN_COLUMNS = ("query_id", "Q0", "doc_id", "rank", "score", "tag")


class Table(NamedTuple):
    """A file and its readers.

    Attributes:
        millions: its rows.
        write: writes a number of rows.
        ours: reads it with beamrank, all that it holds.
        pandas: the function of pandas that reads it, with its arguments.
    """

    millions: int
    write: Callable[[Path, int], None]
    ours: Callable[[str], object]
    pandas: tuple[str, dict[str, object]]


def measure(options: argparse.Namespace, work: Path) -> Iterator[tuple[str, Part]]:
    """Yields a part for each file."""
    for name, table in TABLES.items():
        rows, path = round(table.millions * options.rows * _MILLION), work / name
        figures: dict[str, float] = {"rows": rows}
        table.write(path, rows)
        for reader in ("beamrank", "pandas"):
            usage = [run_apart(_read, name, str(path), reader) for _ in range(options.rounds)]
            seconds, peak = map(min, zip(*usage, strict=True))
            figures[f"{reader}_seconds"] = seconds
            figures[f"{reader}_peak_mib"] = int(peak) >> 20
            figures[f"{reader}_rows_per_second"] = round(rows / seconds)
        path.unlink()
        yield name, Part(figures)


def _read(name: str, path: str, reader: str) -> tuple[float, int]:
    """The seconds and the peak memory, in bytes, of one reading."""
    read: Callable[[str], object] = TABLES[name].ours
    if reader == "pandas":
        import pandas as pd

        function, arguments = TABLES[name].pandas
        read = partial(getattr(pd, function), **arguments)
    before, start = _peak_bytes(), time.perf_counter()
    read(path)
    return round(time.perf_counter() - start, 3), _peak_bytes() - before


def _peak_bytes() -> int:
    # The figure of getrusage begins with the peak of the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def _docs(path: str) -> None:
    for unit in list_units(CorpusConfig(path=path)):
        deque(read_unit(unit), maxlen=0)


def _write_docs(path: Path, docs: int) -> None:
    lines = path.with_name("docs.lines")
    synthetic.write_corpus(lines, docs)
    if path.suffix == ".tsv":
        lines.replace(path)
        return
    rows = [line.split("\t") for line in lines.read_text("ascii").splitlines()]
    lines.unlink()
    if path.suffix == ".parquet":
        table = pa.table(list(zip(*rows, strict=True)), ["id", "contents"])
        pq.write_table(table, path, row_group_size=_AT_ONCE)
        return
    with path.open("w", encoding="ascii") as file:
        file.writelines(f"{json.dumps({'id': own, 'contents': text})}\n" for own, text in rows)


def _write_run(path: Path, rows: int) -> None:
    synthetic.write_run(path, rows // _K, _K, 8_841_823)


def _write_qrels(path: Path, rows: int) -> None:
    with path.open("w", encoding="ascii") as file:
        file.writelines(
            f"{row // 20} 0 D{row * 7919 % 8_841_823} {row % 4}\n" for row in range(rows)
        )


_LINES: dict[str, object] = {"header": None, "sep": " ", "names": _RUN_COLUMNS}
_STRINGS = {"query_id": str, "doc_id": str}
TABLES = {
    "docs.jsonl": Table(
        1, _write_docs, _docs, ("read_json", {"lines": True, "dtype": {"id": str}})
    ),
    "docs.parquet": Table(1, _write_docs, _docs, ("read_parquet", {})),
    "docs.tsv": Table(
        1, _write_docs, _docs, ("read_csv", {"header": None, "sep": "\t", "dtype": str})
    ),
    "run.trec": Table(10, _write_run, read_run, ("read_csv", _LINES | {"dtype": _STRINGS})),
    "run.parquet": Table(10, _write_run, read_run, ("read_parquet", {})),
    "some.qrels": Table(
        1,
        _write_qrels,
        read_qrels,
        ("read_csv", _LINES | {"names": ("query_id", "Q0", "doc_id", "relevance")}),
    ),
}
