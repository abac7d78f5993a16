"""The figures of each engine: how they are computed, kept in a file that runs add to, and shown as
tables.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beamrank.evaluation.compare import agreement
from benchmarks.engine.engines import Measured
from benchmarks.engine.sorted_batches import Log
from benchmarks.engine.texts import DEPTH, Inputs
from benchmarks.report import table

Row = dict[str, Any]
"""An engine's figures for a shape: `machine`, `processor`, `shape`, `engine`, and `figures`."""
# What a later measurement replaces.
_KEY = ("machine", "shape", "engine")
_COLUMNS = {
    "engine": ("engine", ""),
    "rate": ("inputs/s", ".1f"),
    "peak_share": ("share of the matmul peak", ".3f"),
    "padding": ("padding", ".1%"),
    "tau": ("Kendall's tau", ".4f"),
    "overlap": ("overlap@10", ".3f"),
    "ndcg_change": ("nDCG@10 less that of float32", "+.4f"),
}


def figures(measured: Measured, reference: Measured, inputs: Inputs, peak_share: float) -> Row:
    """The figures of an engine.

    Args:
        measured: of the engine.
        reference: of the engine whose scores it is compared with.
        inputs: what both scored.
        peak_share: the seconds that the machine's best matrix product would take for the inputs,
            counting no padding and no attention.
    """
    scores, wanted = measured.scored.log_odds, reference.scored.log_odds
    agreed = agreement(rankings(scores), rankings(wanted)).means
    computed = measured.scored.computed_tokens
    return {
        "inputs": len(scores),
        "rate": len(scores) / measured.seconds,
        "peak_share": peak_share / measured.seconds,
        "padding": 1 - reference.scored.tokens / computed if computed else None,
        "tau": agreed["tau"] or 0.0,
        "overlap": agreed["overlap@10"] or 0.0,
        "ndcg_change": ndcg(scores, inputs) - ndcg(wanted, inputs)
        if min(inputs.relevant) >= 0
        else None,
    }


def rankings(scores: Log) -> dict[str, list[str]]:
    """The order of each question's docs."""
    return {
        str(start): np.argsort(-scores[start : start + DEPTH]).astype(str).tolist()
        for start in range(0, len(scores), DEPTH)
    }


def ndcg(scores: Log, inputs: Inputs) -> float:
    """nDCG@10 of questions with one relevant doc each."""
    gains = [
        1 / np.log2(ranking.index(str(relevant)) + 2) if str(relevant) in ranking[:10] else 0.0
        for ranking, relevant in zip(rankings(scores).values(), inputs.relevant, strict=True)
    ]
    return float(np.mean(gains))


def read_rows(path: Path) -> list[Row]:
    """The rows of a file; none where it does not exist."""
    rows: list[Row] = json.loads(path.read_bytes()) if path.exists() else []
    return rows


def add_row(path: Path, row: Row) -> None:
    """Adds a row to a file, in place of an earlier one of the same engine, shape and machine."""
    short = {name: float(f"{x:.6g}") if isinstance(x, float) else x for name, x in row.items()}
    merged = {tuple(map(stored.get, _KEY)): stored for stored in [*read_rows(path), short]}
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(map(json.dumps, merged.values()))
    path.write_text(f"[\n{lines}\n]\n")


def tables(rows: Sequence[Row]) -> str:
    """A table for each machine and shape, in the order in which they were measured."""
    shapes: dict[str, list[Row]] = {}
    for row in rows:
        head = f"**{row['shape']}**, {row['inputs']} inputs, {row['machine']}"
        cells = {
            title: None if row[name] is None else format(row[name], form)
            for name, (title, form) in _COLUMNS.items()
        }
        shapes.setdefault(head, []).append(cells)
    return "\n".join(f"{head}\n\n{table(cells)}" for head, cells in shapes.items())
