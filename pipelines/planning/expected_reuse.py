"""How much a run will take over from earlier ones, if candidates and texts are the same: no part is read."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from beamrank.config.run import RunConfig
from beamrank.formats.corpora import list_units, unit_digest
from beamrank.machine import describe_machine
from beamrank.stages.machines import arithmetic_digest
from beamrank.stages.pace import pair_inferences
from beamrank.stages.plan import Plan
from beamrank.stages.stage_record import StageRecord
from pipelines.planning.earlier_runs import EarlierRuns, EarlierStage


@dataclass(frozen=True)
class ExpectedReuse:
    """The share of a stage's work that is taken over, for each query that earlier runs have; and why not more."""

    shares: Mapping[str, float]
    refused: tuple[str, ...]

    def share(self, query_ids: Collection[str]) -> float:
        """The mean share of some queries."""
        return sum(self.shares.get(query_id, 0.0) for query_id in query_ids) / max(1, len(query_ids))


def expected_reuse(plan: Plan, config: RunConfig) -> dict[str, ExpectedReuse]:
    """The expectation for each step that scores or reads the corpus, if this machine did."""
    earlier = EarlierRuns(plan, config.reuse)
    found = {stage.step: _expected(plan, stage, earlier) for stage in plan.stages if stage.work is not None}
    for stage in plan.stages:
        if stage.corpus_digest is not None:
            expected = _expected_tokens(plan, stage, earlier, config)
            # Two tokenizers make two stages of one step, and one of them can need the corpus.
            found[stage.step] = min(
                found.get(stage.step, expected), expected, key=lambda each: sum(each.shares.values())
            )
    return found


def _expected_tokens(plan: Plan, stage: StageRecord, earlier: EarlierRuns, config: RunConfig) -> ExpectedReuse:
    """The share of the corpus that did not change; none if a topic is new, since its docs can be anywhere."""
    before, _ = earlier.tokens(stage)
    texts = {} if before is None else dict(before.plan.topics)
    if before is None or before.record.keys["k"] < stage.keys["k"] or not set(plan.topics) <= set(texts.items()):
        return ExpectedReuse({}, ())
    assert plan.corpus is not None
    known = {report.content for report in before.reports()}
    units = [unit_digest(unit, plan.corpus.files[unit.url]) for unit in list_units(config.corpus)]
    share = sum(unit in known for unit in units) / len(units)
    return ExpectedReuse(dict.fromkeys(texts, share), ())


def _expected(plan: Plan, stage: StageRecord, earlier: EarlierRuns) -> ExpectedReuse:
    stages = earlier.stages(stage)
    texts = {topic.query_id: topic.text for topic in plan.topics}
    shares: dict[str, float] = {}
    for before in stages.found:
        share = _share(stage.keys, before.record.keys)
        for query_id in _queries_here(before, texts):
            shares[query_id] = max(share, shares.get(query_id, 0.0))
    return ExpectedReuse(shares, tuple(stages.refused))


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


def _share(now: Mapping[str, Any], before: Mapping[str, Any]) -> float:
    """The share of a query's inputs that an earlier run scored: of its pairs for duo; of another segment none."""
    if "segments" in now:
        return min(1.0, before["k"] / now["k"]) if before["segments"] == now["segments"] else 0.0
    both, k = min(before["k"], now["k"]), before["k"]
    asked = pair_inferences(k, k, before["opponents"]) / max(1.0, pair_inferences(k, k, None))
    return asked * pair_inferences(both, both, None) / max(1.0, pair_inferences(now["k"], now["k"], None))
