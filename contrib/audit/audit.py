"""Scores shards of a run again, and compares what is stored with what this machine computes.

Nothing is written: each shard goes through its stage into a temporary folder, from the stored parts
that it read. The same kind of machine gives the same bits; on another kind ranks are compared.
"""

import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest, Receipt, StageFolder, read_machine
from beamrank.commit.shards import ShardTask
from beamrank.errors import LeftOpenError, PreflightError
from beamrank.machine import Machine, describe_machine, is_cuda
from beamrank.storage import files as storage
from beamrank.storage.documents import digest
from models.stages.attempt import run_shard, shard_inputs
from models.stages.base import Stage

CONFIDENCE = 0.95


@dataclass(frozen=True)
class CheckedShard:
    """A shard of a stage, stored and computed again.

    Attributes:
        shard: its number.
        by_rank: another kind of machine stored it (or an unknown one), so that bits can differ.
        scores: how many were computed: without the diagonals of matrices of pairs, and other gaps.
        different: how many of them have other bits.
        largest_difference: of a score.
        rows_differ: its rows differ from the computed ones beside their scores, or a score is not a
            finite number.
        reranked: the queries whose docs it orders differently.
    """

    shard: int
    by_rank: bool
    scores: int
    different: int
    largest_difference: float
    rows_differ: bool
    reranked: tuple[str, ...]

    @property
    def wrong(self) -> bool:
        """Whether its stage stored what it should not have."""
        return self.rows_differ or bool(self.reranked if self.by_rank else self.different)


@dataclass
class AuditedStage:
    """A stage with a model, and its shards that were scored again."""

    stage: str
    checkpoint: str
    dtype: str
    device: str
    backend: str
    kernel: str
    shards: list[CheckedShard] = field(default_factory=list)

    @property
    def scores(self) -> int:
        """How many scores were computed again."""
        return sum(shard.scores for shard in self.shards)

    @property
    def wrong(self) -> list[int]:
        """The shards that are wrong."""
        return [shard.shard for shard in self.shards if shard.wrong]


def draw_shards(shards: int, count: int, seed: int) -> list[int]:
    """Some of the shards, in random order: by SHA-256, so that more of them with the same seed
    begin with these.
    """
    return sorted(range(shards), key=lambda shard: digest([seed, shard]))[:count]


def most_wrong(wrong: int, audited: int, shards: int) -> int:
    """The most of all shards that can be wrong, at 95 % confidence, given how many of those drawn
    are.

    It is the exact bound of the hypergeometric distribution: with any more, so few wrong ones would
    be drawn in at most 5 % of the cases. Of many shards it is near 3 / audited where none is wrong.
    """
    # It takes a second to import.
    from scipy.stats import hypergeom

    possible = range(wrong, shards - (audited - wrong) + 1)
    first = bisect_left(
        possible,
        True,
        key=lambda count: bool(hypergeom.cdf(wrong, shards, count, audited) <= 1 - CONFIDENCE),
    )
    return possible[first - 1]


def audit_stage(
    plan: Plan, stage: Stage, manifests: Mapping[str, Manifest], shards: Sequence[int]
) -> Iterator[CheckedShard]:
    """Scores some shards of a finished stage again.

    Raises:
        PreflightError: the model is not the one of the run, or this machine cannot compute as the
            run did, in bits or, of pairs, which have no ranks.
        ReceiptError: a stored part is damaged.
    """
    record, here = plan.stage(stage.name), describe_machine()
    with tempfile.TemporaryDirectory(prefix="beamrank-audit-") as folder:
        computed = StageFolder(storage.join(folder, stage.name))
        for shard in shards:
            stored = manifests[stage.name].receipts[shard]
            task = plan.task(
                record, shard, [manifests[name].receipts[shard] for name in record.inputs]
            )
            again = run_shard(stage, replace(task, folder=computed)).receipt
            if again is None:
                (left,) = computed.left_open({shard: task.digest})
                raise LeftOpenError(f"shard {shard} was not computed again: {left.reason}")
            then = read_machine(plan.output, stored.machine)
            alike = _alike(then, here, stage, (stored, again))
            if not alike and not stage.ranks:
                raise PreflightError(
                    f"shard {shard} was scored by another kind of machine "
                    f"({then.processor if then else 'unknown'}), whose last digits differ, and "
                    "pairs have no ranks to compare: audit it on a machine of that kind"
                )
            tables = plan.folder(stage.name).read_part(stored), computed.read_part(again)
            yield _compare(shard, stage, task, *tables, by_rank=not alike)
            storage.remove(computed.part_url(again))


def _alike(then: Machine | None, here: Machine, stage: Stage, receipts: Sequence[Receipt]) -> bool:
    """Whether two machines give the same bits; on a GPU batches decide too, and batches that memory
    cut differ.
    """
    backend, device = (stage.keys.get(name, "") for name in ("backend", "device"))
    if then is None or then.arithmetic(backend) != here.arithmetic(backend):
        return False
    cut = any(receipt.counts.get("halvings") for receipt in receipts)
    return not is_cuda(device) or (set(then.gpus) == set(here.gpus) and not cut)


def _compare(
    shard: int,
    stage: Stage,
    task: ShardTask,
    stored: pa.Table,
    computed: pa.Table,
    *,
    by_rank: bool,
) -> CheckedShard:
    # Of pairs, other columns are copied.
    tables = [part.select(stage.schema.names) for part in (stored, computed)]
    rows, scores = zip(*map(_split, tables), strict=True)
    one, other = scores
    computed_scores = int(np.isfinite(other).sum())
    if rows[0] != rows[1] or (np.isfinite(one) != np.isfinite(other)).any():
        return CheckedShard(shard, by_rank, computed_scores, computed_scores, 0.0, True, ())
    bits = [values.view(f"u{values.itemsize}") for values in scores]
    different = (bits[0] != bits[1]) & ~np.isnan(one)
    changes = np.abs(one[different].astype(np.float64) - other[different])
    reranked: tuple[str, ...] = ()
    if len(changes) and stage.ranks:
        parts = stage.parts_before(shard_inputs(stage, task)) if stage.reads else None
        before = None if parts is None else parts.rankings(parts.stages[-1].name)
        orders = [
            {
                query_id: list(ranking.doc_ids)
                for query_id, ranking in stage.rank(before, table).items()
            }
            for table in (stored, computed)
        ]
        reranked = tuple(
            query_id for query_id, order in orders[0].items() if order != orders[1][query_id]
        )
    return CheckedShard(
        shard,
        by_rank,
        computed_scores,
        len(changes),
        float(changes.max(initial=0.0)),
        False,
        reranked,
    )


def _split(table: pa.Table) -> tuple[list[list[Any]], NDArray[np.floating[Any]]]:
    """The columns of a part without scores, of lists of these the lengths; and all scores, NaN
    where one is missing.
    """
    rows: list[list[Any]] = []
    scores: list[NDArray[np.floating[Any]]] = [np.empty(0, np.float32)]
    for column in table.columns:
        is_list = pa.types.is_list(column.type)
        values = pc.list_flatten(column) if is_list else column
        is_score = pa.types.is_floating(values.type)
        if is_score:
            scores.append(values.to_numpy())
        if is_list or not is_score:
            rows.append((pc.list_value_length(column) if is_score else column).to_pylist())
    return rows, np.concatenate(scores)
