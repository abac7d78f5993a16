"""`beamrank audit DIR`: scores random shards of a run again, and says what share of all can be
wrong.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from beamrank.commit.plan import ENGINE_VERSION, read_plan
from beamrank.commit.receipts import StageFolder
from beamrank.errors import PreflightError
from beamrank.machine import describe_machine
from beamrank.notes import counted
from beamrank.storage.documents import SHORT
from beamrank.version import __version__
from contrib.audit.audit import CONFIDENCE, AuditedStage, audit_stage, draw_shards, most_wrong
from models.stages.core import open_stages
from models.stages.scoring import ModelStage
from pipelines.commands.arguments import (
    AsJson,
    Quiet,
    RunFolder,
    Verbose,
    console_progress,
    option,
)
from pipelines.console.terminal import write_line

HELP_PANEL = "Tools"


@dataclass(frozen=True)
class Audit:
    """The result of an audit.

    Attributes:
        output, plan: what was audited. shards, seed: of all shards, `audited` has the ones that
        were drawn. wrong: of these, the shards that are wrong in a stage. most_wrong,
        most_wrong_share: how many of all shards can be wrong with `confidence`. stages: by stage.
        machine: this one. date, seconds: when, and how long it took.
    """

    output: str
    plan: str
    version: str
    engine_version: int
    shards: int
    seed: int
    audited: Sequence[int]
    wrong: Sequence[int]
    most_wrong: int
    most_wrong_share: float
    confidence: float
    stages: Sequence[AuditedStage]
    machine: dict[str, Any]
    date: str
    seconds: float

    def text(self) -> str:
        """A paragraph for a paper or a ticket."""
        checked = [check for stage in self.stages for check in stage.shards if check.by_rank]
        by_rank = len({check.shard for check in checked})
        drawn = len(self.audited)
        machine = ", ".join([self.machine["processor"], *self.machine["gpus"]])
        sentences = [
            f"On {self.date}, beamrank {self.version} scored {drawn:,} of {self.shards:,} shards "
            f"of {self.output} again (plan {self.plan}, seed {self.seed}) on {machine}: "
            f"{'; '.join(map(_model, self.stages))}"
        ]
        if by_rank < drawn:
            alike = counted(drawn - by_rank, "shard")
            sentences.append(
                f"{alike} had been scored by the same kind of machine, so bits were compared"
            )
        if checked:
            largest = max(check.largest_difference for check in checked)
            sentences.append(
                f"{counted(by_rank, 'shard')} had been scored by another kind of machine, so "
                f"ranks were compared; scores differ by at most {largest:.2g}"
            )
        verdict = (
            f"{counted(len(self.wrong), 'shard is', 'shards are')} wrong"
            if self.wrong
            else "All agree"
        )
        if drawn < self.shards:
            verdict += (
                f": at {self.confidence:.0%} confidence at most {self.most_wrong:,} of the "
                f"{self.shards:,} shards ({self.most_wrong_share:.2%}) are wrong"
            )
        return ". ".join([*sentences, verdict, "What the stages read was taken as it is stored."])


def _model(stage: AuditedStage) -> str:
    checkpoint = stage.checkpoint and f"checkpoint {stage.checkpoint[:SHORT]}"
    settings = ", ".join(filter(None, (checkpoint, stage.dtype, stage.device)))
    return f"{stage.stage} ({settings or 'no model'}), {counted(stage.scores, 'score')}"


def audit(
    folder: RunFolder,
    shards: Annotated[
        int, option("How many shards are drawn, or all if there are fewer.", min=1)
    ] = 300,
    seed: Annotated[int, option("Draws other shards.")] = 0,
    as_json: AsJson = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Score random shards of a run again on this machine, and state what share of all shards can be
    wrong.

    Prints what differs, and a paragraph for a paper or a ticket. Where the same kind of machine
    stored a shard, scores must have the same bits, and otherwise the same ranks; exit code 1 if one
    differs. Pairs of `beamrank score` have no ranks, so they are refused on another kind of
    machine. Writes nothing.
    """
    console, start = console_progress(verbose, quiet), time.monotonic()
    plan = read_plan(folder)
    plan.check_engine()
    manifests = plan.manifests(StageFolder.gather)
    stages = [
        stage
        for stage in open_stages(plan.stages)
        if (stage.input_docs or isinstance(stage, ModelStage)) and stage.name in manifests
    ]
    for record in plan.stages:
        if record.name not in manifests:
            console.note(f"{record.name} is not finished, and is not audited")
    if not stages:
        raise PreflightError(
            f"{plan.output} has no finished stage with a model: run the same `beamrank run` "
            "again, which resumes"
        )
    drawn = draw_shards(len(plan.shards), shards, seed)
    topics = sum(plan.shards.rows_of(shard).num_rows for shard in drawn)
    for stage in stages:
        if stage.asks:
            requests = stage.cost(topics)
            console.note(f"{stage.name}: up to {requests:,} requests are made again")
            stage.allow(lambda requests=requests: requests)
    results = []
    # A process holds one model: a stage is done before the next.
    for stage in stages:
        names = ("checkpoint_digest", "dtype", "device", "backend", "kernel")
        result = AuditedStage(stage.name, *(stage.keys.get(name, "") for name in names))
        with console.events(), console.bar(stage.name) as bar:
            for checked in audit_stage(plan, stage, manifests, drawn):
                result.shards.append(checked)
                bar.update(len(result.shards), len(drawn), "shards")
        results.append(result)
    wrong = sorted({shard for result in results for shard in result.wrong})
    most = most_wrong(len(wrong), len(drawn), len(plan.shards))
    made = Audit(
        *(
            plan.output,
            plan.digest[:SHORT],
            __version__,
            ENGINE_VERSION,
            len(plan.shards),
            seed,
            drawn,
            wrong,
        ),
        *(most, most / len(plan.shards), CONFIDENCE, results, asdict(describe_machine())),
        *(datetime.now(UTC).date().isoformat(), round(time.monotonic() - start, 1)),
    )
    if as_json:
        print(json.dumps(asdict(made) | {"text": made.text()}, allow_nan=False))
    else:
        for line in _differences(results):
            write_line(line)
        write_line(made.text())
    if wrong:
        raise typer.Exit(1)


def _differences(stages: Sequence[AuditedStage]) -> Iterator[str]:
    """A line for each wrong shard of a stage."""
    for stage in stages:
        for check in stage.shards:
            if check.rows_differ:
                yield (
                    f"{stage.stage}, shard {check.shard}: its rows are not those of its topics "
                    "and candidates"
                )
            elif check.wrong:
                reranked = counted(len(check.reranked), "query is", "queries are")
                yield (
                    f"{stage.stage}, shard {check.shard}: {check.different:,} of {check.scores:,} "
                    f"scores differ, by up to {check.largest_difference:.2g}; {reranked} ranked "
                    "differently"
                )
