"""The figures of each engine: how they are computed, kept in a file that runs add to, and shown as
tables.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from beamrank.evaluation.compare import agreement
from benchmarks.engine.engines import Measured
from benchmarks.engine.sorted_batches import Log
from benchmarks.engine.texts import DEPTH, Inputs

_COLUMNS = (
    *("engine", "inputs/s", "share of the matmul peak", "padding"),
    *("Kendall's tau", "overlap@10", "nDCG@10 less that of float32"),
)


@dataclass(frozen=True)
class Row:
    """An engine's figures for one shape and length.

    Attributes:
        machine: the processor or GPU, and the threads.
        processor: its kind, as in `models.scoring.backends.registry`.
        shape: of `SHAPES`.
        tokens: `real`, or how many an input has.
        engine: its name.
        inputs: how many were scored.
        rate: inputs per second.
        peak_share: of the machine's best matrix product, counting no padding and no attention.
        padding: the share of the computed tokens that are padding; None if the engine does not
            tell.
        tau: Kendall's, of each question's docs with those of the reference.
        overlap: of the first ten.
        ndcg_change: of nDCG@10 from the reference's; None without judgments.
    """

    machine: str
    processor: str
    shape: str
    tokens: str
    engine: str
    inputs: int
    rate: float
    peak_share: float
    padding: float | None
    tau: float
    overlap: float
    ndcg_change: float | None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What a later measurement replaces."""
        return self.machine, self.shape, self.tokens, self.engine


@dataclass(frozen=True)
class Setting:
    """What all rows of one shape and length share: the first fields of a row, the inputs, and the
    reference.

    Attributes:
        flops: of the inputs, floating-point operations.
        peak: of the machine, floating-point operations per second.
    """

    machine: str
    processor: str
    shape: str
    tokens: str
    inputs: Inputs
    reference: Measured
    flops: float
    peak: float

    def row(self, engine: str, found: Measured) -> Row:
        """The figures of an engine."""
        wanted = rankings(self.reference.scored.log_odds)
        agreed = agreement(rankings(found.scored.log_odds), wanted).means
        count, computed = len(self.inputs.texts), found.scored.computed_tokens
        judged = min(self.inputs.relevant) >= 0
        change = ndcg(found.scored.log_odds, self.inputs) - ndcg(
            self.reference.scored.log_odds, self.inputs
        )
        return Row(
            self.machine,
            self.processor,
            self.shape,
            self.tokens,
            engine,
            count,
            count / found.seconds,
            self.flops / found.seconds / self.peak,
            1 - self.reference.scored.tokens / computed if computed else None,
            agreed["tau"] or 0.0,
            agreed["overlap@10"] or 0.0,
            change if judged else None,
        )


def rankings(scores: Log) -> dict[str, list[str]]:
    """The order of each question's docs."""
    starts = range(0, len(scores), DEPTH)
    return {
        str(start): [str(doc) for doc in np.argsort(-scores[start : start + DEPTH])]
        for start in starts
    }


def ndcg(scores: Log, inputs: Inputs) -> float:
    """nDCG@10 of questions with one relevant doc each."""
    gains = []
    for ranking, relevant in zip(rankings(scores).values(), inputs.relevant, strict=True):
        place = ranking.index(str(relevant)) if str(relevant) in ranking else len(ranking)
        gains.append(1 / np.log2(place + 2) if place < 10 else 0.0)
    return float(np.mean(gains))


def read_rows(path: Path) -> list[Row]:
    """The rows of a file; none where it does not exist."""
    return TypeAdapter(list[Row]).validate_json(path.read_bytes()) if path.exists() else []


def add_rows(path: Path, rows: Iterable[Row]) -> list[Row]:
    """Replaces the rows of a file that were measured again, keeps the others, and returns all."""
    merged = {row.key: row for row in [*read_rows(path), *rows]}
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(
        json.dumps({name: _short(value) for name, value in asdict(row).items()})
        for row in merged.values()
    )
    path.write_text(f"[\n{lines}\n]\n")
    return list(merged.values())


def tables(rows: Sequence[Row]) -> str:
    """A table for each machine, shape and length, in the order in which they were measured."""
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.key[:3]].append(row)
    return "\n\n".join(_table(*key, some) for key, some in groups.items())


def _table(machine: str, shape: str, tokens: str, rows: Sequence[Row]) -> str:
    head = [f"**{shape}**, {tokens} tokens, {rows[0].inputs} inputs, {machine}", ""]
    return "\n".join([*head, _line(_COLUMNS), _line(["---"] * len(_COLUMNS)), *map(_figures, rows)])


def _figures(row: Row) -> str:
    padding = "" if row.padding is None else f"{row.padding:.1%}"
    change = "" if row.ndcg_change is None else f"{row.ndcg_change:+.4f}"
    figures = (
        f"{row.rate:.1f}",
        f"{row.peak_share:.3f}",
        padding,
        f"{row.tau:.4f}",
        f"{row.overlap:.3f}",
        change,
    )
    return _line((row.engine, *figures))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _short(value: object) -> object:
    return float(f"{value:.6g}") if isinstance(value, float) else value
