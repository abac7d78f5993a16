"""Scores the pairs that figure 4 needs and a finished run does not have: `beamrank report --score-missing`."""

from collections.abc import Sequence

import pyarrow.compute as pc

from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest
from beamrank.config.run import RunConfig
from beamrank.errors import ConfigError, PreflightError
from models.stages.core import open_stages
from models.stages.duo import ScoreDepths, ScoreDuo
from pipelines.console.progress import ConsoleProgress
from pipelines.console.run_log import open_run_log, run_log
from pipelines.launcher import Launcher, resumable

# The depths of figure 4 in the paper.
_K0S = (50, 100, 200, 500, 1000)


def depths_plan(plan: Plan, config: RunConfig, k0s: Sequence[int], k1s: Sequence[int]) -> Plan:
    """The plan of the pairs behind figure 4: the stages of a run, with another one in place of its duo.

    Args:
        plan: of the run.
        config: its configuration.
        k0s: the depths of mono, by default the paper's; those beyond mono.k are left out.
        k1s: the depths of duo; by default duo.k.

    Raises:
        ConfigError: no depth is left, or the run has no duo.
        PreflightError: mono is not finished.
    """
    duo = next((stage for stage in open_stages(plan.stages) if isinstance(stage, ScoreDuo)), None)
    if duo is None or config.mono is None or config.duo is None:
        raise ConfigError(
            f"{plan.output} has no duo, whose model would score the missing pairs: leave out --score-missing"
        )
    kept = tuple(k0 for k0 in sorted(set(k0s or _K0S)) if 2 <= k0 <= config.mono.k)
    k1 = max(k1s or [config.duo.k])
    if not kept or k1 < 2:
        raise ConfigError(
            f"figure 4 needs a k0 of 2 to {config.mono.k} (mono.k), and a k1 of 2 or more: give others with --k0, --k1"
        )
    if plan.finished("mono") is None:
        raise PreflightError(f"mono is not finished in {plan.output}: run the same `beamrank run` again first")
    record = ScoreDepths.after(duo, kept, k1).record()
    others = tuple(stage for stage in plan.stages if stage.name != duo.name)
    return Plan(plan.run_tag, plan.output, plan.shards, (*others, record), plan.config)


def score_missing(plan: Plan, config: RunConfig, console: ConsoleProgress) -> Manifest:
    """Scores the pairs of `depths_plan` that are not stored, after their number was shown, and seals them.

    Raises:
        BeamrankError: a part is damaged, or the job failed; its finished shards are kept.
    """
    record = plan.stages[-1]
    sealed = plan.sealed(record.name)
    if sealed is not None:
        return sealed
    with run_log(console), resumable():
        plan.write()
        open_run_log(plan)
        missing, asked = count_missing(plan, config)
        console.note(f"figure 4: {missing:,} of {asked:,} pairs are missing, and are scored now")
        return Launcher(plan, config, console).run_stage(record)


def count_missing(plan: Plan, config: RunConfig) -> tuple[int, int]:
    """How many pairs of `depths_plan` `score_missing` will score, and how many figure 4 has: those of each k0."""
    stage = open_stages(plan.stages)[-1]
    assert isinstance(stage, ScoreDepths)
    tasks = Launcher(plan, config, ConsoleProgress(quiet=True)).open_tasks(plan.stages[-1])
    return sum(stage.prospect(task).inferences for task in tasks), _asked(plan, stage)


def _asked(plan: Plan, stage: ScoreDepths) -> int:
    """The pairs of the k1 best docs of each query and k0, added up."""
    mono = plan.finished("mono")
    assert mono is not None
    asked = 0
    for receipt in mono.receipts:
        table = plan.folder("mono").read_part(receipt)
        docs = table.filter(pc.equal(table["segment"], 0))
        for k0 in stage.k0s:
            scored = (
                pc.value_counts(docs.filter(pc.less_equal(docs["rank"], k0))["query_id"]).field("counts").to_numpy()
            )
            met = scored.clip(max=stage.k)
            asked += int((met * (met - 1)).sum())
    return asked
