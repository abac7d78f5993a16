"""The outputs whose scores a plan reuses: its own output's earlier plans, and outputs that `reuse`
names.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property

from beamrank.commit.listing import PLAN
from beamrank.commit.owner import running
from beamrank.commit.plan import EngineVersionError, Plan, load_plan
from beamrank.commit.receipts import (
    Receipt,
    arithmetic_digest,
    read_machine,
)
from beamrank.commit.shards import InputPart, ReusablePart, ShardTask, SharedTopics
from beamrank.commit.stage import StageRecord
from beamrank.commit.status import read_receipts
from beamrank.errors import BeamrankError, PreflightError
from beamrank.machine import describe_machine
from beamrank.storage import files as storage
from beamrank.storage.digested import file_states
from models.stages.base import Stage
from models.stages.core import open_record

# Of one output; a newer plan's parts hold what it reused from older ones.
_MOST_PLANS = 8


# The parts of a stage of an earlier plan by shard, and in which of its shards the topics of a shard
# are now.
_Parts = tuple[Mapping[int, ReusablePart], SharedTopics]


class Reuse:
    """The plans that a plan can reuse, read on first use."""

    def __init__(self, plan: Plan, outputs: Sequence[str]) -> None:
        """The user named `outputs`."""
        self._plan, self._outputs = plan, outputs
        # By the place of the earlier plan.
        self._shared_topics: dict[str, SharedTopics] = {}

    def given_to(
        self, record: StageRecord, tasks: Sequence[ShardTask], note: Callable[[str], None]
    ) -> Sequence[ShardTask]:
        """The tasks of a stage, each with the parts that hold scores of its queries, the latest
        plans' parts first; notes why others are not reused.
        """
        plans, why = self.plans
        refused = list(why)
        reusing = self._reusing(record, tasks, refused) if plans else tasks
        for reason in refused:
            note(f"{record.name}: not reused: {reason}")
        return reusing

    def _reusing(
        self, record: StageRecord, tasks: Sequence[ShardTask], refused: list[str]
    ) -> Sequence[ShardTask]:
        """The tasks with their parts; adds reasons to `refused`."""
        stage = open_record(record)
        if not stage.reuses:
            device = stage.keys.get("device")
            refused.append(
                f"on {device} a score depends on the others of its batch, so none is reused"
                if device
                else "the stage has no `known_answers`"
            )
            return tasks
        stages: list[_Parts] = []
        for plan in self.plans[0]:
            try:
                for before in self._same_scores(plan, stage, record):
                    parts = self._parts(plan, before)
                    seen = {part.scores.url for of_stage, _ in stages for part in of_stage.values()}
                    new = {
                        shard: part for shard, part in parts.items() if part.scores.url not in seen
                    }
                    if new:
                        stages.append((new, self._shared(plan)))
                        if not stage.any_processor:
                            refused += _other_machines(plan, before, parts.values())
            except (BeamrankError, OSError) as error:
                refused.append(f"{_place(plan)}: {error}")
        return [replace(task, reusable=tuple(_parts_of(task.shard, stages))) for task in tasks]

    def _same_scores(self, plan: Plan, stage: Stage, record: StageRecord) -> list[StageRecord]:
        """The stages of an earlier plan that give an input the same score; PreflightError says why
        there is none.
        """
        of_kind = [
            earlier
            for earlier in plan.stages
            if earlier.input_docs and earlier.schema == record.schema
        ]
        differing = [
            [
                stage.config_keys[key]
                for key, value in stage.score_keys.items()
                if before.keys.get(key) != value
            ]
            for before in of_kind
        ]
        if of_kind and all(differing):
            fewest = min(differing, key=lambda keys: len(keys))
            raise PreflightError(f"{', '.join(dict.fromkeys(fewest))} differs")
        if not of_kind and plan.output != self._plan.output:
            raise PreflightError(f"it has no {stage.name}")
        return [before for before, keys in zip(of_kind, differing, strict=True) if not keys]

    def _shared(self, plan: Plan) -> SharedTopics:
        place = _place(plan)
        if place not in self._shared_topics:
            self._shared_topics[place] = SharedTopics.of(self._plan.shards, plan.shards)
        return self._shared_topics[place]

    @cached_property
    def plans(self) -> tuple[list[Plan], list[str]]:
        """The plans, and why others are not looked at."""
        plans: list[Plan] = []
        refused: list[str] = []
        if self._plan.output in self._outputs:
            refused.append(
                f"{self._plan.output} is this run's own output: its earlier plans are looked at "
                "in any case"
            )
        for output in dict.fromkeys([self._plan.output, *self._outputs]):
            try:
                names = self._names(output)
            except (BeamrankError, OSError) as error:
                refused.append(f"{output}: {error}")
                continue
            for name in names:
                try:
                    plan = load_plan(output, name)
                    plan.check_engine()
                    plans.append(plan)
                except (EngineVersionError, OSError) as error:
                    refused.append(str(error))
                except ValueError as error:
                    refused.append(f"{storage.join(output, name)} cannot be read: {error}")
        return plans, refused

    def _names(self, output: str) -> list[str]:
        """The plans of an output that are looked at, the latest first.

        Raises:
            PreflightError: a launcher may be writing into the output, or it holds no plan.
        """
        plans = {
            name: state
            for name, state in file_states(output).items()
            if re.fullmatch(PLAN.pattern, name)
        }
        if output == self._plan.output:
            plans.pop(self._plan.name, None)
        elif not plans:
            raise PreflightError("it holds no beamrank run")
        elif launchers := running(output):
            raise PreflightError(f"{launchers[0]} is writing it")
        return sorted(plans, key=lambda name: plans[name].modified_seconds or 0.0, reverse=True)[
            :_MOST_PLANS
        ]

    def _parts(self, plan: Plan, before: StageRecord) -> Mapping[int, ReusablePart]:
        """The parts of a stage of an earlier plan, by shard; raises PreflightError where they
        cannot be used.
        """
        tokens, backend = before.inputs[0], before.keys.get("backend", "")
        tokenized, scored = self._receipts(plan, tokens), self._receipts(plan, before.name)
        return {
            shard: ReusablePart(
                _part(plan, before.name, receipt),
                _part(plan, tokens, tokenized[shard]),
                before,
                _arithmetic(plan.output, receipt.machine, backend),
            )
            for shard, receipt in scored.items()
        }

    def _receipts(self, plan: Plan, name: str) -> Mapping[int, Receipt]:
        """The receipts of a stage.

        In this output the receipts of a killed launcher count, as if it were resumed; another
        launcher may still be writing elsewhere.
        """
        if plan.output == self._plan.output:
            return read_receipts(plan)[name]
        manifest = plan.manifest(name)
        if manifest is None:
            raise PreflightError(f"{name} is not finished, or files of it are missing")
        return dict(enumerate(manifest.receipts))


def _parts_of(shard: int, stages: Sequence[_Parts]) -> Iterator[ReusablePart]:
    for parts, shared in stages:
        yield from (parts[number] for number in shared.shards(shard) if number in parts)


def _other_machines(
    plan: Plan, record: StageRecord, parts: Iterable[ReusablePart]
) -> Iterator[str]:
    """Why this machine reuses no scores of some parts; a worker may be of their kind."""
    backend = record.keys.get("backend", "")
    here = describe_machine().arithmetic(backend)
    for name in sorted({part.scores.receipt.machine for part in parts}):
        machine = read_machine(plan.output, name)
        there = {} if machine is None else machine.arithmetic(backend)
        differ = [
            f"{fact} {there.get(fact) or 'unknown'} (here {here.get(fact) or 'none'})"
            for fact in {**here, **there}
            if there.get(fact) != here.get(fact)
        ]
        if differ:
            yield f"{_place(plan)}: {record.name} was computed with a different {', '.join(differ)}"


@cache
def _arithmetic(output: str, machine: str, backend: str) -> str:
    """The arithmetic of the machine that computed a part; empty if it is unknown."""
    description = read_machine(output, machine)
    return "" if description is None else arithmetic_digest(description, backend)


def _part(plan: Plan, stage: str, receipt: Receipt) -> InputPart:
    """A part for a task, which workers get: without what is not needed to read it."""
    return InputPart(plan.folder(stage), replace(receipt, counts={}, examples=()))


def _place(plan: Plan) -> str:
    return storage.join(plan.output, plan.name)
