"""Scores the pairs that figure 4 needs and a finished run does not have: `beamrank report
--score-missing`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from beamrank.commit.owner import open_run_log
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest
from beamrank.errors import ConfigError, PreflightError
from beamrank.logs import run_log
from beamrank.report.runs import PlanRuns
from contrib.papers.depths import ScoreDepths
from models.stages.attempt import shard_inputs
from models.stages.base import Stage
from models.stages.core import open_stages
from models.stages.duo import ScoreDuo
from pipelines.console.progress import ConsoleProgress
from pipelines.launcher import Launcher, resumable
from pipelines.plan.reuse import Reuse

# The depths of figure 4 in the paper.
_K0S = (50, 100, 200, 500, 1000)


class Pairs(NamedTuple):
    """The plan of the pairs behind figure 4, its stage that scores them, and the two stages of the
    run.
    """

    plan: Plan
    stage: ScoreDepths
    mono: Stage
    duo: ScoreDuo


def depths_plan(runs: PlanRuns, k0s: Sequence[int], k1s: Sequence[int]) -> Pairs:
    """The stages of a run, with one of ours in place of its duo.

    Args:
        runs: the run's.
        k0s: the depths of mono, by default the paper's; those beyond mono.k are left out.
        k1s: the depths of duo; by default duo.k.

    Raises:
        ConfigError: no depth is left, or the run has no duo.
        PreflightError: mono is not finished.
    """
    plan = runs.plan
    ranking: list[Any] = [stage for stage in runs.stages if stage.ranks]
    place = next((place for place, stage in enumerate(ranking) if isinstance(stage, ScoreDuo)), 0)
    mono, duo = ranking[place - 1], ranking[place]
    if not isinstance(mono, Stage) or not mono.reads or not isinstance(duo, ScoreDuo):
        raise ConfigError(
            f"{plan.output} has no duo after a stage that scores docs one by one, and figure 4 is "
            "about both: leave out --score-missing"
        )
    kept = tuple(k0 for k0 in sorted(set(k0s or _K0S)) if 2 <= k0 <= mono.k)
    k1 = max(k1s or [duo.k])
    if not kept or k1 < 2:
        raise ConfigError(
            f"figure 4 needs a k0 of 2 to {mono.k} ({mono.name}.k), and a k1 of 2 or more: give "
            "others with --k0, --k1"
        )
    if mono.name not in runs.manifests:
        raise PreflightError(
            f"{mono.name} is not finished in {plan.output}: run the same `beamrank run` again first"
        )
    record = ScoreDepths.after(duo, kept, k1).record()
    others = tuple(
        stage
        for stage in plan.stages
        if stage.name not in {other.name for other in ranking[place:]}
    )
    depths = replace(plan, stages=(*others, record), rejects={})
    stage = open_stages(depths.stages)[-1]
    assert isinstance(stage, ScoreDepths)
    return Pairs(depths, stage, mono, duo)


def score_missing(pairs: Pairs, runs: PlanRuns, console: ConsoleProgress) -> Manifest:
    """Scores the pairs of `depths_plan` that are not stored, after their number was shown, and
    seals them.

    Raises:
        BeamrankError: a part is damaged, or the job failed; its finished shards are kept.
        EngineVersionError: a different engine version made the run, and pairs are missing.
    """
    sealed = pairs.plan.seal(pairs.stage.name)
    if sealed is not None:
        return sealed
    pairs.plan.check_engine()
    with run_log(console.events()), resumable():
        pairs.plan.write()
        open_run_log(pairs.plan)
        missing, asked = count_missing(pairs, runs)
        console.note(f"figure 4: {missing:,} of {asked:,} pairs are missing, and are scored now")
        manifest = Launcher(pairs.plan, runs.config, console).run_stage(pairs.plan.stages[-1])
        assert manifest is not None
        return manifest


def count_missing(pairs: Pairs, runs: PlanRuns) -> tuple[int, int]:
    """How many pairs `score_missing` will score, and how many figure 4 has: all of the k1 best
    docs of each k0.
    """
    plan, record = pairs.plan, pairs.plan.stages[-1]
    tasks = plan.tasks(record, [runs.manifests[name] for name in record.inputs])
    done = plan.folder(record.name).receipts([task.digest for task in tasks])
    tasks = [task for task in tasks if task.shard not in done]
    reusing = Reuse(plan, runs.config.reuse).given_to(record, tasks, lambda _: None)
    missing = sum(pairs.stage.count(shard_inputs(pairs.stage, task)) for task in reusing)
    asked = 0
    for parts in runs.shards():
        for k0 in pairs.stage.k0s:
            ranked = parts.rank(pairs.mono, k0)
            best = [min(docs.scored, pairs.stage.k) for docs in ranked.values()]
            asked += sum(count * (count - 1) for count in best)
    return missing, asked
