"""Every attempt at a shard that a stage's folder still has, for `beamrank inspect --shard`."""

from collections.abc import Iterator
from dataclasses import dataclass

from beamrank.commit.listing import RECEIPTS, Entry, Kind, list_stage
from beamrank.commit.plan import Plan
from beamrank.commit.receipts import Receipt, why_broken
from beamrank.commit.stage_record import StageRecord
from beamrank.storage import files as storage


@dataclass(frozen=True)
class Attempt:
    """One attempt at a shard.

    Attributes:
        stage: the stage.
        file: its receipt below the output, or its part where it has no receipt.
        state: `counts`, or why it does not.
        receipt: None where it cannot be read, or was never written.
    """

    stage: str
    file: str
    state: str
    receipt: Receipt | None


def shard_attempts(plan: Plan, shard: int) -> Iterator[Attempt]:
    """The attempts at a shard, by stage; those of earlier plans are among them. Writes nothing."""
    for stage in plan.stages:
        digest = _digest(plan, stage, shard)
        entries = [each for each in list_stage(plan.folder(stage.name).url) if each.number == shard]
        parts = {each.name: each.state.size_bytes for each in entries if each.kind is Kind.PART and not each.temporary}
        named: set[str] = set()
        for entry in entries:
            if entry.kind is Kind.RECEIPT:
                receipt, state = _read(plan, stage, entry, digest, parts)
                named |= set() if receipt is None else {receipt.part}
                yield Attempt(stage.name, storage.join(stage.name, entry.path), state, receipt)
        for name in sorted(parts.keys() - named):
            state = "a part without a receipt: its attempt was killed or lost, `beamrank gc` removes it"
            yield Attempt(stage.name, storage.join(stage.name, name), state, None)


def _digest(plan: Plan, stage: StageRecord, shard: int) -> str | None:
    """The digest that the shard's receipt must have; None while an input is unfinished."""
    inputs = [plan.finished(name) for name in stage.inputs]
    sealed = [each for each in inputs if each is not None]
    return plan.shard_digests(stage, sealed)[shard] if len(sealed) == len(inputs) else None


def _read(
    plan: Plan, stage: StageRecord, entry: Entry, digest: str | None, parts: dict[str, int]
) -> tuple[Receipt | None, str]:
    if entry.temporary:
        return None, "unfinished: being written, or left by a killed process"
    content = storage.read_bytes(storage.join(plan.folder(stage.name).url, RECEIPTS, entry.name))
    receipt = Receipt.from_json(content)
    if receipt is not None and digest is None:
        return receipt, "not known yet: an input of the stage is unfinished"
    if receipt is not None and receipt.digest != digest:
        return receipt, "of an earlier plan, or of different inputs"
    return receipt, why_broken(receipt, digest or "", parts) or "counts"
