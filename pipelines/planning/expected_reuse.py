"""How many inferences a run will take over from earlier ones, if candidates and texts are the same: no part is read."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from beamrank.machine import describe_machine
from beamrank.stages.machines import arithmetic_digest
from beamrank.stages.pace import pair_inferences
from beamrank.stages.plan import Plan
from beamrank.stages.stage_record import StageRecord
from pipelines.planning.earlier_runs import EarlierRuns, EarlierStage


@dataclass(frozen=True)
class ExpectedReuse:
    """The share of a stage's inferences that is taken over, for each query that earlier runs have; and why not more."""

    shares: Mapping[str, float]
    refused: tuple[str, ...]

    def share(self, query_ids: Collection[str]) -> float:
        """The mean share of some queries."""
        return sum(self.shares.get(query_id, 0.0) for query_id in query_ids) / max(1, len(query_ids))


def expected_reuse(plan: Plan, outputs: Iterable[str]) -> dict[str, ExpectedReuse]:
    """The expectation for each stage that scores, if this machine did; `outputs` are those that the user named."""
    earlier = EarlierRuns(plan, tuple(outputs))
    return {stage.name: _expected(plan, stage, earlier) for stage in plan.stages if stage.work is not None}


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
