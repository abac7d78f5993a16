"""The rankings of every run, a shard at a time, out of the sealed parts."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest
from beamrank.commit.stage_record import StageRecord
from beamrank.config.run import RunConfig
from beamrank.errors import PreflightError
from beamrank.join.schemas import RowKind
from beamrank.ranking.rankings import Ranking, duo_ranking, first_stage_ranking, mono_ranking, without_dropped
from beamrank.ranking.segments import pool_segments
from pipelines.runs.run_names import RunFile


class ShardRankings:
    """The rankings of one shard's runs. Each part is read once, when the first run needs it."""

    def __init__(self, plan: Plan, config: RunConfig, manifests: Mapping[RowKind, Manifest], shard: int) -> None:
        self._plan = plan
        self._config = config
        self._manifests = manifests
        self._shard = shard
        self._found: dict[str, Mapping[str, Ranking]] = {}

    def of(self, run: RunFile) -> Mapping[str, Ranking]:
        """Each query's ranking."""
        if run.name not in self._found:
            self._found[run.name] = self._rank(run)
        return self._found[run.name]

    def _rank(self, run: RunFile) -> Mapping[str, Ranking]:
        if run.stage == "mono":
            return self._mono
        if run.stage != "duo":
            return first_stage_ranking(self._candidates)
        return duo_ranking(self._mono, self._duo, run.aggregation, k1=run.k1, opponents=run.opponents, seed=run.seed)

    def _read(self, rows: RowKind) -> Any:
        manifest = self._manifests[rows]
        return self._plan.folder(manifest.stage).read_part(manifest.receipts[self._shard])

    @cached_property
    def _candidates(self) -> Any:
        return self._read("candidates")

    @cached_property
    def _duo(self) -> Any:
        return self._read("duo")

    @cached_property
    def _mono(self) -> dict[str, Ranking]:
        assert self._config.mono is not None
        candidates, mono = self._candidates, self._read("mono")
        if self._config.on_missing_doc == "drop":
            candidates = without_dropped(candidates, mono, self._config.mono.k)
        return mono_ranking(candidates, pool_segments(mono, self._config.mono.pooling))


def iter_shards(
    plan: Plan, config: RunConfig, manifests: Mapping[RowKind, Manifest] | None = None
) -> Iterator[ShardRankings]:
    """The rankings of each shard, from the sealed stages unless other manifests are given.

    Raises:
        PreflightError: stages are not finished; it names them, and how to run them or to do without them.
    """
    manifests = manifests or {stage.rows: manifest for stage, manifest in sealed_stages(plan)}
    for shard in plan.shards:
        yield ShardRankings(plan, config, manifests, shard.index)


def sealed_stages(plan: Plan) -> list[tuple[StageRecord, Manifest]]:
    """Every stage with its manifest.

    Raises:
        PreflightError: see `iter_shards`.
    """
    found = [(stage, plan.sealed(stage.name)) for stage in plan.stages]
    missing = [stage for stage, manifest in found if manifest is None]
    if missing:
        raise PreflightError(_unfinished(plan, missing))
    return [(stage, manifest) for stage, manifest in found if manifest is not None]


def _unfinished(plan: Plan, missing: Sequence[StageRecord]) -> str:
    """The message about unfinished stages, with two remedies: to run them, or to leave them out."""
    steps = dict.fromkeys(stage.step for stage in missing)
    message = (
        f"{', '.join(stage.name for stage in missing)} {'is' if len(missing) == 1 else 'are'} not finished under "
        f"{plan.output}, and the runs are written from all stages of the configuration. Run what is missing: with "
        f"{', then '.join(f'--stage {step}' for step in steps)}, or everything without --stage"
    )
    optional = [step for step in ("duo", "mono") if step in steps]
    if not optional:
        return message
    last = "mono" if optional == ["duo"] else "the first stage"
    return (
        f"{message}. To stop after {last}, leave {' and '.join(f'`{step}`' for step in optional)} out of the "
        f"configuration ({' '.join(f'--set {step}=null' for step in optional)})"
    )
