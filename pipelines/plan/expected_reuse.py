"""How much a run can take over from earlier ones: bounds from the plans and receipts alone, no part is read."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from beamrank.commit.plan import Plan
from beamrank.commit.receipts import arithmetic_digest
from beamrank.commit.stage import StageRecord
from beamrank.config.run import RunConfig
from beamrank.formats.corpora import list_units, unit_digest
from beamrank.machine import describe_machine
from beamrank.ranking.aggregation import pair_inferences
from models.stages.base import RANKED_BY
from pipelines.plan.earlier_runs import EarlierRuns, EarlierStage


@dataclass(frozen=True)
class ExpectedReuse:
    """Bounds for a stage, and why nothing more is taken over.

    Attributes:
        inputs: how many inputs a query has at most; for a stage that reads the corpus, its units.
        scored: how many of them are scored at most, by query_id; all of a query that is not here.
        taken: how many are taken over at most, by query_id; none of a query that is not here.
        refused: why other earlier runs are not used, a line each.
    """

    inputs: int
    scored: Mapping[str, int]
    taken: Mapping[str, int]
    refused: tuple[str, ...] = ()

    def most_scored(self, query_ids: Collection[str]) -> int:
        """How many inputs of some queries are scored at most."""
        return sum(self.scored.get(query_id, self.inputs) for query_id in query_ids)

    def most_taken(self, query_ids: Collection[str]) -> int:
        """How many inputs of some queries are taken over at most."""
        return sum(self.taken.get(query_id, 0) for query_id in query_ids)


def expected_reuse(plan: Plan, config: RunConfig) -> dict[str, ExpectedReuse]:
    """The bounds for each step that scores or reads the corpus, if workers are machines like this one.

    A plan without its first stage is taken to have other candidates than any earlier one.
    """
    earlier = EarlierRuns(plan, config.reuse)
    found: dict[str, ExpectedReuse] = {}
    for stage in plan.stages:
        if stage.work is not None:
            found[stage.step] = _expected(plan, stage, earlier, found.get(stage.inputs[-1]))
        elif stage.corpus_digest is not None:
            expected = _expected_tokens(plan, stage, earlier, config)
            # Two tokenizers make two stages of one step, and one of them can need the corpus.
            found[stage.step] = max(
                found.get(stage.step, expected), expected, key=lambda each: each.inputs - sum(each.taken.values())
            )
    return found


def _expected_tokens(plan: Plan, stage: StageRecord, earlier: EarlierRuns, config: RunConfig) -> ExpectedReuse:
    """The units of the corpus that did not change; none if a topic is new, since its docs can be anywhere."""
    assert plan.corpus is not None
    units = [unit_digest(unit, plan.corpus.files[unit.url]) for unit in list_units(config.corpus)]
    before, _ = earlier.tokens(stage)
    texts = {} if before is None else dict(before.plan.topics)
    if before is None or before.record.keys["k"] < stage.keys["k"] or not set(plan.topics) <= set(texts.items()):
        return ExpectedReuse(len(units), {}, {})
    known = {report.content for report in before.reports()}
    stored = sum(unit in known for unit in units)
    return ExpectedReuse(len(units), dict.fromkeys(texts, len(units) - stored), dict.fromkeys(texts, stored))


def _expected(plan: Plan, stage: StageRecord, earlier: EarlierRuns, chooses: ExpectedReuse | None) -> ExpectedReuse:
    """The bounds for a stage with a model; `chooses` are those of the stage whose ranking decides what it scores."""
    stages = earlier.stages(stage)
    texts = {topic.query_id: topic.text for topic in plan.topics}
    k = stage.keys["k"]
    pairs = _has_pairs(stage)
    inputs = int(pair_inferences(k, k, stage.keys["opponents"])) if pairs else k
    scored: dict[str, int] = {}
    taken: dict[str, int] = {}
    for before in stages.found:
        known = _known(stage.keys, before.record.keys, pairs)
        new = _new_pairs(plan, stage, before) if pairs else _new_mono(plan, stage, before)
        for query_id in _queries_here(before, texts):
            # A different machine's scores can choose other docs.
            chosen = chooses is None or query_id in chooses.scored
            scored[query_id] = min(scored.get(query_id, inputs), new if chosen else inputs)
            taken[query_id] = min(inputs, taken.get(query_id, 0) + known)
    return ExpectedReuse(inputs, scored, taken, tuple(stages.refused))


def _queries_here(stage: EarlierStage, texts: Mapping[str, str]) -> list[str]:
    """The queries with the same text whose scores a machine like this one computed."""
    here = arithmetic_digest(describe_machine(), stage.record.keys["backend"])
    return [
        topic.query_id
        for shard in stage.plan.shards
        if shard.index in stage.parts and stage.parts[shard.index].arithmetic == here
        for topic in shard.topics
        if texts.get(topic.query_id) == topic.text
    ]


def _has_pairs(stage: StageRecord) -> bool:
    """Whether an input of a stage has two docs."""
    return stage.work is not None and stage.work.docs > 1


def _known(now: Mapping[str, Any], before: Mapping[str, Any], pairs: bool) -> int:
    """How many inputs of a query an earlier run can have scored; with other segments any."""
    if not pairs:
        return min(before["k"], now["k"]) if before.get("segments") == now.get("segments") else now["k"]
    most = pair_inferences(before["k"], before["k"], before["opponents"])
    return int(min(most, pair_inferences(now["k"], now["k"], now["opponents"])))


def _new_mono(plan: Plan, stage: StageRecord, before: EarlierStage) -> int:
    """How many candidates of a query have no score at most: those below the earlier depth, if the others are known."""
    same = before.record.keys.get("segments") == stage.keys.get("segments") and _same_inputs(plan, stage, before)
    return max(0, _depth(plan, stage) - _depth(before.plan, before.record)) if same else stage.keys["k"]


def _new_pairs(plan: Plan, stage: StageRecord, before: EarlierStage) -> int:
    """How many pairs of a query have no score at most."""
    now, then = stage.keys, before.record.keys
    k, depth = now["k"], then["k"]
    asked = min(now["opponents"] or k, k - 1)
    if not _same_inputs(plan, stage, before):
        return k * asked
    # Deeper, mono can put so many new docs among the best; less deep, it lacks so many of them.
    deeper = _depth(plan, plan.stage(stage.inputs[-1])) - _depth(
        before.plan, before.plan.stage(before.record.inputs[-1])
    )
    if (then["opponents"] or depth) < depth - 1:
        # The pairs that were drawn are known as those of the same docs alone.
        same = deeper == 0 and k == depth and now["seed"] == then["seed"]
        return k * max(0, asked - then["opponents"]) if same else k * asked
    known = max(0, min(depth, k - deeper) if deeper > 0 else min(depth + deeper, k))
    return (k - known) * asked + known * min(asked, k - known)


def _same_inputs(plan: Plan, stage: StageRecord, before: EarlierStage) -> bool:
    """Whether two stages read the same, but for the depth of the candidates."""
    if stage.keys.get(RANKED_BY) != before.record.keys.get(RANKED_BY) or len(stage.inputs) != len(before.record.inputs):
        return False
    # Stages between the first and the last that it reads choose what the last receives.
    between = zip(stage.inputs[2:-1], before.record.inputs[2:-1], strict=True)
    if any(plan.stage(now).keys["k"] != before.plan.stage(then).keys["k"] for now, then in between):
        return False
    return _same_but_depth(plan, stage.inputs, before.plan, before.record.inputs)


def _same_but_depth(plan: Plan, names: tuple[str, ...], other: Plan, other_names: tuple[str, ...]) -> bool:
    for name, other_name in zip(names, other_names, strict=True):
        stage = next((each for each in plan.stages if each.name == name), None)
        if stage is None:
            return False
        before = other.stage(other_name)
        if stage.type_name != before.type_name or {**stage.keys, "k": 0} != {**before.keys, "k": 0}:
            return False
        if not _same_but_depth(plan, stage.inputs, other, before.inputs):
            return False
    return True


def _depth(plan: Plan, stage: StageRecord) -> int:
    """How many candidates of a query reach a stage that scores single docs."""
    chain = [stage]
    for each in chain:
        chain += [plan.stage(name) for name in each.inputs]
    return min(each.keys["k"] for each in chain if "k" in each.keys)
