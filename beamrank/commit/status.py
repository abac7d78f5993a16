"""The progress of a plan and the attempts at a shard, read from plan and receipts only."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from beamrank.commit.listing import (
    PART,
    RECEIPT,
    RECEIPTS,
    RETRY,
    WORKING,
    Entry,
    list_answers,
    list_folder,
    list_stage,
)
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Receipt, why_broken
from beamrank.commit.scans import ScanReport, read_scans
from beamrank.commit.stage import StageRecord
from beamrank.commit.working import LeftOpen, Working
from beamrank.storage import files as storage
from beamrank.storage.documents import Document, Seconds, sha256
from beamrank.storage.urls import hide_credentials
from beamrank.system import system

# A stage without activity for longer was stopped and resumed.
_PAUSE_SECONDS = 60.0
# Between two passes over the corpus no shard is joined.
_SCAN_PAUSE_SECONDS = 1800.0
# An attempt that counted nothing for longer was probably killed.
_LOST_SECONDS = 300.0
_COUNTS = "counts"


class Pace(NamedTuple):
    """The things finished in one stretch of work: `done` (at least one) between `start` and `last`.

    Times are seconds of any one clock. A pace counts what all workers finish together.
    """

    start: float
    last: float
    done: int

    @property
    def seconds_each(self) -> float:
        """The mean time between two finished things."""
        return (self.last - self.start) / self.done

    def seconds_left(self, more: int, now: float) -> float:
        """Seconds until `more` things are finished; at least what one takes."""
        if more == 0:
            return 0.0
        return max(self.seconds_each, more * self.seconds_each - max(0.0, now - self.last))

    @classmethod
    def of_last_stretch(
        cls, finished: Iterable[tuple[float, float]], pause_seconds: float
    ) -> Self | None:
        """The pace since work was last resumed; None if nothing is finished.

        Args:
            finished: when each thing was finished, and how many seconds it took.
            pause_seconds: a new stretch begins after a longer pause than this.
        """
        pace: Self | None = None
        for end, seconds in sorted(finished):
            if pace is None or end - seconds - pace.last > pause_seconds:
                pace = cls(end - seconds, end, 1)
            else:
                pace = cls(min(pace.start, end - seconds), end, pace.done + 1)
        return pace


def total_counts(receipts: Iterable[Receipt]) -> Counter[str]:
    """The sums of the counts of receipts."""
    counts: Counter[str] = Counter()
    for receipt in receipts:
        counts.update(receipt.counts)
    return counts


def _ratio(inferences: int, of: float) -> float | None:
    return round(inferences / of, 1) if inferences and of else None


@dataclass(frozen=True)
class Retry(Document):
    """A worker or a job server died (`reason`), and the open shards of a stage were started
    again.
    """

    plan: str
    stage: str
    reason: str
    retried_seconds: Seconds

    @classmethod
    def now(cls, plan: str, stage: str, reason: str) -> Self:
        """Of this moment; credentials in the reason are hidden."""
        return cls(plan, stage, hide_credentials(reason), system.time())

    def publish(self, output: str) -> None:
        """Writes the record into an output."""
        content = self.to_json()
        storage.publish_content(storage.join(output, RETRY.name(sha256(content))), content)


def _read_retries(plan: Plan) -> list[Retry]:
    names = [name for name in storage.sizes_bytes(plan.output) if re.fullmatch(RETRY.pattern, name)]
    retries = Retry.read(plan.output, names)
    of_plan = (retry for retry in retries if retry.plan == plan.digest)
    return sorted(of_plan, key=lambda retry: retry.retried_seconds)


@dataclass(frozen=True)
class StageStatus:
    """One stage of a plan.

    Attributes:
        at_work: what the attempts at other shards told in the last five minutes.
        left_open: the shards without a receipt that an attempt left open, and why.
        kept_answers: how many answers to the stage the output keeps until parts hold them; all
            stages with the same `score_keys` share them.
        eta_seconds: how long the rest takes at the pace of the last finished shards; 0 if all are
            done, None while none is.
        elapsed_seconds: how long the stage has been running; None if it is not.
        inferences: of the shards that are done, like all that follows.
        reused: the inferences whose scores earlier plans had; they are not among `inferences`.
        seconds: of all workers together; for a stage that reads the corpus, with its scan.
        inferences_per_second: of one worker; None for a stage without inferences, like all that
            follows.
        inferences_per_query: the mean, reused ones included.
        tokens: of the inputs, special tokens included.
        padding_share: of the tokens that went through the model, how many were padding.
        retries: why its open shards were started again, once for each time.
    """

    stage: str
    shards: int
    done: int
    at_work: tuple[Working, ...]
    left_open: tuple[LeftOpen, ...]
    kept_answers: int
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
    retries: tuple[str, ...]

    @property
    def finished(self) -> bool:
        """Whether every shard has its receipt."""
        return self.done == self.shards


def read_status(
    plan: Plan,
    now: float | None = None,
    receipts: Mapping[str, Mapping[int, Receipt]] | None = None,
) -> list[StageStatus]:
    """The status of every stage, in order; `now` is in seconds since 1970, by default the
    clock's.
    """
    now = system.time() if now is None else now
    receipts = read_receipts(plan) if receipts is None else receipts
    retries = _read_retries(plan)
    return [_stage_status(plan, stage, receipts, retries, now) for stage in plan.stages]


def read_receipts(plan: Plan) -> dict[str, Mapping[int, Receipt]]:
    """The receipts that count for each stage, by shard.

    None counts for a shard whose part an input lacks, since its digest is unknown.
    """
    by_stage: dict[str, Mapping[int, Receipt]] = {}
    for stage in plan.stages:
        folder, digests = plan.folder(stage.name), _known_digests(plan, stage, by_stage)
        # A sealed stage is read from its manifest: a request, not one a shard.
        manifest = (
            folder.manifest(tuple(digests.values())) if len(digests) == len(plan.shards) else None
        )
        by_stage[stage.name] = (
            folder.receipts(digests) if manifest is None else dict(enumerate(manifest.receipts))
        )
    return by_stage


def _known_digests(
    plan: Plan, stage: StageRecord, by_stage: Mapping[str, Mapping[int, Receipt]]
) -> dict[int, str]:
    """The digests of the shards whose inputs have receipts."""
    before, of_all = [by_stage[name] for name in stage.inputs], plan.digest_of_all(stage)
    return {
        shard: plan.shard_digest(stage, shard, [receipts[shard] for receipts in before], of_all)
        for shard in range(len(plan.shards) if of_all or not stage.waits_for else 0)
        if all(shard in receipts for receipts in before)
    }


def run_eta_seconds(stages: Sequence[StageStatus]) -> float | None:
    """The remaining time of a plan; None if the time of a stage is unknown."""
    etas = [stage.eta_seconds for stage in stages if stage.eta_seconds is not None]
    return round(sum(etas), 1) if len(etas) == len(stages) else None


def _stage_status(
    plan: Plan,
    stage: StageRecord,
    by_stage: Mapping[str, Mapping[int, Receipt]],
    retries: Sequence[Retry],
    now: float,
) -> StageStatus:
    folder, receipts = plan.folder(stage.name), by_stage[stage.name]
    left = len(plan.shards) - len(receipts)
    done = receipts.values()
    digests = _known_digests(plan, stage, by_stage) if left else {}
    open_digests = {shard: digests[shard] for shard in digests.keys() - receipts.keys()}
    scan, pause = ScanReport(0, 0, 0, ()), _PAUSE_SECONDS
    if stage.scan_digest is not None:
        scan = read_scans(folder.url, stage.scan_digest)
        pause = _SCAN_PAUSE_SECONDS
    counts = total_counts(done)
    inferences, tokens, padded = (
        counts[name] for name in ("inferences", "tokens", "padded_tokens")
    )
    work = sum(receipt.seconds for receipt in done)
    finished = [(receipt.committed_seconds, receipt.seconds) for receipt in done]
    eta = None if left else 0.0
    elapsed: float | None = None
    if left and (pace := Pace.of_last_stretch(finished, pause)) is not None:
        running = now - pace.last <= pause + max(receipt.seconds for receipt in done)
        eta = round(pace.seconds_left(left, now if running else pace.last), 1)
        elapsed = round(now - pace.start, 1) if running else None
    return StageStatus(
        stage=stage.name,
        shards=len(plan.shards),
        done=len(done),
        at_work=_read_work(folder.url, open_digests, now),
        left_open=tuple(folder.left_open(open_digests)) if left else (),
        kept_answers=_kept_answers(plan.output, stage.asks) if stage.asks else 0,
        bad_rows=sum(receipt.bad_rows for receipt in done) + scan.bad_rows,
        eta_seconds=eta,
        elapsed_seconds=elapsed,
        inferences=inferences,
        reused=counts["reused"],
        seconds=round(work + scan.seconds, 3),
        inferences_per_second=_ratio(inferences, work),
        inferences_per_query=_ratio(inferences + counts["reused"], counts["queries"]),
        tokens=tokens or None,
        padding_share=round(1 - tokens / padded, 4) if padded else None,
        retries=tuple(retry.reason for retry in retries if retry.stage == stage.name),
    )


def _kept_answers(output: str, asks: str) -> int:
    return sum(entry.digest == asks for entry in list_answers(output))


def _read_work(folder: str, digests: Mapping[int, str], now: float) -> tuple[Working, ...]:
    expected = {WORKING.name(digest, shard) for shard, digest in digests.items()}
    names = [
        entry.name
        for entry in (list_folder(folder, RECEIPTS) if expected else ())
        if entry.name in expected and now - (entry.state.modified_seconds or 0.0) < _LOST_SECONDS
    ]
    return tuple(Working.read(storage.join(folder, RECEIPTS), names))


@dataclass(frozen=True)
class Attempt:
    """One attempt at a shard.

    Attributes:
        stage: the stage.
        file: its receipt below the output, or its part where it has no receipt.
        state: "counts", or why it does not.
        receipt: None where it cannot be read, or was never written.
    """

    stage: str
    file: str
    state: str
    receipt: Receipt | None


def shard_attempts(plan: Plan, shard: int) -> Iterator[Attempt]:
    """All attempts at a shard, also of earlier plans, by stage. Writes nothing."""
    counted: dict[str, Receipt] = {}
    for stage in plan.stages:
        inputs = [counted[name] for name in stage.inputs if name in counted]
        of_all = plan.digest_of_all(stage)
        is_known = len(inputs) == len(stage.inputs) and bool(of_all) == bool(stage.waits_for)
        digest = plan.shard_digest(stage, shard, inputs, of_all) if is_known else None
        entries = [
            entry for entry in list_stage(plan.folder(stage.name).url) if entry.number == shard
        ]
        parts = {entry.name: entry.state.size_bytes for entry in entries if entry.is_complete(PART)}
        named: set[str] = set()
        for entry in entries:
            if entry.kind is RECEIPT:
                receipt, state = _read_attempt(plan, stage, entry, digest, parts)
                named |= set() if receipt is None else {receipt.part}
                if receipt is not None and state == _COUNTS:
                    counted[stage.name] = receipt
                yield Attempt(stage.name, storage.join(stage.name, entry.path), state, receipt)
        for name in sorted(parts.keys() - named):
            state = (
                "a part without a receipt: its attempt was killed or lost, `beamrank gc` removes it"
            )
            yield Attempt(stage.name, storage.join(stage.name, name), state, None)


def _read_attempt(
    plan: Plan, stage: StageRecord, entry: Entry, digest: str | None, parts: dict[str, int]
) -> tuple[Receipt | None, str]:
    if entry.temporary:
        return None, "unfinished: being written, or left by a killed process"
    content = storage.read_bytes(storage.join(plan.folder(stage.name).url, RECEIPTS, entry.name))
    receipt = Receipt.from_json(content)
    if receipt is not None and digest is None:
        return receipt, "not known yet: an input of the shard is unfinished"
    if receipt is not None and receipt.digest != digest:
        return receipt, "of an earlier plan, or of different inputs"
    return receipt, why_broken(receipt, digest or "", parts) or _COUNTS
