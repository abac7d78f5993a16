"""What of a run remains to be done after earlier runs into the same output."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from beamrank.config.run import RunConfig
from beamrank.errors import PreflightError
from beamrank.stages.plan import CURRENT, read_plan
from beamrank.stages.status import read_receipts
from beamrank.storage import files as storage
from pipelines.planning.make_plan import planned
from pipelines.planning.plan_changes import Change, plan_changes


@dataclass(frozen=True)
class Remaining:
    """The shards without a receipt by step, and what differs from the plan that was run last.

    A stage that is not among `shards` is to be done whole. So is one whose input is not finished, as far as is known.
    `note` tells why more could not be known.
    """

    shards: Mapping[str, Sequence[int]] = field(default_factory=dict)
    changed: tuple[Change, ...] = ()
    note: str | None = None


def find_remaining(config: RunConfig) -> Remaining:
    """Looks at what earlier runs have left. Writes nothing."""
    if CURRENT not in storage.sizes_bytes(config.output):
        return Remaining()
    plan = planned(config)
    if plan is None:
        return Remaining(note="what earlier runs left is not counted: that is known once the index is built")
    done = read_receipts(plan)
    missing: dict[str, set[int]] = {}
    for stage in plan.stages:
        # Two tokenizers make two stages of one step.
        missing.setdefault(stage.step, set()).update(range(len(plan.shards)) - done[stage.name].keys())
    shards = {step: sorted(each) for step, each in missing.items()}
    try:
        before = read_plan(config.output)
    except PreflightError as error:
        # Its receipts count all the same.
        return Remaining(shards, note=f"what changed since the last run is not known: {error}")
    return Remaining(shards, tuple(plan_changes(before, plan)))
