"""The outputs whose scores and tokens a run reuses: its own output's earlier plans, and those that
`reuse` names.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from beamrank.commit.listing import PLAN
from beamrank.commit.plan import EngineVersionError, Plan, load_plan
from beamrank.commit.receipts import (
    Manifest,
    Receipt,
    ScanReport,
    StageFolder,
    arithmetic_digest,
    read_machine,
    read_reports,
)
from beamrank.commit.shards import InputPart, ReusablePart, ShardTask, SharedTopics, TokensPart
from beamrank.commit.stage import StageRecord
from beamrank.commit.status import read_receipts
from beamrank.errors import BeamrankError, PreflightError
from beamrank.machine import describe_machine
from beamrank.storage import files as storage
from beamrank.storage.digested import file_states
from models.stages.core import open_stage
from models.stages.scoring import ScoringStage
from pipelines.runs.owner import running

# What decides the tokens that a text has.
_TOKEN_KEYS = ("tokenizer_digest", "max_doc_tokens")
# Of one output; a newer plan's parts hold what it reused from older ones.
_MOST_PLANS = 8


@dataclass(frozen=True)
class ReusableStage:
    """A stage of an earlier plan whose scores can be reused: its parts by shard.

    `shared` tells in which of its shards the topics of a shard are now.
    """

    plan: Plan
    record: StageRecord
    parts: Mapping[int, ReusablePart]
    shared: SharedTopics


@dataclass(frozen=True)
class ReusableStages:
    """The stages whose scores one stage can reuse, those of the latest plans first, and why not
    others, a line each.
    """

    stages: Sequence[ReusableStage]
    refused: Sequence[str]

    def given_to(self, tasks: Sequence[ShardTask]) -> list[ShardTask]:
        """The tasks, each with the parts that hold its queries."""
        return [replace(task, reusable=tuple(self._parts(task.shard))) for task in tasks]

    def _parts(self, shard: int) -> Iterator[ReusablePart]:
        for stage in self.stages:
            yield from (
                stage.parts[each] for each in stage.shared.shards(shard) if each in stage.parts
            )


@dataclass(frozen=True)
class ReusableTokens:
    """A sealed stage of an earlier plan that tokenized docs in the same way."""

    plan: Plan
    record: StageRecord
    candidates: Manifest
    tokens: Manifest
    shared: SharedTopics

    @property
    def folder(self) -> StageFolder:
        """The stage's folder."""
        return self.plan.folder(self.record.name)

    def parts(self, task: ShardTask) -> tuple[TokensPart, ...]:
        """The parts with the topics of a task."""
        candidates = self.record.inputs[0]
        return tuple(
            TokensPart(
                _part(self.plan, self.record.name, self.tokens.receipts[shard]),
                _part(self.plan, candidates, self.candidates.receipts[shard]),
                self.record.keys["k"],
            )
            for shard in self.shared.shards(task.shard)
        )

    def reports(self) -> list[ScanReport]:
        """The reports on the units of its corpus."""
        return read_reports(self.folder.url, [str(self.record.corpus_digest)])


class Reuse:
    """The plans that a run can reuse, read on first use."""

    def __init__(self, plan: Plan, outputs: Sequence[str]) -> None:
        """`outputs` are those that the user named."""
        self._plan, self._outputs = plan, outputs
        # By the place of the earlier plan.
        self._found_shared: dict[str, SharedTopics] = {}

    def scores(self, record: StageRecord) -> ReusableStages:
        """The scores that a stage of the plan can reuse."""
        stage = open_stage(self._plan.stages, record.name)
        plans, refused = self._plans
        if plans and not stage.reuses:
            reason = (
                f"on {stage.device} a score depends on the others of its batch, so none is reused"
            )
            return ReusableStages((), [*refused, reason])
        found: list[ReusableStage] = []
        reasons = list(refused)
        for plan in plans:
            try:
                for before in self._same_scores(plan, stage, record):
                    parts = self._parts(plan, before)
                    seen = {part.scores.url for each in found for part in each.parts.values()}
                    new = {
                        shard: part for shard, part in parts.items() if part.scores.url not in seen
                    }
                    if new:
                        found.append(ReusableStage(plan, before, new, self._shared(plan)))
                        reasons += (
                            ()
                            if stage.of_any_machine
                            else _other_machines(plan, before, parts.values())
                        )
            except (BeamrankError, OSError) as error:
                reasons.append(f"{_place(plan)}: {error}")
        return ReusableStages(found, reasons)

    def _same_scores(
        self, plan: Plan, stage: ScoringStage, record: StageRecord
    ) -> list[StageRecord]:
        """The stages of an earlier plan that give an input the same score; PreflightError says why
        there is none.
        """
        of_kind = [
            each for each in plan.stages if each.work is not None and each.schema == record.schema
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

    def tokens(self, record: StageRecord) -> tuple[ReusableTokens | None, list[str]]:
        """The tokens of docs for a stage of the plan that tokenizes, and why those of other plans
        are not reused.

        They are those of the plan that has most of the topics; among equals, of one with the same
        corpus.
        """
        plans, refused = self._plans
        reasons = list(refused)
        found: list[tuple[tuple[int, bool], ReusableTokens]] = []
        for plan in plans:
            before = next((each for each in plan.stages if _same_tokens(each, record)), None)
            if before is None:
                continue
            try:
                tokens, candidates = plan.seal_of(before.name), plan.seal_of(before.inputs[0])
            except (BeamrankError, OSError) as error:
                reasons.append(f"{_place(plan)}: {error}")
                continue
            if tokens is not None and candidates is not None:
                shared = self._shared(plan)
                rank = (
                    shared.topics * before.keys["k"],
                    before.corpus_digest == record.corpus_digest,
                )
                found.append((rank, ReusableTokens(plan, before, candidates, tokens, shared)))
            elif plan.output != self._plan.output:
                reasons.append(
                    f"{_place(plan)}: {before.name} is not finished, or files of it are missing"
                )
        return max(found, key=lambda each: each[0], default=(None, None))[1], reasons

    def _shared(self, plan: Plan) -> SharedTopics:
        place = _place(plan)
        if place not in self._found_shared:
            self._found_shared[place] = SharedTopics.of(self._plan.shards, plan.shards)
        return self._found_shared[place]

    @cached_property
    def _plans(self) -> tuple[list[Plan], list[str]]:
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
            PreflightError: a run may be writing into the output, or it holds none.
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
        tokens, backend = before.inputs[0], before.keys["backend"]
        tokenized, scored = self._receipts(plan, tokens), self._receipts(plan, before.name)
        return {
            shard: ReusablePart(
                _part(plan, before.name, receipt),
                _part(plan, tokens, tokenized[shard]),
                before.keys,
                _arithmetic(plan.output, receipt.machine, backend),
            )
            for shard, receipt in scored.items()
        }

    def _receipts(self, plan: Plan, name: str) -> Mapping[int, Receipt]:
        """The receipts of a stage.

        In this output those of a killed run count, as if it were resumed; another run may still be
        writing elsewhere.
        """
        if plan.output == self._plan.output:
            return read_receipts(plan)[name]
        manifest = plan.seal_of(name)
        if manifest is None:
            raise PreflightError(f"{name} is not finished, or files of it are missing")
        return dict(enumerate(manifest.receipts))


def _other_machines(
    plan: Plan, record: StageRecord, parts: Iterable[ReusablePart]
) -> Iterator[str]:
    """Why this machine reuses no scores of some parts; a worker may be of their kind."""
    backend = record.keys["backend"]
    here = describe_machine().arithmetic(backend)
    for name in sorted({part.scores.receipt.machine for part in parts}):
        machine = read_machine(plan.output, name)
        there = {} if machine is None else machine.arithmetic(backend)
        differ = [
            f"{each} {there.get(each) or 'unknown'} (here {here.get(each) or 'none'})"
            for each in {**here, **there}
            if there.get(each) != here.get(each)
        ]
        if differ:
            yield f"{_place(plan)}: {record.name} was computed with a different {', '.join(differ)}"


@cache
def _arithmetic(output: str, machine: str, backend: str) -> str:
    """What computed a part; empty if that is unknown."""
    found = read_machine(output, machine)
    return "" if found is None else arithmetic_digest(found, backend)


def _same_tokens(stage: StageRecord, other: StageRecord) -> bool:
    """Whether two stages make the same tokens of a text."""
    return stage.type_name == other.type_name and all(
        stage.keys.get(key) == other.keys[key] for key in _TOKEN_KEYS
    )


def _part(plan: Plan, stage: str, receipt: Receipt) -> InputPart:
    """A part for a task, which workers get: without what is not needed to read it."""
    return InputPart(plan.folder(stage), replace(receipt, counts={}, examples=()))


def _place(plan: Plan) -> str:
    return storage.join(plan.output, plan.name)
