"""The cost of a run: counts from its plan, seconds from a short measurement, less what earlier runs
did; and limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beamrank.commit.listing import CURRENT
from beamrank.commit.plan import Plan, read_plan
from beamrank.commit.receipts import arithmetic_digest
from beamrank.commit.stage import StageRecord
from beamrank.commit.status import read_prediction, read_receipts
from beamrank.config.run import RunConfig
from beamrank.errors import BeamrankError, ConfigError, PreflightError
from beamrank.formats.corpora import list_units, read_unit
from beamrank.formats.texts.units import CorpusUnit
from beamrank.machine import describe_machine
from beamrank.ranking.aggregation import pair_inferences
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as
from beamrank.topic_table import TopicTable
from models.stages.base import RANKED_BY, Cost, Stage
from models.stages.core import open_stages
from models.stages.planning import Sample, Trial
from models.stages.tokenize import TokenizeDocs
from pipelines.plan.changes import Change, plan_changes
from pipelines.plan.make_plan import planned
from pipelines.plan.reuse import ReusableStage, Reuse
from pipelines.runners.options import Runner, shuffle_room

Counts: TypeAlias = npt.NDArray[np.int64]
_ROW_OVERHEAD_BYTES = 64
_TOKEN_BYTES = 2
_LETTERS_PER_TOKEN = 4
_SAMPLE_DOCS = 1000
_RANDOM_DOCS = "bytes and seconds are those of random docs, as no candidates are known yet"


@dataclass(frozen=True)
class StageEstimate:
    """The whole stage, and as `remaining_*` its shards without a receipt.

    `remaining_inferences` are the most that are made, and `remaining_reused` the most that are
    reused from earlier runs; `remaining_undecided` count in both, since the candidates or texts of
    their queries can have changed. The seconds are those of `remaining_inferences`.
    """

    stage: str
    inferences: int
    bytes: int
    seconds: float
    remaining_shards: int
    remaining_inferences: int
    remaining_reused: int
    remaining_undecided: int
    remaining_bytes: int
    remaining_seconds: float

    def predicted_seconds(self, shards: int) -> float:
        """Of the whole stage, which has so many shards, without what will be reused."""
        return self.remaining_seconds if self.remaining_shards == shards else self.seconds


@dataclass(frozen=True)
class Estimate:
    """A whole run; the corpus is read at most `join_passes` times, with the memory that is free
    now.

    `changed` holds the differences from the current plan of the output; `note` explains what is not
    known. `not_reused` explains why scores of earlier runs are not reused, a line each.
    """

    topics: int
    shards: int
    join_passes: int
    stages: tuple[StageEstimate, ...]
    changed: tuple[Change, ...]
    note: str | None
    not_reused: tuple[str, ...] = ()

    @property
    def resumes(self) -> bool:
        """Whether receipts of earlier runs count."""
        return any(stage.remaining_shards < self.shards for stage in self.stages)


class Limits(NamedTuple):
    """The most inferences that a run may make, and hours that it may take on one worker; None: any
    number.
    """

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

    def check(self, found: Estimate, stage: str | None) -> None:
        """Raises BeamrankError where a run, or one stage of it, would exceed a limit: what is
        predicted and allowed.
        """
        stages = [each for each in found.stages if stage in (None, each.stage)]
        inferences = sum(each.remaining_inferences for each in stages)
        hours = sum(each.remaining_seconds for each in stages) / 3600
        over = []
        if self.max_inferences is not None and inferences > self.max_inferences:
            over.append(
                f"up to {inferences:,} inferences are predicted, and --max-inferences allows "
                f"{self.max_inferences:,}"
            )
        if self.max_hours is not None and hours > self.max_hours:
            over.append(
                f"{hours:,.3g} hours of a worker like this machine are predicted, and --max-hours "
                f"allows {self.max_hours:,g}"
            )
        if over:
            raise BeamrankError(
                f"nothing was started: {'; '.join(over)}. Raise the limit, or lower k; `beamrank "
                "plan` shows each stage"
            )


@dataclass
class _Reusable:
    """Bounds of the inputs of a stage with a model that earlier runs scored, from plans and
    receipts: no part is read.

    Attributes:
        inputs: how many a query has at most.
        scored, reused: how many are scored and are reused at most, by the row of the plan's topics.
        known: whether an earlier run scored any.
        refused: why other earlier runs are not used, a line each.
    """

    inputs: int
    scored: Counts
    reused: Counts
    known: npt.NDArray[np.bool_]
    refused: Sequence[str]


@dataclass(frozen=True)
class _Earlier:
    """What earlier runs have done: by step the shards without a receipt, and the scores that can be
    reused.

    A step that is not among `missing` remains whole. `note` explains what is unknown.
    """

    missing: Mapping[str, Sequence[int]] = field(default_factory=dict)
    reusable: Mapping[str, _Reusable] = field(default_factory=dict)
    changed: tuple[Change, ...] = ()
    note: str | None = None


def estimate(config: RunConfig) -> Estimate:
    """Estimates a run and the rest of it after earlier runs. Writes nothing.

    Every topic is taken to have all its candidates, so that counts are upper bounds.

    Raises:
        PreflightError: an input is missing or invalid.
    """
    storage.check_folder(config.output)
    plan, warnings = planned(config)
    opened = open_stages(plan.stages)
    sample, earlier = (
        Sample.of(config, plan.topics, opened),
        _read_earlier(config, plan, opened[0].is_ready),
    )
    stages = []
    # Two tokenizers make two stages of one step.
    for step in dict.fromkeys(stage.step for stage in opened):
        group = [stage for stage in opened if stage.step == step]
        missing = earlier.missing.get(step, range(len(plan.shards)))
        topics = plan.shards.topics_of(missing)
        whole, rest = (_cost(group, sample, count) for count in (len(plan.topics), len(topics)))
        made, reused, seconds = rest.inferences, 0, rest.seconds
        bound = earlier.reusable.get(step)
        if bound is not None and len(topics):
            inputs, scored = bound.inputs * len(topics), int(bound.scored[topics].sum())
            made, reused = made * scored // inputs, made * int(bound.reused[topics].sum()) // inputs
            seconds *= scored / inputs
        undecided = max(0, made + reused - rest.inferences)
        stages.append(
            StageEstimate(step, *whole, len(missing), made, reused, undecided, rest.bytes, seconds)
        )
    passes, notes = 0, [earlier.note, *warnings]
    if tokenizing := [stage for stage in opened if isinstance(stage, TokenizeDocs)]:
        passes = join_passes(
            len(plan.topics) * tokenizing[0].k,
            list_units(config.corpus)[0],
            len(plan.shards),
            max(stage.max_doc_tokens for stage in tokenizing),
            shuffle_room(Runner.LOCAL),
        )
        notes += [_RANDOM_DOCS] if sample.is_random else []
    refused = [
        f"{name}: not reused: {one}"
        for name, each in earlier.reusable.items()
        for one in each.refused
    ]
    return Estimate(
        len(plan.topics),
        len(plan.shards),
        passes,
        tuple(stages),
        earlier.changed,
        "; ".join(filter(None, notes)) or None,
        tuple(dict.fromkeys(refused)),
    )


def shard_seconds(
    config: RunConfig, plan: Plan, stage: StageRecord, measures: bool = True
) -> float:
    """What a shard of a stage is expected to take: as `plan --save` predicted, or for a model as
    measured now.

    Args:
        config: the configuration.
        plan: its plan.
        stage: the stage.
        measures: whether workers are like this machine; otherwise 0 stands for what is not known.

    Raises:
        PreflightError: an input is missing or invalid.
    """
    predicted = read_prediction(plan.output)
    if predicted is not None and stage.step in predicted.seconds:
        return predicted.seconds[stage.step] / len(plan.shards)
    if stage.work is None or not measures:
        return 0.0
    opened = open_stages(plan.stages)
    (chosen,) = (each for each in opened if each.name == stage.name)
    tokenizing = [each for each in opened if isinstance(each, TokenizeDocs)]
    # Without a first stage, which would start Java in this process, docs are any of the corpus.
    sample = Sample.of(config, plan.topics, [*tokenizing, chosen], Trial())
    seconds: float = chosen.cost(sample, len(plan.topics)).seconds
    return seconds / len(plan.shards)


def _cost(stages: Sequence[Stage], sample: Sample, topics: int) -> Cost:
    return Cost(*map(sum, zip(*(stage.cost(sample, topics) for stage in stages), strict=True)))


def join_passes(
    docs: int, unit: CorpusUnit, shards: int, doc_tokens: int, room_bytes: float
) -> int:
    """The number of passes over the corpus, so that each shuffle fits in this machine's memory.

    Args:
        docs: how many docs travel, a doc once for each shard that needs it.
        unit: one of the corpus, whose docs are as long as those of others.
        shards: how many shards are joined; the most passes.
        doc_tokens: how many tokens are kept of a doc.
        room_bytes: see `pipelines.runners.options.shuffle_room`.
    """
    return shuffle_passes(docs * _doc_bytes(unit, doc_tokens), shards, room_bytes) if docs else 1


def shuffle_passes(size_bytes: float, shards: int, room_bytes: float) -> int:
    """The number of jobs, each with some of the shards, so that each sends at most `room_bytes`."""
    return max(1, min(shards, -int(-size_bytes // room_bytes)))


def _doc_bytes(unit: CorpusUnit, doc_tokens: int) -> float:
    """The bytes of a doc in the shuffle, estimated from the letters of the first docs."""
    letters: list[int] = []
    for batch in read_unit(unit):
        letters += [len(text) for text in batch.texts]
        if len(letters) >= _SAMPLE_DOCS:
            break
    tokens = [min(count / _LETTERS_PER_TOKEN, doc_tokens) for count in letters]
    return _ROW_OVERHEAD_BYTES + _TOKEN_BYTES * sum(tokens) / max(1, len(tokens))


def _read_earlier(config: RunConfig, plan: Plan, is_ready: bool) -> _Earlier:
    """Reads what earlier runs did; raises PreflightError where the output or an input cannot be
    read.
    """
    with errors_as(PreflightError, config.output):
        has_plan = CURRENT in storage.sizes_bytes(config.output)
    if not has_plan and not config.reuse:
        return _Earlier()
    reuse = Reuse(plan, config.reuse)
    reusable: dict[str, _Reusable] = {}
    for stage in plan.stages:
        if stage.work is not None:
            reusable[stage.step] = _reusable(plan, stage, reuse, reusable.get(stage.inputs[-1]))
    if not is_ready:
        return _Earlier(
            {}, reusable, note="which shards and candidates stay is known once the index is built"
        )
    if not has_plan:
        return _Earlier({}, reusable)
    done = read_receipts(plan)
    missing: dict[str, set[int]] = {}
    for stage in plan.stages:
        missing.setdefault(stage.step, set()).update(
            range(len(plan.shards)) - done[stage.name].keys()
        )
    changed: tuple[Change, ...] = ()
    note = None
    try:
        before = read_plan(config.output)
        before.check_engine()
        if before.has_runs:
            changed = tuple(plan_changes(before, plan))
        else:
            note = f"{config.output} holds scores of `beamrank score`, which stay"
    except PreflightError as error:
        # Its receipts still count.
        note = f"the changes since the last run are unknown: {error}"
    return _Earlier({step: sorted(each) for step, each in missing.items()}, reusable, changed, note)


def _reusable(plan: Plan, stage: StageRecord, reuse: Reuse, chooses: _Reusable | None) -> _Reusable:
    """The bounds of a stage, if workers are like this machine; `chooses` are those of the stage
    that it re-ranks.
    """
    found, inputs = reuse.scores(stage), _inputs(stage.keys)
    scored, reused, known = (np.full(len(plan.topics), each) for each in (inputs, 0, False))
    for before in found.stages:
        then = before.record.keys
        same_segments = then.get("segments") == stage.keys.get("segments")
        most = min(inputs, _inputs(then)) if same_segments else inputs
        rows = _topics_here(before, plan.topics)
        # A different machine's scores can choose other docs.
        chosen = rows if chooses is None else rows[chooses.known[rows]]
        if same_segments and _origin(plan, stage) == _origin(before.plan, before.record):
            last, last_before = (
                plan.stage(stage.inputs[-1]),
                before.plan.stage(before.record.inputs[-1]),
            )
            pairs = "opponents" in stage.keys
            new = (
                _new_pairs(stage.keys, then, last.keys["k"] - last_before.keys["k"])
                if pairs
                else inputs - most
            )
            scored[chosen] = np.minimum(scored[chosen], new)
        reused[rows] = np.minimum(inputs, reused[rows] + most)
        known[rows] = True
    return _Reusable(inputs, scored, reused, known, found.refused)


def _inputs(keys: Mapping[str, Any]) -> int:
    """How many inputs a query has at most: docs, or pairs of docs."""
    return (
        int(pair_inferences(keys["k"], keys["k"], keys["opponents"]))
        if "opponents" in keys
        else int(keys["k"])
    )


def _topics_here(stage: ReusableStage, topics: TopicTable) -> Counts:
    """The rows of topics with the same text whose scores a machine like this one computed."""
    here = arithmetic_digest(describe_machine(), stage.record.keys["backend"])
    parts = [shard for shard, part in sorted(stage.parts.items()) if part.arithmetic == here]
    earlier = stage.plan.topics.table.take(pa.array(stage.plan.shards.topics_of(parts)))
    return topics.in_both(TopicTable(earlier))[1]


def _new_pairs(now: Mapping[str, Any], then: Mapping[str, Any], deeper: int) -> int:
    """How many pairs of a query have no score at most, where the stage before scores so many docs
    more than then.

    Deeper, it can put so many new docs among the best; less deep, it lacks so many of them.
    """
    k, depth = now["k"], then["k"]
    opponents = min(now["opponents"] or k, k - 1)
    if (then["opponents"] or depth) < depth - 1:
        # Pairs that were drawn are known for the same docs only.
        same = deeper == 0 and k == depth and now["seed"] == then["seed"]
        return k * max(0, opponents - then["opponents"]) if same else k * opponents
    both = max(0, min(depth, k - deeper) if deeper > 0 else min(depth + deeper, k))
    return int((k - both) * opponents + both * min(opponents, k - both))


def _origin(plan: Plan, stage: StageRecord) -> list[Any]:
    """What decides which docs reach a stage, but for the depths of the first and the last stage
    that it reads.
    """
    inputs = [plan.stage(name) for name in stage.inputs]
    between = [each.keys["k"] for each in inputs[2:-1]]
    return [
        stage.keys.get(RANKED_BY),
        between,
        [[each.type_name, {**each.keys, "k": 0}] for each in inputs],
    ]
