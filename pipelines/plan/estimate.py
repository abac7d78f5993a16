"""The cost of a run: counts from the configuration, seconds from a short measurement, less what earlier runs did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa

from beamrank.commit.listing import CURRENT
from beamrank.commit.plan import Plan, read_plan
from beamrank.commit.receipts import arithmetic_digest
from beamrank.commit.shards import cut_shards
from beamrank.commit.stage import StageRecord
from beamrank.commit.status import read_prediction, read_receipts
from beamrank.config.run import RunConfig
from beamrank.errors import PreflightError
from beamrank.evaluation.measures import parse_measures
from beamrank.formats.corpora import list_units, read_unit
from beamrank.formats.texts.units import CorpusUnit
from beamrank.machine import describe_machine
from beamrank.ranking.aggregation import pair_inferences
from beamrank.records import Topic
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as
from beamrank.topic_table import TopicTable
from models.stages.base import RANKED_BY
from models.stages.core import first_stage_of, steps_of
from models.stages.planning import Sample, Trial, TryFirst, resolve_checkpoints
from models.stages.tokenize import kept_doc_tokens
from pipelines.plan.changes import Change, plan_changes
from pipelines.plan.make_plan import check_apart, chosen_topics, planned
from pipelines.plan.reuse import ReusableStage, Reuse

Counts: TypeAlias = npt.NDArray[np.int64]
# FnApiRunner keeps the shuffle in the launcher's memory, in 6 to 10 times its size.
_LOCAL_SHUFFLE_FACTOR = 10
_LOCAL_SHUFFLE_SHARE = 0.4
_ROW_OVERHEAD_BYTES = 64
_TOKEN_BYTES = 2
_LETTERS_PER_TOKEN = 4
_SAMPLE_DOCS = 1000
_RANDOM_DOCS = "bytes and seconds are those of random docs, as no candidates are known yet"


@dataclass(frozen=True)
class StageEstimate:
    """The whole stage, and as `remaining_*` its shards without a receipt.

    `remaining_inferences` are the most that are made, and `remaining_reused` the most that are reused from earlier
    runs; `remaining_undecided` count in both, since the candidates or texts of their queries can have changed. The
    seconds are those of `remaining_inferences`.
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
    """A whole run; the corpus is read at most `join_passes` times, with the memory that is free now.

    `changed` holds the differences from the current plan of the output; `note` explains what is not known.
    `not_reused` explains why scores of earlier runs are not reused, a line each.
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


@dataclass(frozen=True)
class _ReuseBound:
    """Bounds of a stage with a model, from plans and receipts: no part is read.

    Attributes:
        inputs: how many inputs a query has at most.
        scored, reused: how many of them are scored and are reused at most, by the row of the plan's topics.
        known: whether an earlier run scored any of them.
        refused: why other earlier runs are not used, a line each.
    """

    inputs: int
    scored: Counts
    reused: Counts
    known: npt.NDArray[np.bool_]
    refused: Sequence[str]

    def of(self, topics: Counts) -> tuple[int, int, int]:
        """How many inputs some topics have, and how many of them are scored and are reused, at most."""
        return self.inputs * len(topics), int(self.scored[topics].sum()), int(self.reused[topics].sum())


@dataclass(frozen=True)
class _Remaining:
    """The shards without a receipt by step, and the differences from the plan that was run last.

    A stage that is not among `shards`, or whose input is unfinished, remains whole. `note` explains what is unknown.
    """

    shards: Mapping[str, Sequence[int]] = field(default_factory=dict)
    changed: tuple[Change, ...] = ()
    note: str | None = None
    reuse: Mapping[str, _ReuseBound] = field(default_factory=dict)


def estimate(config: RunConfig) -> Estimate:
    """Estimates a run and the rest of it after earlier runs. Writes nothing.

    Every topic is taken to have all its candidates, so that counts are upper bounds.

    Raises:
        PreflightError: an input is missing or invalid.
    """
    check_apart(config)
    storage.check_folder(config.output)
    parse_measures(config.measures)
    chosen = chosen_topics(config)
    topics = chosen.kept
    shards = cut_shards(topics, config.shards)
    sample = _sample(config, topics, first_stage_of(config).trial)
    costs = [(each.step, each.stage.estimate(each.own, config, sample)) for each in steps_of(config)]
    remaining = _find_remaining(config)
    stages = []
    for step, cost in costs:
        missing = remaining.shards.get(step, range(len(shards)))
        open_topics = shards.topics_of(missing)
        rest, bound = cost(len(open_topics)), remaining.reuse.get(step)
        made, reused, seconds = rest.inferences, 0, rest.seconds
        if bound is not None and len(open_topics):
            inputs, most_scored, most_reused = bound.of(open_topics)
            made, reused = made * most_scored // inputs, made * most_reused // inputs
            seconds *= most_scored / inputs
        undecided = max(0, made + reused - rest.inferences)
        whole = cost(len(topics))
        stages.append(StageEstimate(step, *whole, len(missing), made, reused, undecided, rest.bytes, seconds))
    passes, notes = 0, [remaining.note, *(str(note) for each in chosen.rejects for note in each.notes())]
    if sample.max_doc_tokens:
        docs = len(topics) * config.stages[1].section.k
        passes = join_passes(docs, list_units(config.corpus)[0], len(shards), sample.max_doc_tokens)
        notes += [_RANDOM_DOCS] if sample.is_random else []
    reasons = dict.fromkeys(
        f"{name}: not reused: {one}" for name, each in remaining.reuse.items() for one in each.refused
    )
    note = "; ".join(filter(None, notes)) or None
    return Estimate(len(topics), len(shards), passes, tuple(stages), remaining.changed, note, tuple(reasons))


def shard_seconds(config: RunConfig, plan: Plan, stage: StageRecord, measures: bool = True) -> float:
    """What a shard of a stage is expected to take: as `plan --save` predicted, or for a model as measured now.

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
    each = next(each for each in steps_of(config) if each.step == stage.step)
    # Without a first stage, which would start Java in this process, docs are any of the corpus.
    sample = _sample(config, plan.topics, lambda *_: Trial())
    return each.stage.estimate(each.own, config, sample)(len(plan.topics)).seconds / len(plan.shards)


def _sample(config: RunConfig, topics: Sequence[Topic], try_first: TryFirst) -> Sample:
    checkpoints = resolve_checkpoints(config)
    models = [each for each in config.stages if each.name in checkpoints]
    doc_tokens = max((kept_doc_tokens(config, each, checkpoints[each.name]) for each in models), default=0)
    return Sample(config, topics, checkpoints, doc_tokens, try_first)


def join_passes(docs: int, unit: CorpusUnit, shards: int, doc_tokens: int) -> int:
    """The number of passes over the corpus, so that each shuffle fits in this machine's memory.

    Args:
        docs: how many docs travel, a doc once for each shard that needs it.
        unit: one of the corpus, whose docs are as long as those of others.
        shards: how many shards are joined; the most passes.
        doc_tokens: how many tokens are kept of a doc.
    """
    return shuffle_passes(docs * _doc_bytes(unit, doc_tokens), shards) if docs else 1


def shuffle_passes(size_bytes: float, shards: int) -> int:
    """The number of jobs, each with some of the shards, so that each shuffle fits in this machine's memory."""
    room = psutil.virtual_memory().available * _LOCAL_SHUFFLE_SHARE / _LOCAL_SHUFFLE_FACTOR
    return max(1, min(shards, -int(-size_bytes // room)))


def _doc_bytes(unit: CorpusUnit, doc_tokens: int) -> float:
    """The bytes of a doc in the shuffle, estimated from the letters of the first docs."""
    letters: list[int] = []
    for batch in read_unit(unit):
        letters += [len(text) for text in batch.texts]
        if len(letters) >= _SAMPLE_DOCS:
            break
    tokens = [min(count / _LETTERS_PER_TOKEN, doc_tokens) for count in letters]
    return _ROW_OVERHEAD_BYTES + _TOKEN_BYTES * sum(tokens) / max(1, len(tokens))


def _find_remaining(config: RunConfig) -> _Remaining:
    """Reads the results of earlier runs.

    Raises:
        PreflightError: the output cannot be read, or an input is missing or invalid.
    """
    with errors_as(PreflightError, config.output):
        names = storage.sizes_bytes(config.output)
    if CURRENT not in names and not config.reuse:
        return _Remaining()
    plan = planned(config)
    reuse = _reuse_bounds(plan, config)
    if not first_stage_of(config).is_ready(config):
        return _Remaining(note="which shards and candidates stay is known once the index is built", reuse=reuse)
    if CURRENT not in names:
        return _Remaining(reuse=reuse)
    done = read_receipts(plan)
    missing: dict[str, set[int]] = {}
    for stage in plan.stages:
        # Two tokenizers make two stages of one step.
        missing.setdefault(stage.step, set()).update(range(len(plan.shards)) - done[stage.name].keys())
    shards = {step: sorted(each) for step, each in missing.items()}
    try:
        before = read_plan(config.output)
        changes = tuple(plan_changes(before, plan)) if before.has_runs else ()
    except PreflightError as error:
        # Its receipts still count.
        return _Remaining(shards, note=f"the changes since the last run are unknown: {error}", reuse=reuse)
    note = None if before.has_runs else f"{config.output} holds scores of `beamrank score`, which stay"
    return _Remaining(shards, changes, note, reuse)


def _reuse_bounds(plan: Plan, config: RunConfig) -> dict[str, _ReuseBound]:
    """The bounds of each step with a model, if workers are machines like this one."""
    reuse = Reuse(plan, config.reuse)
    found: dict[str, _ReuseBound] = {}
    for stage in plan.stages:
        if stage.work is not None:
            found[stage.step] = _reuse_bound(plan, stage, reuse, found.get(stage.inputs[-1]))
    return found


def _reuse_bound(plan: Plan, stage: StageRecord, reuse: Reuse, chooses: _ReuseBound | None) -> _ReuseBound:
    """The bounds of a stage; `chooses` are those of the stage whose ranking decides what it scores."""
    reusable = reuse.scores(stage)
    assert stage.work is not None
    pairs, k = stage.work.docs > 1, stage.keys["k"]
    inputs = int(pair_inferences(k, k, stage.keys["opponents"])) if pairs else k
    scored, reused, known = (np.full(len(plan.topics), each) for each in (inputs, 0, False))
    for before in reusable.stages:
        most = _most_reused(stage.keys, before.record.keys, pairs)
        new = (_new_pairs if pairs else _new_docs)(plan, stage, before)
        here = _topics_here(before, plan.topics)
        # A different machine's scores can choose other docs.
        chosen = here if chooses is None else here[chooses.known[here]]
        scored[chosen] = np.minimum(scored[chosen], new)
        reused[here] = np.minimum(inputs, reused[here] + most)
        known[here] = True
    return _ReuseBound(inputs, scored, reused, known, reusable.refused)


def _topics_here(stage: ReusableStage, topics: TopicTable) -> Counts:
    """The rows of topics with the same text whose scores a machine like this one computed."""
    here = arithmetic_digest(describe_machine(), stage.record.keys["backend"])
    parts = [shard for shard, part in sorted(stage.parts.items()) if part.arithmetic == here]
    earlier = stage.plan.topics.table.take(pa.array(stage.plan.shards.topics_of(parts)))
    return topics.in_both(TopicTable(earlier))[1]


def _most_reused(now: Mapping[str, Any], before: Mapping[str, Any], pairs: bool) -> int:
    """How many inputs of a query an earlier run can have scored; with other segments any."""
    if not pairs:
        return min(before["k"], now["k"]) if before.get("segments") == now.get("segments") else now["k"]
    return int(min(pair_inferences(keys["k"], keys["k"], keys["opponents"]) for keys in (before, now)))


def _new_docs(plan: Plan, stage: StageRecord, before: ReusableStage) -> int:
    """How many candidates of a query have no score at most: those below the earlier depth, if the others are known."""
    same = before.record.keys.get("segments") == stage.keys.get("segments") and _same_inputs(plan, stage, before)
    return max(0, _depth(plan, stage) - _depth(before.plan, before.record)) if same else stage.keys["k"]


def _new_pairs(plan: Plan, stage: StageRecord, before: ReusableStage) -> int:
    """How many pairs of a query have no score at most."""
    now, then = stage.keys, before.record.keys
    k, depth = now["k"], then["k"]
    opponents = min(now["opponents"] or k, k - 1)
    if not _same_inputs(plan, stage, before):
        return k * opponents
    # Deeper, the stage before can put so many new docs among the best; less deep, it lacks so many of them.
    last, last_before = plan.stage(stage.inputs[-1]), before.plan.stage(before.record.inputs[-1])
    deeper = _depth(plan, last) - _depth(before.plan, last_before)
    if (then["opponents"] or depth) < depth - 1:
        # Pairs that were drawn are known for the same docs only.
        same = deeper == 0 and k == depth and now["seed"] == then["seed"]
        return k * max(0, opponents - then["opponents"]) if same else k * opponents
    both = max(0, min(depth, k - deeper) if deeper > 0 else min(depth + deeper, k))
    return (k - both) * opponents + both * min(opponents, k - both)


def _same_inputs(plan: Plan, stage: StageRecord, before: ReusableStage) -> bool:
    """Whether two stages read the same, but for the depth of the candidates."""
    then = before.record
    if stage.keys.get(RANKED_BY) != then.keys.get(RANKED_BY):
        return False
    # Stages between the first and the last that it reads choose what the last receives.
    between = [plan.stage(name).keys["k"] for name in stage.inputs[2:-1]]
    between_then = [before.plan.stage(name).keys["k"] for name in then.inputs[2:-1]]
    return between == between_then and _but_depth(plan, stage) == _but_depth(before.plan, then)


def _but_depth(plan: Plan, stage: StageRecord) -> list[Any]:
    """What decides which docs reach a stage, but for their number."""
    inputs = [plan.stage(name) for name in stage.inputs]
    return [[each.type_name, {**each.keys, "k": 0}, _but_depth(plan, each)] for each in inputs]


def _depth(plan: Plan, stage: StageRecord) -> int:
    """How many candidates of a query reach a stage that scores single docs."""
    chain = [stage]
    for each in chain:
        chain += [plan.stage(name) for name in each.inputs]
    return min(each.keys["k"] for each in chain if "k" in each.keys)
