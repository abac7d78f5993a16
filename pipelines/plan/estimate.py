"""The cost of a plan: its counts, seconds by the receipts of earlier plans; and limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import NamedTuple

import numpy as np

from beamrank.commit.listing import CURRENT, list_answers
from beamrank.commit.plan import Plan, read_plan
from beamrank.commit.receipts import Receipt, read_machine
from beamrank.commit.scans import read_scans
from beamrank.commit.shards import ShardTask
from beamrank.commit.stage import StageRecord
from beamrank.commit.status import read_receipts
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, ConfigError, PreflightError
from beamrank.formats.corpora import list_units
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as
from models.stages.attempt import shard_inputs
from models.stages.base import Stage
from models.stages.core import open_stages
from models.stages.corpus_scan import docs_bytes
from models.stages.join_docs import JoinDocs
from pipelines.passes import shuffle_passes
from pipelines.plan.changes import Change, plan_changes
from pipelines.plan.make_plan import planned
from pipelines.plan.reuse import Reuse
from pipelines.runners.options import Runner, shuffle_room

_LEAST_RECEIPTS = 3
# The keys that decide how long an input or a text takes.
_PACE_KEYS = ("checkpoint_digest", "tokenizer_digest", "dtype", "backend", "kernel", "device")
# A plan, and the receipts of each of its stages by shard.
_Done = tuple[Plan, Mapping[str, Mapping[int, Receipt]]]


@dataclass(frozen=True)
class StageEstimate:
    """The most inferences of a stage, in all and of its shards without a receipt, whatever is
    reused. Of a stage that asks they are requests, less the answers that are kept where a shard's
    inputs are done; `least_requests` takes all kept answers off.

    One worker needs `remaining_seconds`, by so many `receipts` in `output`; None where too few
    tell.
    """

    stage: str
    inferences: int
    remaining_shards: int
    remaining_inferences: int
    remaining_seconds: float | None = None
    receipts: int = 0
    output: str = ""
    least_requests: int | None = None


@dataclass(frozen=True)
class Estimate:
    """All work of a plan; the corpus is read at most `join_passes` times, with the memory that is
    free now.

    `topics_known` have the same text in an earlier output. `changed` holds the differences from the
    current plan of the output; `note` explains what is not known.
    """

    topics: int
    topics_known: int
    shards: int
    join_passes: int
    stages: tuple[StageEstimate, ...]
    changed: tuple[Change, ...]
    note: str | None

    @property
    def resumes(self) -> bool:
        """Whether earlier receipts count."""
        return any(stage.remaining_shards < self.shards for stage in self.stages)


class Limits(NamedTuple):
    """The most inferences to make, and hours to take on one worker; None: any number."""

    max_inferences: int | None = None
    max_hours: float | None = None

    @classmethod
    def of(cls, values: Mapping[str, float]) -> "Limits":
        """Limits by their names; raises ConfigError for an unknown one."""
        unknown = sorted(values.keys() - set(cls._fields))
        if unknown:
            raise ConfigError(f"limits has no {unknown[0]}: give {' or '.join(cls._fields)}")
        inferences = values.get("max_inferences")
        return cls(None if inferences is None else int(inferences), values.get("max_hours"))

    def check(self, config: RunConfig, step: str | None) -> int | None:
        """The most inferences that the launcher allows, which counts them after reuse: where topics
        are known, it counts exactly.

        Raises:
            BeamrankError: the plan, or one step of it, could exceed a limit: what is expected and
                allowed.
        """
        estimated = estimate(config)
        stages = [stage for stage in estimated.stages if step in (None, stage.stage)]
        inferences = sum(stage.remaining_inferences for stage in stages)
        over = []
        if (
            self.max_inferences is not None
            and not estimated.topics_known
            and inferences > self.max_inferences
        ):
            over.append(
                f"up to {inferences:,} inferences are counted, and --max-inferences allows "
                f"{self.max_inferences:,}"
            )
        if self.max_hours is not None:
            seconds = [stage.remaining_seconds for stage in stages]
            if None in seconds:
                raise PreflightError(
                    f"--max-hours needs {_LEAST_RECEIPTS} receipts of each stage, and "
                    f"{stages[seconds.index(None)].stage} has fewer: run with topics.limit first"
                )
            hours = sum(filter(None, seconds)) / 3600
            if hours > self.max_hours:
                over.append(
                    f"{hours:,.3g} hours of one worker are expected, and --max-hours allows "
                    f"{self.max_hours:,g}"
                )
        if over:
            raise BeamrankError(
                f"nothing was started: {'; '.join(over)}. Raise the limit, or lower k; `beamrank "
                "plan` shows each stage"
            )
        return self.max_inferences if estimated.topics_known else None


def estimate(config: RunConfig) -> Estimate:
    """Counts the work of a plan, and the rest of it after earlier plans. Writes nothing.

    Every topic is taken to have all its candidates, so that counts are upper bounds.

    Raises:
        PreflightError: an input is missing or invalid.
    """
    storage.check_folder(config.output)
    plan, notes = planned(config)
    stages = open_stages(plan.stages)
    if not stages[0].is_ready:
        notes.append("the index is not built yet, so it is unknown which shards are finished")
    with errors_as(PreflightError, config.output):
        has_plan = CURRENT in storage.sizes_bytes(config.output)
    # The digests of millions of topics take a minute.
    receipts = read_receipts(plan) if has_plan else {stage.name: {} for stage in plan.stages}
    done, changed = [(plan, receipts)], tuple[Change, ...]()
    known, reuse = np.zeros(len(plan.topics), np.bool_), Reuse(plan, config.reuse)
    if has_plan or config.reuse:
        plans, refused = reuse.plans
        notes += (f"not reused: {reason}" for reason in refused)
        for before in (earlier for earlier in plans if not earlier.shards.of_rows):
            known[plan.topics.in_both(before.topics)[1]] = True
        done += ((earlier, read_receipts(earlier)) for earlier in plans)
    if has_plan:
        changed = _changed(plan, notes)
    passes, units = 0, 0
    if joins := [stage for stage in stages if isinstance(stage, JoinDocs)]:
        listed = list_units(config.corpus)
        units, docs = len(listed), len(plan.topics) * joins[0].k
        sent_bytes = docs_bytes(joins, docs, listed[0])
        passes = shuffle_passes(sent_bytes, len(plan.shards), shuffle_room(Runner.LOCAL))
    steps = dict.fromkeys(record.step for record in plan.stages)
    counted = {step: _stage(plan, step, stages, done, passes * units) for step in steps}
    topics_known = int(known.sum())
    for stage in stages:
        if stage.asks:
            most, least = _requests(plan, stage, receipts, reuse, topics_known)
            counted[stage.step] = replace(
                counted[stage.step], remaining_inferences=most, least_requests=least
            )
    return Estimate(
        len(plan.topics),
        topics_known,
        len(plan.shards),
        passes,
        tuple(counted.values()),
        changed,
        "; ".join(notes) or None,
    )


def _changed(plan: Plan, notes: list[str]) -> tuple[Change, ...]:
    """The differences from the current plan of the output, which may be damaged."""
    try:
        before = read_plan(plan.output)
        before.check_engine()
    except PreflightError as error:
        # Its receipts still count.
        notes.append(f"the changes since the last run are unknown: {error}")
        return ()
    if before.has_runs:
        return tuple(plan_changes(before, plan))
    notes.append(f"{plan.output} holds scores of `beamrank score`, which stay")
    return ()


def _stage(
    plan: Plan, step: str, stages: Sequence[Stage], done: Sequence[_Done], units: int
) -> StageEstimate:
    """The stages of one step: two tokenizers make two. `units` of the corpus are read in all."""
    group, receipts = [record for record in stages if record.step == step], done[0][1]
    shards = range(len(plan.shards))
    missing = set().union(*(shards - receipts[stage.name].keys() for stage in group))
    topics = sum(plan.shards.rows_of(shard).num_rows for shard in missing)
    most, left = (
        sum(record.cost(count) for record in group) for count in (len(plan.topics), topics)
    )
    if not missing:
        return StageEstimate(step, most, 0, 0, 0.0)
    seconds, pace = 0.0, None
    for stage in group:
        if (pace := _pace(stage.record(), done)) is None:
            return StageEstimate(step, most, len(missing), left)
        seconds += pace.seconds * (stage.cost(topics) if stage.input_docs else topics)
        seconds += pace.scan_seconds * (units if isinstance(stage, JoinDocs) else 1)
    assert pace is not None
    return StageEstimate(step, most, len(missing), left, seconds, pace.receipts, pace.output)


def _requests(
    plan: Plan,
    stage: Stage,
    receipts: Mapping[str, Mapping[int, Receipt]],
    reuse: Reuse,
    topics_known: int,
) -> tuple[int, int]:
    """The most and the least requests of the shards without a receipt: exact where the inputs of a
    shard are done, else as if all topics that are `topics_known` and all kept answers made none.
    """
    record, tasks, topics = plan.stage(stage.name), list[ShardTask](), 0
    for shard in range(len(plan.shards)):
        inputs = [receipts[name].get(shard) for name in record.inputs]
        if shard not in receipts[stage.name]:
            if None in inputs:
                topics += plan.shards.rows_of(shard).num_rows
            else:
                tasks.append(plan.task(record, shard, [*filter(None, inputs)]))
    known = [shard_inputs(stage, task) for task in reuse.given_to(record, tasks, lambda _: None)]
    kept = sum(entry.digest == record.asks for entry in list_answers(plan.output))
    least = max(0, stage.cost(max(0, topics - topics_known)) - kept)
    return (
        sum(map(stage.count, known)) + stage.cost(topics),
        sum(map(stage.least, known)) + least,
    )


class _Pace(NamedTuple):
    """The seconds that one worker took for an inference, or for a topic where a stage makes none,
    and for what it scanned: a unit of the corpus, or a given run.
    """

    seconds: float
    scan_seconds: float
    receipts: int
    output: str


def _pace(record: StageRecord, done: Sequence[_Done]) -> _Pace | None:
    """By the receipts of the first output that has enough of its latest receipt's processor."""
    for output, plans in groupby(done, lambda member: member[0].output):
        receipts: dict[str, tuple[Receipt, int]] = {}
        scan_seconds = 0.0
        for plan, of_plan in plans:
            for before in plan.stages:
                if before.type_name != record.type_name or any(
                    before.keys.get(key) != record.keys.get(key) for key in _PACE_KEYS
                ):
                    continue
                for shard, receipt in of_plan[before.name].items():
                    if not receipt.counts.get("reused"):
                        receipts[receipt.digest] = receipt, plan.shards.rows_of(shard).num_rows
                if before.scan_digest is not None:
                    scan = read_scans(plan.folder(before.name).url, before.scan_digest)
                    parts = scan.unit if before.corpus_digest else 1
                    scan_seconds = scan_seconds or scan.seconds / max(1, parts)
        latest = max((receipt for receipt, _ in receipts.values()), key=_committed, default=None)
        if latest is None:
            continue
        here = [
            (receipt.seconds, receipt.counts.get("inferences", 0) if record.input_docs else topics)
            for receipt, topics in receipts.values()
            if _processor(output, receipt.machine) == _processor(output, latest.machine)
        ]
        seconds, amount = (sum(column) for column in zip(*here, strict=True))
        if len(here) >= _LEAST_RECEIPTS and amount:
            return _Pace(seconds / amount, scan_seconds, len(here), output)
    return None


def _committed(receipt: Receipt) -> float:
    return receipt.committed_seconds


@cache
def _processor(output: str, name: str) -> tuple[str, tuple[str, ...]] | None:
    """The processor of a machine that a receipt names, and its GPUs."""
    machine = read_machine(output, name)
    return None if machine is None else (machine.processor, machine.gpus)
