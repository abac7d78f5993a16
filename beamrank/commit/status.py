"""The progress of a run, read from its plan and receipts alone."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from beamrank.commit.pace import Pace, work_ratio
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Manifest, Receipt
from beamrank.commit.scan_reports import ScanTotal, read_scans
from beamrank.commit.stage_record import StageRecord

# A stage without activity for longer was stopped and resumed.
_PAUSE_SECONDS = 60.0
# Between two passes over the corpus no shard is joined.
_SCAN_PAUSE_SECONDS = 1800.0


@dataclass(frozen=True)
class StageStatus:
    """One stage of a run.

    Attributes:
        eta_seconds: how long the rest takes at the pace of the last finished shards; 0 if all are done, None if
            unknown. For a duo without a finished shard it is forecast from mono's pace.
        elapsed_seconds: how long the stage has been running; None if it is not, or the storage keeps no times.
        inferences: of the shards that are done, like all that follows.
        reused: the inferences whose scores were taken over from earlier runs; they are not among `inferences`.
        seconds: of all workers together; for a stage that reads the corpus, with its scan.
        inferences_per_second: of one worker; None for a stage without inferences, like all that follows.
        inferences_per_query: the mean, reused ones included.
        tokens: of the inputs, special tokens included.
        padding_share: of the tokens that went through the model, how many were padding.
    """

    stage: str
    shards: int
    done: int
    bad_rows: int
    eta_seconds: float | None
    elapsed_seconds: float | None
    inferences: int
    reused: int
    seconds: float
    inferences_per_second: float | None
    inferences_per_query: float | None
    tokens: int | None
    padding_share: float | None

    @property
    def finished(self) -> bool:
        """Whether every shard has its receipt."""
        return self.done == self.shards


def read_status(plan: Plan, now: float | None = None) -> list[StageStatus]:
    """The status of every stage, in order.

    Args:
        plan: the plan.
        now: seconds since 1970; by default the clock's.
    """
    now = time.time() if now is None else now
    receipts = read_receipts(plan)
    found = [_stage_status(plan, stage, receipts[stage.name], now) for stage in plan.stages]
    if found[-1].eta_seconds is None:
        found[-1] = replace(found[-1], eta_seconds=_forecast(plan, plan.stages[-1], receipts))
    return found


def read_receipts(plan: Plan) -> dict[str, Mapping[int, Receipt]]:
    """The receipts that count for each stage, by shard.

    None count while an input is unfinished, since their digests are unknown.
    """
    finished: dict[str, Manifest] = {}
    return {stage.name: _receipts(plan, stage, finished) for stage in plan.stages}


def run_eta_seconds(stages: Sequence[StageStatus]) -> float | None:
    """The remaining time of a run; None if that of a stage is unknown."""
    etas = [stage.eta_seconds for stage in stages if stage.eta_seconds is not None]
    return round(sum(etas), 1) if len(etas) == len(stages) else None


def _stage_status(plan: Plan, stage: StageRecord, receipts: Mapping[int, Receipt], now: float) -> StageStatus:
    shards = len(plan.shards)
    done = receipts.values()
    scan = _scan(plan, stage)
    queries, inferences, reused, tokens, padded = (
        sum(receipt.counts.get(name, 0) for receipt in done)
        for name in ("queries", "inferences", "reused", "tokens", "padded_tokens")
    )
    asked = inferences + reused
    work = sum(receipt.seconds for receipt in done)
    pace = _pace(plan, stage, receipts) if len(done) < shards else None
    running = pace is not None and now - pace.last <= _pause(stage) + max(receipt.seconds for receipt in done)
    left = None if pace is None else pace.seconds_left(shards - len(done), now if running else pace.last)
    return StageStatus(
        stage=stage.name,
        shards=shards,
        done=len(done),
        bad_rows=sum(receipt.bad_rows for receipt in done) + scan.bad_rows,
        eta_seconds=0.0 if len(done) == shards else None if left is None else round(left, 1),
        elapsed_seconds=round(now - pace.start, 1) if pace is not None and running else None,
        inferences=inferences,
        reused=reused,
        seconds=round(work + scan.seconds, 3),
        inferences_per_second=round(inferences / work, 1) if inferences and work else None,
        inferences_per_query=round(asked / queries, 1) if asked and queries else None,
        tokens=tokens or None,
        padding_share=round(1 - tokens / padded, 4) if padded else None,
    )


def _receipts(plan: Plan, stage: StageRecord, finished: dict[str, Manifest]) -> Mapping[int, Receipt]:
    """A finished stage joins `finished`. One that is sealed is read from its manifest: a request, not one a shard."""
    if not all(name in finished for name in stage.inputs):
        return {}
    folder = plan.folder(stage.name)
    digests = plan.shard_digests(stage, [finished[name] for name in stage.inputs])
    manifest = folder.manifest(digests)
    if manifest is None:
        receipts = folder.receipts(digests)
        manifest = Manifest.of(stage.name, digests, receipts)
        if manifest is None:
            return receipts
    finished[stage.name] = manifest
    return dict(enumerate(manifest.receipts))


def _scan(plan: Plan, stage: StageRecord) -> ScanTotal:
    """The reports of the corpus scan, for a stage that reads the corpus."""
    if stage.corpus_digest is None:
        return ScanTotal(0, 0, ())
    return read_scans(plan.folder(stage.name).url, stage.corpus_digest)


def _pace(plan: Plan, stage: StageRecord, receipts: Mapping[int, Receipt]) -> Pace | None:
    """From the times of the receipts; one shard after the other if the storage keeps no times."""
    if not receipts:
        return None
    written = plan.folder(stage.name).written_seconds(receipts.values())
    finished = [(written[shard], receipt.seconds) for shard, receipt in receipts.items() if shard in written]
    work = sum(receipt.seconds for receipt in receipts.values())
    return Pace.of_last_stretch(finished, _pause(stage)) or Pace(-work, 0.0, len(receipts))


def _forecast(plan: Plan, stage: StageRecord, receipts: Mapping[str, Mapping[int, Receipt]]) -> float | None:
    """The time of a stage at the pace of the scoring stage that it reads."""
    before = next((each for each in map(plan.stage, stage.inputs) if each.work is not None), None)
    if before is None or before.work is None or stage.work is None:
        return None
    scored = receipts[before.name]
    pace, ratio = _pace(plan, before, scored), work_ratio(stage.work, before.work, scored.values())
    return None if pace is None or ratio is None else round(len(plan.shards) * ratio * pace.seconds_each, 1)


def _pause(stage: StageRecord) -> float:
    return _PAUSE_SECONDS if stage.corpus_digest is None else _SCAN_PAUSE_SECONDS
