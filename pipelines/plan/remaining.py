"""The rest of a run after earlier runs into the same output."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from beamrank.commit.listing import CURRENT
from beamrank.commit.plan import read_plan
from beamrank.commit.status import read_receipts
from beamrank.config.run import RunConfig
from beamrank.errors import PreflightError
from beamrank.storage import files as storage
from beamrank.storage.streams import errors_as
from models.stages.first_stage import FIRST
from pipelines.plan.expected_reuse import ExpectedReuse, expected_reuse
from pipelines.plan.make_plan import planned
from pipelines.plan.plan_changes import Change, plan_changes


@dataclass(frozen=True)
class Remaining:
    """The shards without a receipt by step, and the differences from the plan that was run last.

    A stage that is not among `shards`, or whose input is unfinished, remains whole. `reused` is what stages that score
    can take over. `note` explains what is unknown.
    """

    shards: Mapping[str, Sequence[int]] = field(default_factory=dict)
    changed: tuple[Change, ...] = ()
    note: str | None = None
    reused: Mapping[str, ExpectedReuse] = field(default_factory=dict)


def find_remaining(config: RunConfig) -> Remaining:
    """Reads the results of earlier runs. Writes nothing.

    Raises:
        PreflightError: the output cannot be read, or an input is missing or invalid.
    """
    with errors_as(PreflightError, config.output):
        names = storage.sizes_bytes(config.output)
    if CURRENT not in names and not config.reuse:
        return Remaining()
    plan = planned(config)
    reused = expected_reuse(plan, config)
    if not plan.of_step(FIRST):
        return Remaining(note="which shards and candidates stay is known once the index is built", reused=reused)
    if CURRENT not in names:
        return Remaining(reused=reused)
    done = read_receipts(plan)
    missing: dict[str, set[int]] = {}
    for stage in plan.stages:
        # Two tokenizers make two stages of one step.
        missing.setdefault(stage.step, set()).update(range(len(plan.shards)) - done[stage.name].keys())
    shards = {step: sorted(each) for step, each in missing.items()}
    try:
        before = read_plan(config.output)
        changes = tuple(plan_changes(before, plan)) if before.has_runs else ()
    except PreflightError as error:
        # Its receipts still count.
        return Remaining(shards, note=f"the changes since the last run are unknown: {error}", reused=reused)
    if not before.has_runs:
        return Remaining(shards, note=f"{config.output} holds scores of `beamrank score`, which stay", reused=reused)
    return Remaining(shards, changes, reused=reused)
