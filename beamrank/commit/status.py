"""The progress of a run and the attempts at a shard, read from its plan and receipts only."""

import re
import time
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
    list_folder,
    list_stage,
)
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Receipt, why_broken
from beamrank.commit.scans import ScanReport, read_scans
from beamrank.commit.stage import StageRecord
from beamrank.commit.working import Working
from beamrank.storage import files as storage
from beamrank.storage.documents import Document, Seconds, sha256

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
        found: Self | None = None
        for end, seconds in sorted(finished):
            if found is None or end - seconds - found.last > pause_seconds:
                found = cls(end - seconds, end, 1)
            else:
                found = cls(min(found.start, end - seconds), end, found.done + 1)
        return found


def _sums(receipts: Iterable[Receipt], *names: str) -> list[int]:
    """The sum of each of some counts."""
    counts = [receipt.counts for receipt in receipts]
    return [sum(each.get(name, 0) for each in counts) for name in names]


@dataclass(frozen=True)
class Retry(Document):
    """A worker or a job server died (`reason`), and the open shards of a stage were started
    again.
    """

    plan: str
    stage: str
    reason: str
    retried_seconds: Seconds

    def publish(self, output: str) -> None:
        """Writes the record into an output."""
        content = self.to_json()
        storage.publish_content(storage.join(output, RETRY.name(sha256(content))), content)


def _read_retries(plan: Plan) -> list[Retry]:
    names = [name for name in storage.sizes_bytes(plan.output) if re.fullmatch(RETRY.pattern, name)]
    found = map(Retry.from_json, storage.read_files(plan.output, names).values())
    of_plan = [each for each in found if each is not None and each.plan == plan.digest]
    return sorted(of_plan, key=lambda each: each.retried_seconds)


@dataclass(frozen=True)
class StageStatus:
    """One stage of a run.

    Attributes:
        at_work: what the attempts at other shards told in the last five minutes.
        eta_seconds: how long the rest takes at the pace of the last finished shards; 0 if all are
            done, None while none is.
        elapsed_seconds: how long the stage has been running; None if it is not.
        inferences: of the shards that are done, like all that follows.
        reused: the inferences whose scores earlier runs had; they are not among `inferences`.
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
    now = time.time() if now is None else now
    receipts = read_receipts(plan) if receipts is None else receipts
    retries = _read_retries(plan)
    return [_stage_status(plan, stage, receipts[stage.name], retries, now) for stage in plan.stages]


def read_receipts(plan: Plan) -> dict[str, Mapping[int, Receipt]]:
    """The receipts that count for each stage, by shard.

    None counts for a shard whose part an input lacks, since its digest is unknown.
    """
    found: dict[str, Mapping[int, Receipt]] = {}
    for stage in plan.stages:
        folder, before = plan.folder(stage.name), [found[each] for each in stage.inputs]
        of_all = plan.digest_of_all(stage)
        digests = {
            shard: plan.shard_digest(stage, shard, [each[shard] for each in before], of_all)
            for shard in range(len(plan.shards) if of_all or not stage.waits_for else 0)
            if all(shard in each for each in before)
        }
        # A sealed stage is read from its manifest: a request, not one a shard.
        manifest = (
            folder.manifest(tuple(digests.values())) if len(digests) == len(plan.shards) else None
        )
        found[stage.name] = (
            folder.receipts(digests) if manifest is None else dict(enumerate(manifest.receipts))
        )
    return found


def run_eta_seconds(stages: Sequence[StageStatus]) -> float | None:
    """The remaining time of a run; None if that of a stage is unknown."""
    etas = [stage.eta_seconds for stage in stages if stage.eta_seconds is not None]
    return round(sum(etas), 1) if len(etas) == len(stages) else None


def _stage_status(
    plan: Plan,
    stage: StageRecord,
    receipts: Mapping[int, Receipt],
    retries: Sequence[Retry],
    now: float,
) -> StageStatus:
    left = len(plan.shards) - len(receipts)
    done = receipts.values()
    scan = ScanReport(0, 0, 0, ())
    if stage.scan_digest is not None:
        scan = read_scans(plan.folder(stage.name).url, stage.scan_digest)
    names = ("queries", "inferences", "reused", "tokens", "padded_tokens")
    queries, inferences, reused, tokens, padded = _sums(done, *names)
    answered = inferences + reused
    work = sum(receipt.seconds for receipt in done)
    pace = _pace(stage, receipts) if left else None
    running = pace is not None and now - pace.last <= _pause(stage) + max(
        receipt.seconds for receipt in done
    )
    eta = None if pace is None else round(pace.seconds_left(left, now if running else pace.last), 1)
    return StageStatus(
        stage=stage.name,
        shards=len(plan.shards),
        done=len(done),
        at_work=_read_work(plan.folder(stage.name).url, receipts, now) if left else (),
        bad_rows=sum(receipt.bad_rows for receipt in done) + scan.bad_rows,
        eta_seconds=eta if left else 0.0,
        elapsed_seconds=round(now - pace.start, 1) if pace is not None and running else None,
        inferences=inferences,
        reused=reused,
        seconds=round(work + scan.seconds, 3),
        inferences_per_second=round(inferences / work, 1) if inferences and work else None,
        inferences_per_query=round(answered / queries, 1) if answered and queries else None,
        tokens=tokens or None,
        padding_share=round(1 - tokens / padded, 4) if padded else None,
        retries=tuple(retry.reason for retry in retries if retry.stage == stage.name),
    )


def _read_work(folder: str, receipts: Mapping[int, Receipt], now: float) -> tuple[Working, ...]:
    names = [
        entry.name
        for entry in list_folder(folder, RECEIPTS)
        if entry.is_whole(WORKING)
        and entry.number not in receipts
        and now - (entry.state.modified_seconds or 0.0) < _LOST_SECONDS
    ]
    contents = storage.read_files(storage.join(folder, RECEIPTS), names).values()
    return tuple(work for work in map(Working.from_json, contents) if work is not None)


def _pace(stage: StageRecord, receipts: Mapping[int, Receipt]) -> Pace | None:
    finished = [(receipt.committed_seconds, receipt.seconds) for receipt in receipts.values()]
    return Pace.of_last_stretch(finished, _pause(stage))


def _pause(stage: StageRecord) -> float:
    return _PAUSE_SECONDS if stage.scan_digest is None else _SCAN_PAUSE_SECONDS


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
    """The attempts at a shard, by stage; those of earlier plans are among them. Writes nothing."""
    counted: dict[str, Receipt] = {}
    for stage in plan.stages:
        inputs = [counted[name] for name in stage.inputs if name in counted]
        of_all = plan.digest_of_all(stage)
        is_known = len(inputs) == len(stage.inputs) and bool(of_all) == bool(stage.waits_for)
        digest = plan.shard_digest(stage, shard, inputs, of_all) if is_known else None
        entries = [each for each in list_stage(plan.folder(stage.name).url) if each.number == shard]
        parts = {each.name: each.state.size_bytes for each in entries if each.is_whole(PART)}
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
